package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// report tells what is in the database.
type report struct {
	out  io.Writer
	read *sql.DB
}

func (r report) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, format+"\n", args...)
}

func (r report) step(title string) { r.say("\n== %s", title) }

func (r report) code(statement string) {
	r.say("\n    %s", strings.ReplaceAll(statement, "\n", "\n    "))
}

// showWork shows what each consumer has processed.
func (r report) showWork(ctx context.Context) error {
	return r.table(ctx, "consumer\tevents processed", `SELECT consumer_name, count(*) FROM processed_events
		GROUP BY consumer_name ORDER BY count(*) DESC, consumer_name`)
}

// showTenants shows what each tenant has to pay.
func (r report) showTenants(ctx context.Context) error {
	return r.table(ctx, "tenant\twindows\tsettled\tbill in cents", `SELECT w.tenant_id, count(*),
		(SELECT count(*) FROM settlements s WHERE s.tenant_id = w.tenant_id),
		(SELECT sum(cents) FROM bills b WHERE b.tenant_id = w.tenant_id)
		FROM windows w GROUP BY w.tenant_id ORDER BY w.tenant_id`)
}

// showDeadLetters shows what has failed for good.
func (r report) showDeadLetters(ctx context.Context) error {
	if err := r.table(ctx, "dead letters\topen\tresolved", `SELECT consumer_name, sum(CASE WHEN status <> 'closed' THEN 1 ELSE 0 END),
		sum(CASE WHEN resolution = 'resolved' THEN 1 ELSE 0 END) FROM dead_letter_consumers GROUP BY consumer_name`); err != nil {
		return err
	}
	ids, err := texts(ctx, r.read, openDeadLetters)
	if err != nil || len(ids) == 0 {
		return err
	}
	return r.table(ctx, "event\tattempts\treason\terror", `SELECT d.event_id, d.attempts, c.reason_code, d.error
		FROM dead_letter_events d JOIN dead_letter_consumers c ON c.event_id = d.event_id
		WHERE c.status <> 'closed' ORDER BY c.created_at, c.event_id LIMIT 12`)
}

// showOutbox shows what has become of the events. A replay is a row of its own; that of
// the event which died stays failed.
func (r report) showOutbox(ctx context.Context) error {
	return r.table(ctx, "outbox rows\tpending\tsent\tfailed", `SELECT event_type,
		sum(CASE WHEN status = 'pending' THEN 1 ELSE 0 END),
		sum(CASE WHEN status = 'sent' THEN 1 ELSE 0 END),
		sum(CASE WHEN status = 'failed' THEN 1 ELSE 0 END)
		FROM event_outbox GROUP BY event_type ORDER BY min(seq)`)
}

// table prints the result of a query under a head.
func (r report) table(ctx context.Context, head, query string) error {
	rows, err := r.read.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	var text strings.Builder
	text.WriteString("\n  " + head + "\n")
	cells := make([]sql.NullString, strings.Count(head, "\t")+1)
	into := make([]any, len(cells))
	for i := range cells {
		into[i] = &cells[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		separator := "  "
		for _, c := range cells {
			text.WriteString(separator + c.String)
			separator = "\t"
		}
		text.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		return err
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 3, ' ', 0)
	_, _ = io.WriteString(w, text.String())
	return w.Flush()
}

// showWaits tells how long it took from a window's end to its settlement.
func (r report) showWaits(ctx context.Context) error {
	all, err := waits(ctx, r.read)
	if err != nil || len(all) == 0 {
		return err
	}
	r.say("\nFrom a window's end to its settlement: half within %v, the slowest %v.",
		all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	return nil
}

// waits returns the times from the closing of windows to their settlements, the
// shortest first.
func waits(ctx context.Context, db *sql.DB) (all []time.Duration, err error) {
	rows, err := db.QueryContext(ctx, `SELECT w.closed_at, s.settled_at FROM windows w JOIN settlements s ON s.window_id = w.window_id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var closed, settled time.Time
		if err := rows.Scan(&closed, &settled); err != nil {
			return nil, err
		}
		all = append(all, settled.Sub(closed))
	}
	slices.Sort(all)
	return all, rows.Err()
}

// showChain shows the events of one window: one correlation ID, and each names its cause.
func (r report) showChain(ctx context.Context) error {
	payloads, err := texts(ctx, r.read, `SELECT payload FROM event_outbox WHERE event_type = 'SettlementCalculated' ORDER BY seq LIMIT 1`)
	if err != nil || len(payloads) == 0 {
		return err
	}
	e, err := eventing.DecodeEnvelope([]byte(payloads[0]))
	if err != nil {
		return err
	}
	r.say("\nOne window's events at %s/%s, the last first:", e.TenantID, e.StationID)
	for e.CausationID != "" {
		r.say("  %-22s %s   correlation %s   caused by %s", e.Type, short(e.ID), short(e.CorrelationID), short(e.CausationID))
		payloads, err = texts(ctx, r.read, `SELECT payload FROM event_outbox WHERE id = $1`, e.CausationID)
		if err != nil || len(payloads) == 0 { // pruned
			return err
		}
		if e, err = eventing.DecodeEnvelope([]byte(payloads[0])); err != nil {
			return err
		}
	}
	r.say("  %-22s %s   correlation %s   caused by the station", e.Type, short(e.ID), short(e.CorrelationID))
	return nil
}

// short is the end of an ID: two UUIDv7 of one moment begin alike.
func short(id string) string { return "…" + id[max(0, len(id)-8):] }
