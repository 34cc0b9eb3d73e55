package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/celmatch"
)

// selecting are the flags that select dead letters.
type selecting struct {
	Consumer []string `sep:"none" placeholder:"NAME" help:"Only those of this consumer; may be repeated."`
	Type     string   `placeholder:"TYPE" help:"Only events of this type."`
	Reason   string   `placeholder:"CODE" help:"Only those with this reason code."`
	Error    string   `placeholder:"TEXT" help:"Only those with this error, as dlq groups prints it."`
	Stage    string   `placeholder:"STAGE" help:"Only those that died at dispatch, decode or handle."`
	Since    moment   `placeholder:"WHEN" help:"Only what died since then: 24h or 7d, meaning ago, a date, or RFC 3339."`
	Until    moment   `placeholder:"WHEN" help:"Only what died before then."`
	Tenant   string   `placeholder:"ID" help:"Only events of this tenant."`
	Key      string   `placeholder:"KEY" help:"Only events of this ordering key."`
	Status   string   `placeholder:"STATUS" help:"Only those that are pending, reviewed, replayed or closed."`
	Match    string   `placeholder:"CEL" help:"Only what this CEL expression is true of, such as '${match}'. It knows payload, event and letter.${match_note} Exit code 3: it fails for some, which are left out."`
}

var (
	statuses = []string{
		string(eventing.StatusPending), string(eventing.StatusReviewed), string(eventing.StatusReplayed), string(eventing.StatusClosed),
	}
	stages = []string{string(eventing.StageDispatch), string(eventing.StageDecode), string(eventing.StageHandle)}
)

// selection checks the flags.
func (s *selecting) selection() (eventing.Selection, error) {
	switch {
	case s.Status != "" && !slices.Contains(statuses, s.Status):
		return eventing.Selection{}, usage("--status must be one of %s, not %q", strings.Join(statuses, ", "), s.Status)
	case s.Stage != "" && !slices.Contains(stages, s.Stage):
		return eventing.Selection{}, usage("--stage must be one of %s, not %q", strings.Join(stages, ", "), s.Stage)
	case !s.Until.IsZero() && !s.Until.After(s.Since.Time):
		return eventing.Selection{}, usage("--until must lie after --since")
	}
	selection := eventing.Selection{
		Consumers: s.Consumer, EventType: s.Type, Reason: eventing.ReasonCode(s.Reason), Error: s.Error, Stage: eventing.Stage(s.Stage),
		TenantID: s.Tenant, OrderingKey: s.Key, Status: eventing.ReviewStatus(s.Status), Since: s.Since.UTC(), Until: s.Until.UTC(), Match: s.Match,
	}
	if s.Match != "" {
		match, err := celmatch.Compile(s.Match)
		if err != nil {
			return eventing.Selection{}, usage("--match: %w", err)
		}
		selection.Matches = match.Matches
	}
	return selection, nil
}

// any reports whether a flag selects.
func (s *selecting) any() bool { return len(s.arguments()) > 0 }

// arguments are the flags that select the same.
func (s *selecting) arguments() []string {
	var args []string
	for _, name := range s.Consumer {
		args = append(args, "--consumer", name)
	}
	for _, flag := range [][2]string{
		{"--reason", s.Reason}, {"--error", s.Error}, {"--type", s.Type}, {"--stage", s.Stage}, {"--since", s.Since.text}, {"--until", s.Until.text},
		{"--tenant", s.Tenant}, {"--key", s.Key}, {"--status", s.Status}, {"--match", s.Match},
	} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	return args
}

// undecided counts the dead letters that an expression fails for.
type undecided struct {
	n     int
	first error
	at    eventing.Target
}

func (u *undecided) add(dl eventing.DeadLetter, err error) {
	if u.n++; u.n == 1 {
		u.first, u.at = err, dl.Target()
	}
}

// err is what the command ends with: a selection that leaves some out is not what was asked for.
func (u *undecided) err() error {
	if u.n == 0 {
		return nil
	}
	which, hint := "which are", ""
	if u.n == 1 {
		which = "which is"
	}
	if text := u.first.Error(); strings.Contains(text, "no such key") || strings.Contains(text, "no such attribute") {
		hint = ". Ask first whether a field is there: has(payload.amount)"
	}
	return foundError{fmt.Errorf("--match fails for %s, %s left out; the first is %s: %w%s", plural(u.n, "dead letter"), which, u.at, u.first, hint)}
}
