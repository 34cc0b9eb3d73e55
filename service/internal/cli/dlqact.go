package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/eventing"
)

// signed is who acts.
type signed struct {
	By string `placeholder:"NAME" setting:"USER" help:"Who does it; recorded. Default: the system's name for you."`
}

// name fills in who acts; a dry run records nobody.
func (s *signed) name(p *Program, dry bool) error {
	if s.By != "" || dry {
		return nil
	}
	username := p.Username
	if username == nil {
		username = func() (string, error) {
			u, err := user.Current()
			if err != nil {
				return "", err
			}
			return u.Username, nil
		}
	}
	var err error
	if s.By, err = username(); err != nil || s.By == "" {
		return usage("say who with --by NAME, or set USER")
	}
	return nil
}

type dlqReviewCmd struct {
	output
	which
	signed

	ID   string `arg:"" help:"${event_id}"`
	Note string `placeholder:"TEXT" help:"What was found; recorded."`
}

func (dlqReviewCmd) Help() string {
	return `Examples:

    ${program} dlq review ${event} --note "asked the other side on Monday"`
}

// Run marks a dead letter as reviewed.
func (c *dlqReviewCmd) Run(ctx context.Context, p *Program) error {
	if err := c.name(p, false); err != nil {
		return err
	}
	reviewed := act{name: "reviewed", from: []eventing.ReviewStatus{eventing.StatusPending}, json: c.JSON}
	return reviewed.onOne(ctx, p, c.ID, c.which, func(d *desk, l letter) error {
		return d.letters.Review(ctx, l.Target(), c.By, c.Note)
	})
}

type dlqReplayCmd struct {
	output
	which
	signed

	IDs    []string `arg:"" optional:"" name:"id" help:"${event_id}"`
	Limit  uint     `placeholder:"N" help:"Instead of ids: the N oldest that are pending or reviewed."`
	Force  bool     `again:"" help:"Run again what --consumer has processed already: its effect happens once more."`
	Note   string   `placeholder:"TEXT" help:"Why; recorded."`
	Yes    bool     `again:"" help:"With --force: do not ask."`
	DryRun bool     `help:"Only say what would be replayed."`
}

func (dlqReplayCmd) Help() string {
	return `The consumer gets the event again, with all its attempts; other consumers do not. If it succeeds, the dead letter closes as resolved; if it fails for good, it is pending again.
${force}
Examples:

    ${program} dlq replay ${event} --note "fixed in 1.4.2"
    ${program} dlq replay --limit 500 --consumer ${consumer} --dry-run${force_example}`
}

// Run replays.
func (c *dlqReplayCmd) Run(ctx context.Context, p *Program) error {
	switch {
	case len(c.IDs) == 0 && c.Limit == 0:
		return usage("name the events to replay, or give --limit N for the oldest N")
	case len(c.IDs) > 0 && c.Limit > 0:
		return usage("name the events to replay or give --limit, not both")
	case c.Limit > maxLetters:
		return usage("--limit may be %d at most", maxLetters)
	case c.Limit > 0 && c.Consumer != nil && *c.Consumer == "":
		return usage("--consumer is empty: give it a value, or leave it out")
	case c.Limit > 0 && c.Source != "":
		return usage("--source goes with ids, not with --limit")
	case c.Force && p.tool.finality != "":
		return usage("--force: %s", p.tool.finality)
	case c.Force && (c.Limit > 0 || c.Consumer == nil || *c.Consumer == ""):
		return usage("--force goes with ids and --consumer: say what is to be run again, and where")
	case c.Yes && !c.Force:
		return usage("--yes goes with --force; nothing else asks")
	}
	if err := c.name(p, c.DryRun); err != nil {
		return err
	}
	return withDesk(ctx, p, func(d *desk) error {
		if c.Force {
			return c.force(ctx, p, d)
		}
		var letters []letter
		var err error
		if c.Limit > 0 {
			letters, err = d.oldest(ctx, c.which, int(c.Limit))
		} else {
			letters, err = d.all(ctx, c.IDs, c.which)
		}
		if err != nil {
			return err
		}
		return act{name: "replayed", from: replayable, json: c.JSON, dry: c.DryRun}.on(p, letters, func(t eventing.Target) error {
			return d.letters.Replay(ctx, t, c.By, c.Note)
		})
	})
}

type dlqCloseCmd struct {
	output
	which
	signed

	IDs    []string `arg:"" name:"id" help:"${event_id}"`
	Reason string   `required:"" placeholder:"TEXT" help:"Why it is given up; recorded."`
	Yes    bool     `help:"Do not ask."`
	DryRun bool     `help:"Only say what would be closed."`
}

func (dlqCloseCmd) Help() string {
	return `The consumer will not handle the event any more, and what is parked behind it goes on without it. This cannot be undone.

Examples:

    ${program} dlq close ${event} --reason "test event" --dry-run
    ${program} dlq close ${event} --reason "test event" --yes`
}

// Run discards.
func (c *dlqCloseCmd) Run(ctx context.Context, p *Program) error {
	if strings.TrimSpace(c.Reason) == "" {
		return usage("--reason must say why")
	}
	if err := c.name(p, c.DryRun); err != nil {
		return err
	}
	return withDesk(ctx, p, func(d *desk) error {
		letters, err := d.all(ctx, c.IDs, c.which)
		if err != nil {
			return err
		}
		closed := func(l letter) bool { return l.Status == eventing.StatusClosed }
		if left := slices.DeleteFunc(slices.Clone(letters), closed); len(left) > 0 && !c.Yes && !c.DryRun {
			if err := p.confirm("This gives up for good:", summaries(left)); err != nil {
				return err
			}
		}
		return act{name: "discarded", from: open, json: c.JSON, dry: c.DryRun}.on(p, letters, func(t eventing.Target) error {
			return d.letters.Discard(ctx, t, c.By, c.Reason)
		})
	})
}

// all returns a dead letter for each id, or an error if one is missing or names
// several: then nothing is done.
func (d *desk) all(ctx context.Context, ids []string, w which) ([]letter, error) {
	var letters []letter
	for _, id := range ids {
		l, err := d.one(ctx, id, w, true)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(letters, func(k letter) bool { return k.Target() == l.Target() }) {
			letters = append(letters, l)
		}
	}
	return letters, nil
}

// force runs what was processed again. What was processed needs no dead letter.
func (c *dlqReplayCmd) force(ctx context.Context, p *Program, d *desk) error {
	var letters []letter
	var lines []string
	for _, id := range c.IDs {
		l := letter{DeadLetter: eventing.DeadLetter{EventID: id, Consumer: *c.Consumer, Status: eventing.StatusClosed}}
		letters, lines = append(letters, l), append(lines, l.String())
	}
	if err := c.unrecorded(ctx, p, d); err != nil {
		return err
	}
	if !c.Yes && !c.DryRun {
		if err := p.confirm("This runs again what the consumer has processed. Its effect happens once more, and cannot be taken back:", lines); err != nil {
			return err
		}
	}
	forced := false
	err := act{name: "forced", from: []eventing.ReviewStatus{eventing.StatusClosed}, json: c.JSON, dry: c.DryRun}.on(p, letters, func(t eventing.Target) error {
		err := d.letters.Force(ctx, t, c.By, c.Note)
		if errors.Is(err, eventing.ErrState) {
			return fmt.Errorf("%w; if it has an open dead letter, replay it without --force", err)
		}
		forced = forced || err == nil
		return err
	})
	if forced {
		_, _ = fmt.Fprintln(p.Stderr, mayRefuse)
	}
	return err
}

// mayRefuse is what nobody knows yet when an event has been sent by force.
const mayRefuse = "The consumer may still refuse to run it again (Policy.RefuseForce); its log says so then."

// unrecorded warns of events that have no dead letter, which is where acts are recorded.
func (c *dlqReplayCmd) unrecorded(ctx context.Context, p *Program, d *desk) error {
	for _, id := range c.IDs {
		list, err := d.letters.List(ctx, eventing.DeadLetterFilter{EventID: id, Consumer: *c.Consumer, Limit: 1})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			_, _ = fmt.Fprintf(p.Stderr, "%s has no dead letter at %s: that it is forced shows in the outbox row and in the consumer's log; who did it and the note are recorded nowhere.\n",
				cleanLine(id), cleanLine(*c.Consumer))
		}
	}
	return nil
}

func summaries(letters []letter) (lines []string) {
	for _, l := range letters {
		lines = append(lines, fmt.Sprintf("%s (%s, %d parked behind)", l, l.Status, l.ParkedBehind))
	}
	return lines
}

// confirm asks whoever is there; nobody's silence is no consent.
func (p *Program) confirm(what string, lines []string) error {
	more := ""
	if n := len(lines) - maxShown; n > 0 {
		lines, more = lines[:maxShown], fmt.Sprintf("  and %d more\n", n)
	}
	_, _ = fmt.Fprintf(p.Stderr, "%s\n%s%s", what, indented(lines), more)
	if !p.Interactive {
		return usage("nothing was done; add --yes to do it")
	}
	_, _ = fmt.Fprint(p.Stderr, "Go on? [y/N] ")
	answer, err := bufio.NewReader(io.LimitReader(p.Stdin, 1024)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}

// act is something to do to dead letters, one after the other.
type act struct {
	name string // of what is recorded
	from []eventing.ReviewStatus
	json bool
	dry  bool
}

// The states from which there is something to do.
var (
	replayable = []eventing.ReviewStatus{eventing.StatusPending, eventing.StatusReviewed}
	open       = []eventing.ReviewStatus{eventing.StatusPending, eventing.StatusReviewed, eventing.StatusReplayed}
)

// onOne does it to the one dead letter that id and w name.
func (a act) onOne(ctx context.Context, p *Program, id string, w which, do func(*desk, letter) error) error {
	return withDesk(ctx, p, func(d *desk) error {
		l, err := d.one(ctx, id, w, true)
		if err != nil {
			return err
		}
		return a.on(p, []letter{l}, func(eventing.Target) error { return do(d, l) })
	})
}

// on does it, and tells. A dead letter that somebody else has acted on meanwhile
// stops no other.
func (a act) on(p *Program, letters []letter, do func(eventing.Target) error) error {
	type done struct {
		EventID        string `json:"event_id"`
		Consumer       string `json:"consumer_name"`
		CourierEventID string `json:"courier_event_id,omitempty"`
		Source         string `json:"source,omitempty"`
	}
	all := []done{}
	var errs []error
	for _, l := range letters {
		if !slices.Contains(a.from, l.Status) {
			errs = append(errs, a.not(p, l))
			continue
		}
		if !a.dry {
			if err := do(l.Target()); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		all = append(all, done{l.EventID, l.Consumer, l.CourierEventID, l.Source})
		if !a.json {
			if _, err := fmt.Fprintf(p.Stdout, "%s: %s\n", cleanLine(l.String()), a.verb()); err != nil {
				errs = append(errs, err)
			}
		}
	}
	switch {
	case a.json:
		errs = append(errs, printJSON(p.Stdout, struct {
			Act         string `json:"act"`
			DryRun      bool   `json:"dry_run"`
			DeadLetters []done `json:"dead_letters"`
		}{a.name, a.dry, all}))
	case len(letters) == 0:
		_, err := fmt.Fprintln(p.Stdout, "No such dead letter is pending or reviewed.")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// not says why nothing can be done to a dead letter in its state, and what can.
func (a act) not(p *Program, l letter) error {
	instead := ""
	switch {
	case a.name == "reviewed" && l.Status == eventing.StatusReviewed:
		return fmt.Errorf("%s is reviewed already: replay, schedule or close it", l)
	case l.Status == eventing.StatusReplayed:
		instead = "; it is on its way to its consumer"
	case l.Resolution == eventing.Discarded && (a.name == "replayed" || a.name == "scheduled"):
		instead = "; what was discarded is not run again: send the event anew, with another id"
	case l.Resolution == eventing.Resolved && a.name == "replayed" && p.tool.finality == "":
		instead = "; its consumer has processed it: --force --consumer NAME runs it again"
	}
	return fmt.Errorf("%s is %s: it cannot be %s%s", l, l.state(), a.name, instead)
}

func (a act) verb() string {
	if a.dry {
		return "would be " + a.name
	}
	return a.name
}
