package gateway

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

// findings are what an audit objects to.
type findings struct {
	lost    []string // accepted, without an effect
	doubled []string // with more than one
	foreign []string // with an effect, and never accepted
	other   []string
	effects int
}

// err is nil if there is nothing to object to.
func (f findings) err() error {
	var errs []error
	for _, part := range []struct {
		what string
		keys []string
	}{{"lost", f.lost}, {"done more than once", f.doubled}, {"done, and never sent", f.foreign}} {
		if n := len(part.keys); n > 0 {
			errs = append(errs, fmt.Errorf("%d events %s, such as %v", n, part.what, part.keys[:min(n, 5)]))
		}
	}
	for _, problem := range f.other {
		errs = append(errs, errors.New(problem))
	}
	return errors.Join(errs...)
}

// audit compares what couriers were told to be accepted with what has been done:
// each event once, nothing else, nothing left over.
func audit(ctx context.Context, db *sql.DB, accepted []string) (f findings, err error) {
	effects := map[string]int{}
	done, err := texts(ctx, db, `SELECT idempotency_key FROM shipment_events ORDER BY seq`)
	if err != nil {
		return f, err
	}
	for _, key := range done {
		if effects[key]++; effects[key] == 2 {
			f.doubled = append(f.doubled, key)
		}
	}
	f.effects = len(done)
	known := make(map[string]bool, len(accepted))
	for _, key := range accepted {
		known[key] = true
		if effects[key] == 0 {
			f.lost = append(f.lost, key)
		}
	}
	for key := range effects {
		if !known[key] {
			f.foreign = append(f.foreign, key)
		}
	}
	for _, check := range []struct {
		what, count string
		want        int
	}{
		{"ledger rows are processed", `SELECT count(*) FROM courier_ledger WHERE status = 'processed' AND outcome <> ''`, len(accepted)},
		{"ledger rows are not", `SELECT count(*) FROM courier_ledger WHERE status <> 'processed'`, 0},
		{"outbox rows are sent", `SELECT count(*) FROM event_outbox WHERE status = 'sent' AND consumer_name IS NULL`, len(accepted)},
		{"outbox rows are not", `SELECT count(*) FROM event_outbox WHERE status <> 'sent'`, 0},
		{"events are in the inbox", `SELECT count(*) FROM processed_events`, len(accepted)},
		{"deliveries are in trouble", `SELECT count(*) FROM event_deliveries`, 0},
		{"dead letters are there", `SELECT count(*) FROM dead_letter_consumers`, 0},
	} {
		var n int
		if err := db.QueryRowContext(ctx, check.count).Scan(&n); err != nil {
			return f, err
		}
		if n != check.want {
			f.other = append(f.other, fmt.Sprintf("%d %s, not %d", n, check.what, check.want))
		}
	}
	return f, nil
}

// auditEventually audits until there is nothing to object to, or nothing has been
// done for as long as the patience lasts, and returns the last findings.
func auditEventually(t *testing.T, db *sql.DB, accepted []string, patience time.Duration) (f findings) {
	t.Helper()
	giveUp := time.NewTimer(patience)
	defer giveUp.Stop()
	tick := time.NewTicker(100 * time.Millisecond) // an audit reads all there is
	defer tick.Stop()
	for {
		before := f.effects
		var err error
		if f, err = audit(t.Context(), db, accepted); err != nil {
			t.Fatal(err)
		}
		if f.err() == nil {
			return f
		}
		if f.effects > before {
			giveUp.Reset(patience)
		}
		select {
		case <-giveUp.C:
			return f
		case <-tick.C:
		}
	}
}

// impact counts the kills that ended a process which had processed events, and the
// events that were received before a kill and processed after it.
func impact(t *testing.T, db *sql.DB, kills []time.Time) (working, carriedOver int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT l.received_at, e.processed_at FROM courier_ledger l
		JOIN shipment_events e ON e.idempotency_key = l.idempotency_key`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	worked := make([]bool, len(kills)+1)
	before := func(at time.Time) int { // how many kills
		i, _ := slices.BinarySearchFunc(kills, at, time.Time.Compare)
		return i
	}
	for rows.Next() {
		var received, processed sqlstore.Timestamp
		if err := rows.Scan(&received, &processed); err != nil {
			t.Fatal(err)
		}
		life := before(processed.Time)
		worked[life] = true
		if before(received.Time) < life {
			carriedOver++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, w := range worked[:len(kills)] {
		if w {
			working++
		}
	}
	return working, carriedOver
}

// texts returns the only column of a query.
func texts(ctx context.Context, db *sql.DB, query string, args ...any) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		all = append(all, "")
		if err := rows.Scan(&all[len(all)-1]); err != nil {
			return nil, err
		}
	}
	return all, rows.Err()
}
