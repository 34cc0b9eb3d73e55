package pgstore_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// A conclusion that goes with COMMIT finds out as much as one that comes before it, however pgx talks to the server: then nothing
// is written, and the connection is as it was.
func TestConclusionWithCommit(t *testing.T) {
	t.Parallel()
	d := take(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			pool := otherPool(t, d, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 1, mode })
			w := work[pgx.Tx]{T: t, plain: d.pool}
			w.db.Store, w.db.InsertIn = pgstore.New(pool), insertEffect
			first := eventing.Run{Delivery: delivery("billing", "e1", "k")}
			first.Lease = leaseOf(first.Delivery)
			batch := func(leases ...eventing.Lease) eventing.BatchSuccess {
				return eventing.BatchSuccess{Consumer: "billing", EventIDs: []string{"e0", "e1"}, Leases: leases, Now: noon, InboxUntil: later, Effect: w.hookless(first).Effect}
			}
			retried := first
			retried.Found, retried.ClaimToken = eventing.StateRetrying, "mine"
			const (
				processed = `INSERT INTO processed_events (event_id, consumer_name) VALUES ('e1', 'billing')`
				retrying  = `INSERT INTO event_deliveries (consumer_name, event_id, event_type, partition, state, payload, claim_token)
					VALUES ('billing', 'e1', 'order.placed', 0, 'retrying', '{}', 'another''s')`
				leased = `UPDATE event_leases SET token = token + 1`
			)
			for name, test := range map[string]struct {
				meanwhile string
				succeed   func() error
				want      error
			}{
				"as found":                          {"", func() error { return w.db.Succeed(t.Context(), w.hookless(first)) }, nil},
				"processed elsewhere":               {processed, func() error { return w.db.Succeed(t.Context(), w.hookless(first)) }, eventing.ErrConflict},
				"failed elsewhere":                  {retrying, func() error { return w.db.Succeed(t.Context(), w.hookless(first)) }, eventing.ErrConflict},
				"claimed elsewhere":                 {retrying, func() error { return w.db.Succeed(t.Context(), w.hookless(retried)) }, eventing.ErrConflict},
				"the lease is another's":            {leased, func() error { return w.db.Succeed(t.Context(), w.hookless(first)) }, eventing.ErrLeaseLost},
				"a batch as found":                  {"", func() error { return w.db.SucceedAll(t.Context(), batch(*first.Lease)) }, nil},
				"one of a batch processed":          {processed, func() error { return w.db.SucceedAll(t.Context(), batch()) }, eventing.ErrConflict},
				"one of a batch failed":             {retrying, func() error { return w.db.SucceedAll(t.Context(), batch()) }, eventing.ErrConflict},
				"the lease of a batch is another's": {leased, func() error { return w.db.SucceedAll(t.Context(), batch(*first.Lease)) }, eventing.ErrLeaseLost},
			} {
				w.exec(empty)
				w.lease("consumer/billing")
				if test.meanwhile != "" {
					w.exec(test.meanwhile)
				}
				var before, after uint32
				w.must(pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&before))
				found := w.state()
				if err := test.succeed(); !errors.Is(err, test.want) {
					t.Errorf("%s: got %v, want %v", name, err, test.want)
				}
				if unchanged := slices.Equal(w.state(), found); unchanged != (test.want != nil) {
					t.Errorf("%s: nothing was written: %t", name, unchanged)
				}
				if w.must(pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&after)); after != before {
					t.Errorf("%s: the connection is another", name)
				}
			}
		})
	}
}

// A twin that has begun to conclude is waited for.
func TestConclusionWaitsForItsTwin(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(pgx.Tx) error{
		"which commits":    func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"which rolls back": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := take(t)
			w := work[pgx.Tx]{T: t, plain: d.pool}
			w.db.Store, w.db.InsertIn = pgstore.New(d.pool), insertEffect
			twin, err := d.pool.Begin(t.Context())
			w.must(err)
			defer func() { _ = twin.Rollback(w.background()) }()
			if _, err := twin.Exec(t.Context(), `INSERT INTO processed_events (event_id, consumer_name) VALUES ('e1', 'billing')`); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				ended <- w.db.Succeed(t.Context(), w.hookless(eventing.Run{Delivery: delivery("billing", "e1", "")}))
			}()
			w.await(`SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
			w.must(end(twin))
			if err := <-ended; errors.Is(err, eventing.ErrConflict) != (name == "which commits") || err != nil && !errors.Is(err, eventing.ErrConflict) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What of the conclusion itself fails is the store's failure, and no attempt of the handler's.
func TestConclusionThatFails(t *testing.T) {
	t.Parallel()
	d := take(t)
	w := work[pgx.Tx]{T: t, plain: d.pool}
	w.db.Store, w.db.InsertIn = pgstore.New(otherPool(t, d, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "50ms" })), insertEffect
	for name, lock := range map[string]string{
		"inbox":       `INSERT INTO processed_events (event_id, consumer_name) VALUES ('e1', 'billing')`,
		"dead letter": `SELECT FROM dead_letter_consumers FOR UPDATE`,
		"delivery":    `SELECT FROM event_deliveries FOR UPDATE`,
	} {
		w.exec(empty)
		run := w.arrive(w.replayed(delivery("billing", "e1", "")))
		found := w.state()
		other, err := d.pool.Begin(t.Context())
		w.must(err)
		_, err = other.Exec(t.Context(), lock)
		w.must(err)
		if err := w.db.Succeed(t.Context(), w.hookless(run)); sqlStateOf(err) != "55P03" || errors.Is(err, eventing.ErrBrokenTx) {
			t.Errorf("%s is locked: got %v", name, err)
		}
		w.must(other.Rollback(t.Context()))
		if !slices.Equal(w.state(), found) {
			t.Errorf("%s is locked: something was written", name)
		}
		if err := w.db.Succeed(t.Context(), w.hookless(run)); err != nil {
			t.Errorf("%s is free again: got %v", name, err)
		}
	}
}
