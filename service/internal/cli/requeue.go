package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/ledger"
)

type outboxRequeueCmd struct {
	output

	EventID   []string `name:"event-id" sep:"none" placeholder:"ID" help:"These events; may be repeated. ${event_id}"`
	Source    string   `courier:"" help:"With --event-id: they are this courier's. Default: any courier's, or envelopes'."`
	FromAudit string   `courier:"" placeholder:"FILE" help:"What is missing by the output of gateway audit --json; - for standard input."`
	Since     moment   `placeholder:"WHEN" help:"What was sent since then: 2h or 7d, meaning ago, a date, or RFC 3339."`
	Until     moment   `placeholder:"WHEN" help:"What was sent before then. Default: now."`
	DryRun    bool     `help:"Only count."`
}

func (outboxRequeueCmd) Help() string {
	return `Consumers recognise what they have processed: it is not processed twice. Sent rows are kept for a day, so it reaches no further.

Exit code: 3 if an event that was asked for cannot be sent again; the output says which, and why.

Examples:

    ${program} outbox requeue --since 2h --dry-run
    ${program} outbox requeue --since 2026-02-26T12:00:00Z --until 2026-02-26T12:30:00Z
    ${program} outbox requeue --event-id ${event}`
}

// Run requeues.
func (c *outboxRequeueCmd) Run(ctx context.Context, p *Program) error {
	byTime := !c.Since.IsZero() || !c.Until.IsZero()
	switch {
	case c.FromAudit != "" && (len(c.EventID) > 0 || byTime):
		return usage("--from-audit goes alone: the audit says which events")
	case len(c.EventID) == 0 && c.Since.IsZero() && c.FromAudit == "":
		return usage("say what to send again: --event-id ID or --since WHEN, or --from-audit FILE")
	case c.Source != "" && len(c.EventID) == 0:
		return usage("--source goes with --event-id")
	case !c.Until.IsZero() && !c.Until.After(c.Since.Time):
		return usage("--until must lie after --since")
	}
	return withDesk(ctx, p, func(d *desk) error {
		f := eventing.RequeueFilter{EventIDs: c.EventID, SentFrom: c.Since.Time, SentTo: c.Until.Time}
		called, err := d.names.Envelopes(ctx, c.EventID, c.Source)
		if err != nil {
			return err
		}
		for _, events := range called {
			for _, c := range events {
				f.EventIDs = append(f.EventIDs, c.EnvelopeID)
				d.given.add(c)
			}
		}
		if c.FromAudit != "" {
			audited, err := p.missing(c.FromAudit)
			if err != nil {
				return err
			}
			for _, a := range audited {
				f.EventIDs = append(f.EventIDs, a.EventID)
				d.given.add(ledger.Called{EnvelopeID: a.EventID, Name: ledger.Name{EventID: a.CourierEventID, Source: a.Source, ShipmentID: a.ShipmentID}})
			}
		}
		var r eventing.Requeued
		if c.FromAudit == "" || len(f.EventIDs) > 0 {
			if r, err = eventing.Requeue(ctx, d.store.Events, f, c.DryRun); err != nil {
				return err
			}
		}
		r.NotKept = slices.DeleteFunc(r.NotKept, func(id string) bool { return len(called[id]) > 0 }) // it is the courier's
		if err := c.print(ctx, p.Stdout, d, r); err != nil {
			return err
		}
		if n := len(r.NotKept) + len(r.Failed); n > 0 {
			return foundError{fmt.Errorf("%s cannot be sent again", plural(n, "event"))}
		}
		return nil
	})
}

// missing returns what an audit's output says is missing.
func (p *Program) missing(path string) (found []finding, err error) {
	in, err := p.open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	for lines := json.NewDecoder(in); ; {
		var line struct {
			finding
			Summary *eventing.AuditReport
		}
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil, errors.New("--from-audit: the summary, which an audit's output ends with, is not there: it was cut off, or is none; make it with: gateway audit --json")
		case err != nil:
			return nil, fmt.Errorf("--from-audit: not the output of gateway audit --json: %w", err)
		case line.Summary != nil:
			return found, nil
		case line.Standing == eventing.StandingMissing:
			found = append(found, line.finding)
		}
	}
}

func (c *outboxRequeueCmd) print(ctx context.Context, w io.Writer, d *desk, r eventing.Requeued) error {
	if c.JSON {
		return printJSON(w, struct {
			eventing.Requeued
			DryRun     bool       `json:"dry_run"`
			OldestSent *time.Time `json:"oldest_sent_at"`
		}{r, c.DryRun, known(r.OldestSent)})
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, c.outcome(r))
	for _, part := range []struct {
		ids  []string
		what string
	}{
		{r.NotKept, "not kept any more, or never there (the oldest sent event that is kept was sent at " + since(r.OldestSent) + ")"},
		{r.Failed, "dead, not sent; what can be done about it: " + d.tool.name + " dlq show ID"},
		{r.Pending, "pending: sent anyway"},
	} {
		if len(part.ids) == 0 {
			continue
		}
		names, err := d.called(ctx, part.ids[:min(len(part.ids), maxShown)])
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s:\n%s", plural(len(part.ids), "event"), part.what, indented(names))
		if more := len(part.ids) - len(names); more > 0 {
			fmt.Fprintf(&b, "  and %d more; --json lists all\n", more)
		}
	}
	_, err := b.WriteTo(w)
	return err
}

// called returns what people call the events of some envelopes: as the database has it, or else as was given.
func (d *desk) called(ctx context.Context, envelopes []string) ([]string, error) {
	called, err := d.names.Names(ctx, envelopes)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(envelopes)
	for i, id := range envelopes {
		n, ok := called[id]
		if !ok {
			n = d.given.name(id)
		}
		if n.EventID != "" {
			names[i] = n.EventID + " of " + n.Source
		}
	}
	return names, nil
}

func (c *outboxRequeueCmd) outcome(r eventing.Requeued) string {
	switch {
	case r.Rows == 0 && c.FromAudit != "" && len(r.NotKept)+len(r.Failed)+len(r.Pending) == 0:
		return "Nothing is missing by that audit."
	case r.Rows == 0 && r.OldestSent.IsZero():
		return "Nothing matches: no sent event is kept."
	case r.Rows == 0:
		return "Nothing matches: the oldest sent event that is kept was sent at " + since(r.OldestSent) + "."
	case c.DryRun:
		return plural(r.Rows, "event") + " would be sent again."
	}
	return plural(r.Rows, "event") + " will be sent again."
}
