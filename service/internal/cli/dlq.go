package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

type dlqCmd struct {
	List       dlqListCmd       `cmd:"" help:"List dead letters, the oldest first."`
	Groups     dlqGroupsCmd     `cmd:"" help:"Count them by consumer, reason and error."`
	Show       dlqShowCmd       `cmd:"" help:"Show all that is known of one."`
	Review     dlqReviewCmd     `cmd:"" help:"Mark one as looked at."`
	Plan       dlqPlanCmd       `cmd:"" help:"Say what replaying many would do; write the plan down."`
	Apply      dlqApplyCmd      `cmd:"" help:"Carry a plan out."`
	Replay     dlqReplayCmd     `cmd:"" help:"Send some to their consumer again."`
	Schedule   dlqScheduleCmd   `cmd:"" help:"Have one replayed by itself later."`
	Unschedule dlqUnscheduleCmd `cmd:"" help:"Take that back."`
	Close      dlqCloseCmd      `cmd:"" help:"Give some up for good."`
	Export     dlqExportCmd     `cmd:"" help:"Write them as dlq_entry JSON, one a line."`
}

func (dlqCmd) Help() string {
	return `Dead letters are events that a consumer could not process. These commands work on the database, also while its programs run.

Examples:

    ${program} dlq groups
    ${program} dlq show ${event}
    ${program} dlq replay ${event} --note "the other side has fixed it"
    ${program} dlq plan --since 24h --out plan.json
    ${program} dlq apply plan.json
    ${program} dlq close ${event} --reason "test event" --yes`
}

type dlqListCmd struct {
	output
	selecting

	All   bool `help:"Closed ones too. Default: open ones only."`
	Limit uint `default:"100" help:"At most this many, 10,000 at most. Default: 100."`
}

func (dlqListCmd) Help() string {
	return `Examples:

    ${program} dlq list
    ${program} dlq list --status reviewed --consumer ${consumer}
    ${program} dlq list --since 24h --match '${match}'
    ${program} dlq list --json | jq -r '.dead_letters[].reason_code' | sort | uniq -c`
}

// maxLetters is how many dead letters one command lists or replays.
const maxLetters = 10_000

// Run lists.
func (c *dlqListCmd) Run(ctx context.Context, p *Program) error {
	if c.Limit == 0 || c.Limit > maxLetters {
		return usage("--limit must lie between 1 and %d", maxLetters)
	}
	s, err := c.selection()
	if err != nil {
		return err
	}
	var failed undecided
	s.OpenOnly, s.Undecided = !c.All && s.Status != eventing.StatusClosed, failed.add
	s.Limit = int(c.Limit) + 1 // one more tells whether there are more
	return withDesk(ctx, p, func(d *desk) error {
		letters, err := d.selected(ctx, s)
		if err != nil {
			return err
		}
		truncated := len(letters) > int(c.Limit)
		letters = letters[:min(len(letters), int(c.Limit))]
		if err := c.print(ctx, p, d, listed{append([]letter{}, letters...), truncated, failed.n}); err != nil {
			return err
		}
		if truncated {
			_, _ = fmt.Fprintf(p.Stderr, "These are the oldest %d; there are more: raise --limit.\n", c.Limit)
		}
		return failed.err()
	})
}

// listed is what dlq list prints as JSON.
type listed struct {
	DeadLetters []letter `json:"dead_letters"`
	Truncated   bool     `json:"truncated"` // the limit has cut it off
	Undecided   int      `json:"undecided"` // those that --match fails for
}

func (c *dlqListCmd) print(ctx context.Context, p *Program, d *desk, l listed) error {
	switch {
	case c.JSON:
		return printJSON(p.Stdout, l)
	case len(l.DeadLetters) > 0:
		return printTable(p.Stdout, d.table(l.DeadLetters))
	}
	return d.none(ctx, p, c.any(), c.All)
}

// none says that nothing was found, and whether that is due to the filters.
func (d *desk) none(ctx context.Context, p *Program, filtered, all bool) error {
	others, err := d.letters.List(ctx, eventing.DeadLetterFilter{OpenOnly: !all, Limit: 1})
	if err != nil {
		return err
	}
	text := "No open dead letters (--all shows closed ones)."
	switch {
	case filtered && len(others) > 0 && all:
		text = "None of the dead letters matches; there are others."
	case filtered && len(others) > 0:
		text = "None of the open dead letters matches; there are others (--all shows closed ones, too)."
	case all:
		text = "No dead letters."
	}
	_, err = fmt.Fprintln(p.Stdout, text)
	return err
}

// table lists dead letters for people.
func (d *desk) table(letters []letter) [][]string {
	rows := [][]string{{"EVENT", "TYPE", "CONSUMER", "REASON", "ATTEMPTS", "STATUS", "PARKED", "AGE"}}
	if d.tool.couriers {
		rows = [][]string{{"EVENT", "SOURCE", "CONSUMER", "REASON", "ATTEMPTS", "STATUS", "PARKED", "AGE", "ENVELOPE"}}
	}
	for _, l := range letters {
		row := []string{
			l.EventID, l.EventType, l.Consumer, string(l.Reason), strconv.Itoa(l.AttemptCount), l.state(),
			strconv.Itoa(l.ParkedBehind), age(time.Since(l.CreatedAt)),
		}
		if d.tool.couriers {
			row[0], row[1] = l.CourierEventID, l.Source
			row = append(row, l.EventID)
		}
		rows = append(rows, row)
	}
	return rows
}

type dlqShowCmd struct {
	output
	which

	ID string `arg:"" help:"${event_id}"`
}

func (dlqShowCmd) Help() string {
	return `Shows why the event died, each attempt at it, what has been done about it since, and its payload.

Examples:

    ${program} dlq show ${event}
    ${program} dlq show ${event} --consumer ${consumer}
    ${program} dlq show ${event} --json | jq .event.payload`
}

// Run shows one dead letter.
func (c *dlqShowCmd) Run(ctx context.Context, p *Program) error {
	return withDesk(ctx, p, func(d *desk) error {
		l, err := d.one(ctx, c.ID, c.which, false)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(p.Stdout, struct {
				letter
				Event any `json:"event"` // the envelope
			}{l, jsonOrText(l.Payload)})
		}
		return c.print(p.Stdout, d, l)
	})
}

func jsonOrText(b []byte) any {
	if json.Valid(b) {
		return json.RawMessage(b)
	}
	return string(b)
}

func (c *dlqShowCmd) print(w io.Writer, d *desk, l letter) error {
	rows := [][]string{{"event", l.EventID}}
	if d.tool.couriers {
		rows = [][]string{{"event", l.CourierEventID}, {"source", l.Source}, {"shipment", l.ShipmentID}, {"envelope", l.EventID}}
	}
	rows = append(rows, [][]string{
		{"type", l.EventType}, {"consumer", l.Consumer}, {"stage", string(l.Stage)}, {"reason", string(l.Reason)}, {"message", l.Message},
		{"status", l.state()}, {"attempts", strconv.Itoa(l.AttemptCount)}, {"ordering key", l.OrderingKey},
		{"parked behind", strconv.Itoa(l.ParkedBehind)}, {"died first", since(l.CreatedAt)}, {"last change", since(l.UpdatedAt)},
		{"kept until", l.ExpiresAt.UTC().Format(time.RFC3339)},
	}...)
	sections := []struct {
		title string
		rows  [][]string
	}{{"", rows}, {"Attempts", nil}, {"Acts", nil}}
	for _, a := range l.History {
		sections[1].rows = append(sections[1].rows, []string{"  " + strconv.Itoa(a.Attempt), a.At.UTC().Format(time.RFC3339), string(a.ErrorCode), a.ErrorMessage})
	}
	for _, a := range l.Acts {
		row := []string{"  " + a.Act, a.At.UTC().Format(time.RFC3339), a.By, a.Note}
		if a.Plan != "" {
			row = append(row, "plan "+a.Plan)
		}
		sections[2].rows = append(sections[2].rows, row)
	}
	for _, s := range sections {
		if len(s.rows) == 0 {
			continue
		}
		if s.title != "" {
			if _, err := fmt.Fprintf(w, "\n%s\n", s.title); err != nil {
				return err
			}
		}
		if err := printTable(w, s.rows); err != nil {
			return err
		}
	}
	var payload strings.Builder
	if err := printJSON(&payload, jsonOrText(l.Payload)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nPayload\n%s", clean(payload.String()))
	return err
}
