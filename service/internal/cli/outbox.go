package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

type outboxCmd struct {
	Stats   outboxStatsCmd   `cmd:"" help:"Count what is stored, by status."`
	Requeue outboxRequeueCmd `cmd:"" help:"Send again what was sent, for a broker that has lost it."`
}

func (outboxCmd) Help() string {
	return `Examples:

    ${program} outbox stats
    ${program} outbox requeue --since 2h --dry-run`
}

type outboxStatsCmd struct {
	output
}

func (outboxStatsCmd) Help() string {
	return `Examples:

    ${program} outbox stats
    ${program} outbox stats --json | jq .oldest_pending_age_seconds`
}

// Run counts.
func (c *outboxStatsCmd) Run(ctx context.Context, p *Program) error {
	return withDesk(ctx, p, func(d *desk) error {
		s, err := d.store.Events.Stats(ctx)
		if err != nil {
			return err
		}
		always(s.Outbox, "pending", "sent", "failed")
		always(s.Deliveries, string(eventing.StateRetrying), string(eventing.StateParked), string(eventing.StateDead))
		always(s.DeadLetters, statuses...)
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
		count := func(table string, by map[string]int64) {
			for _, status := range slices.Sorted(maps.Keys(by)) {
				rows = append(rows, []string{table, status, strconv.FormatInt(by[status], 10)})
			}
		}
		count("event_outbox", s.Outbox)
		count("processed_events", map[string]int64{"processed": s.Inbox})
		count("event_deliveries", s.Deliveries)
		count("dead_letter_consumers", s.DeadLetters)
		if err := printTable(p.Stdout, rows); err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Stdout, "\noldest pending: %s\noldest sent:    %s\n", since(s.OldestPending), since(s.OldestSent))
		return err
	})
}

// always makes the statuses that no row has zero, so that scripts find them.
func always(counts map[string]int64, statuses ...string) {
	for _, status := range statuses {
		counts[status] += 0
	}
}

// moment is a point in time, or how long ago it was.
type moment struct {
	time.Time

	text string // as it was given
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *moment) UnmarshalText(text []byte) (err error) {
	m.text = string(text)
	if d, is := span(m.text); is {
		m.Time = time.Now().Add(-d)
		return nil
	}
	if m.Time, err = date(m.text); err != nil {
		return fmt.Errorf("%q must look like 2h30m or 7d, meaning ago, or 2026-02-26, in UTC, or 2026-02-26T15:04:05Z", text)
	}
	return nil
}

// span reads a length of time: what [time.ParseDuration] does, or a number of days.
func span(text string) (time.Duration, bool) {
	const day, maxDays = 24 * time.Hour, 36_500
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 32)
		return time.Duration(min(n, maxDays)) * day, err == nil && n <= maxDays
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// date reads a point in time, or a day, meaning its beginning in UTC.
func date(text string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	return time.Parse(time.RFC3339, text)
}
