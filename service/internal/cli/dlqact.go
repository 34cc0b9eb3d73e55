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
	storeSetting
	which
	signed

	ID   string `arg:"" help:"The courier's event id, or the envelope's."`
	Note string `placeholder:"TEXT" help:"What was found; recorded."`
}

func (dlqReviewCmd) Help() string {
	return `Examples:

    gateway dlq review evt_141 --note "asked the courier on Monday"`
}

// Run marks a dead letter as reviewed.
func (c *dlqReviewCmd) Run(ctx context.Context, p *Program) error {
	if err := c.name(p, false); err != nil {
		return err
	}
	return withDesk(ctx, c.StoreURL, func(d *desk) error {
		l, err := d.one(ctx, c.ID, c.which, true)
		if err != nil {
			return err
		}
		return act{name: "reviewed", from: []eventing.ReviewStatus{eventing.StatusPending}, json: c.JSON}.on(p, []letter{l}, func(t eventing.Target) error {
			return d.letters.Review(ctx, t, c.By, c.Note)
		})
	})
}

type dlqReplayCmd struct {
	output
	storeSetting
	which
	signed

	IDs    []string `arg:"" optional:"" name:"id" help:"Couriers' event ids, or envelopes'."`
	Limit  uint     `placeholder:"N" help:"Instead of ids: the N oldest that are pending or reviewed."`
	Note   string   `placeholder:"TEXT" help:"Why; recorded."`
	DryRun bool     `help:"Only say what would be replayed."`
}

func (dlqReplayCmd) Help() string {
	return `The consumer gets the event again, with all its attempts; other consumers do not. If it succeeds, the dead letter closes as resolved; if it fails for good, it is pending again.

Examples:

    gateway dlq replay evt_141 --note "fixed in 1.4.2"
    gateway dlq replay --limit 500 --consumer shipment-projection --dry-run`
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
	case c.Limit > 0 && c.Source != "":
		return usage("--source goes with ids, not with --limit")
	}
	if err := c.name(p, c.DryRun); err != nil {
		return err
	}
	return withDesk(ctx, c.StoreURL, func(d *desk) error {
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
	storeSetting
	which
	signed

	IDs    []string `arg:"" name:"id" help:"Couriers' event ids, or envelopes'."`
	Reason string   `required:"" placeholder:"TEXT" help:"Why it is given up; recorded."`
	Yes    bool     `help:"Do not ask."`
	DryRun bool     `help:"Only say what would be closed."`
}

func (dlqCloseCmd) Help() string {
	return `The consumer will not handle the event any more, and what is parked behind it goes on without it. This cannot be undone.

Examples:

    gateway dlq close evt_141 --reason "test event" --dry-run
    gateway dlq close evt_141 --reason "test event" --yes`
}

// Run discards.
func (c *dlqCloseCmd) Run(ctx context.Context, p *Program) error {
	if strings.TrimSpace(c.Reason) == "" {
		return usage("--reason must say why")
	}
	if err := c.name(p, c.DryRun); err != nil {
		return err
	}
	return withDesk(ctx, c.StoreURL, func(d *desk) error {
		letters, err := d.all(ctx, c.IDs, c.which)
		if err != nil {
			return err
		}
		if !c.Yes && !c.DryRun {
			if err := confirm(p, letters); err != nil {
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
		if !slices.ContainsFunc(letters, func(k letter) bool { return k.target() == l.target() }) {
			letters = append(letters, l)
		}
	}
	return letters, nil
}

// confirm asks whoever is there; nobody's silence is no consent.
func confirm(p *Program, letters []letter) error {
	var b strings.Builder
	for _, l := range letters {
		fmt.Fprintf(&b, "  %s (%s, %d parked behind)\n", l, l.Status, l.ParkedBehind)
	}
	_, _ = fmt.Fprintf(p.Stderr, "This gives up for good:\n%s", clean(b.String()))
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
			errs = append(errs, fmt.Errorf("%s is %s: it cannot be %s", l, l.Status, a.name))
			continue
		}
		if !a.dry {
			if err := do(l.target()); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		all = append(all, done{l.EventID, l.Consumer, l.CourierEventID, l.Source})
		if !a.json {
			if _, err := fmt.Fprintf(p.Stdout, "%s: %s\n", clean(l.String()), a.verb()); err != nil {
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
		_, err := fmt.Fprintln(p.Stdout, "There is no such dead letter.")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a act) verb() string {
	if a.dry {
		return "would be " + a.name
	}
	return a.name
}
