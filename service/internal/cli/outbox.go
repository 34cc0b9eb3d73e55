package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

type outboxCmd struct {
	Stats   outboxStatsCmd   `cmd:"" help:"Count what is stored, by status."`
	Requeue outboxRequeueCmd `cmd:"" help:"Send again what was sent, for a broker that has lost it."`
}

func (outboxCmd) Help() string {
	return `Examples:

    gateway outbox stats
    gateway outbox requeue --since 2h --dry-run`
}

type outboxStatsCmd struct {
	output
	storeSetting
}

func (outboxStatsCmd) Help() string {
	return `Examples:

    gateway outbox stats
    gateway outbox stats --json | jq .oldest_pending_age_seconds`
}

// Run counts.
func (c *outboxStatsCmd) Run(ctx context.Context, p *Program) error {
	return withDesk(ctx, c.StoreURL, func(d *desk) error {
		s, err := d.store.Events.Stats(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			out := struct {
				eventing.Stats
				OldestPending *time.Time `json:"oldest_pending_at"`
				PendingAge    *float64   `json:"oldest_pending_age_seconds"`
				OldestSent    *time.Time `json:"oldest_sent_at"`
			}{Stats: s, OldestPending: known(s.OldestPending), OldestSent: known(s.OldestSent)}
			if out.OldestPending != nil {
				seconds := max(time.Since(s.OldestPending).Seconds(), 0)
				out.PendingAge = &seconds
			}
			return printJSON(p.Stdout, out)
		}
		rows := [][]string{{"TABLE", "STATUS", "ROWS"}}
		count := func(table string, by map[string]int64, always ...string) {
			for _, status := range always {
				by[status] += 0
			}
			for _, status := range slices.Sorted(maps.Keys(by)) {
				rows = append(rows, []string{table, status, strconv.FormatInt(by[status], 10)})
			}
		}
		count("event_outbox", s.Outbox, "pending", "sent", "failed")
		count("processed_events", map[string]int64{"processed": s.Inbox})
		count("event_deliveries", s.Deliveries, string(eventing.StateRetrying), string(eventing.StateParked), string(eventing.StateDead))
		count("dead_letter_consumers", s.DeadLetters, string(eventing.StatusPending), string(eventing.StatusReviewed),
			string(eventing.StatusReplayed), string(eventing.StatusClosed))
		if err := printTable(p.Stdout, rows); err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Stdout, "\noldest pending: %s\noldest sent:    %s\n", since(s.OldestPending), since(s.OldestSent))
		return err
	})
}

// moment is a point in time, or how long ago it was.
type moment struct{ time.Time }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *moment) UnmarshalText(text []byte) (err error) {
	if d, err := time.ParseDuration(string(text)); err == nil && d >= 0 {
		m.Time = time.Now().Add(-d)
		return nil
	}
	if m.Time, err = time.Parse(time.RFC3339, string(text)); err != nil {
		return fmt.Errorf("%q must look like 2h30m, meaning ago, or 2026-02-26T15:04:05Z", text)
	}
	return nil
}

type outboxRequeueCmd struct {
	output
	storeSetting

	EventID []string `name:"event-id" sep:"none" placeholder:"ID" help:"These events, by the courier's id or the envelope's; may be repeated."`
	Since   moment   `placeholder:"WHEN" help:"What was sent since then: 2h, meaning ago, or RFC 3339."`
	Until   moment   `placeholder:"WHEN" help:"What was sent before then. Default: now."`
	DryRun  bool     `help:"Only count."`
}

func (outboxRequeueCmd) Help() string {
	return `Consumers recognise what they have processed: it is not processed twice. Sent rows are kept for a day.

Examples:

    gateway outbox requeue --since 2h --dry-run
    gateway outbox requeue --since 2026-02-26T12:00:00Z --until 2026-02-26T12:30:00Z
    gateway outbox requeue --event-id evt_124 --event-id evt_125`
}

// Run requeues.
func (c *outboxRequeueCmd) Run(ctx context.Context, p *Program) error {
	switch {
	case len(c.EventID) == 0 && c.Since.IsZero():
		return usage("say what to send again: --event-id ID or --since WHEN")
	case !c.Until.IsZero() && !c.Until.After(c.Since.Time):
		return usage("--until must lie after --since")
	}
	return withDesk(ctx, c.StoreURL, func(d *desk) error {
		f := eventing.RequeueFilter{SentFrom: c.Since.Time, SentTo: c.Until.Time}
		for _, id := range c.EventID {
			envelopes, err := d.envelopes(ctx, id)
			if err != nil {
				return err
			}
			f.EventIDs = append(f.EventIDs, envelopes...)
		}
		n, err := eventing.Requeue(ctx, d.store.Events, f, c.DryRun)
		if err != nil {
			return err
		}
		s, err := d.store.Events.Stats(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(p.Stdout, struct {
				Requeued   int        `json:"requeued"`
				DryRun     bool       `json:"dry_run"`
				OldestSent *time.Time `json:"oldest_sent_at"`
			}{n, c.DryRun, known(s.OldestSent)})
		}
		_, err = fmt.Fprintln(p.Stdout, c.outcome(n, s.OldestSent))
		return err
	})
}

func (c *outboxRequeueCmd) outcome(n int, oldest time.Time) string {
	switch {
	case n == 0 && oldest.IsZero():
		return "Nothing matches: no sent event is kept."
	case n == 0:
		return "Nothing matches: the oldest sent event that is kept was sent at " + since(oldest) + "."
	case c.DryRun:
		return plural(n, "event") + " would be sent again."
	}
	return plural(n, "event") + " will be sent again."
}
