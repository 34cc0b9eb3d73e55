package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// What dispatches and consumes is planned once for a connection, after the five times that the server always plans
// (https://www.postgresql.org/docs/current/sql-prepare.html), however few events are in hand: to plan takes longer than to run.
func TestPlannedOnce(t *testing.T) {
	t.Parallel()
	d := take(t)
	pool := otherPool(t, d, func(c *pgxpool.Config) { c.MaxConns = 1 })
	w := work[pgx.Tx]{T: t, plain: d.pool}
	w.db.Store, w.db.InsertIn = pgstore.New(pool), insertEffect
	w.lease(eventing.DispatchScope)
	w.lease("consumer/billing")
	for i := range 12 {
		rows := w.append(row(fmt.Sprint("e", i), "k"), row(fmt.Sprint("f", i), ""))
		_, err := w.db.Settle(t.Context(), eventing.SettleRequest{Holder: "me", Now: noon, Rows: rows, ByCompletion: true})
		w.must(err)
		for _, key := range []string{"", "k"} {
			first, second := delivery("billing", fmt.Sprint("b", i, key), key), delivery("billing", fmt.Sprint("c", i, key), key)
			untouched, err := w.db.Untouched(t.Context(), []eventing.Delivery{first, second})
			w.must(err)
			if !untouched[0] || !untouched[1] {
				t.Fatal("a new delivery is known")
			}
			s := eventing.BatchSuccess{
				Consumer: "billing", EventIDs: []string{first.EventID, second.EventID}, Now: noon, InboxUntil: later,
				Effect: func(context.Context, any) error { return nil },
			}
			if lease := leaseOf(first); lease != nil {
				s.Leases = []eventing.Lease{*lease}
			}
			w.must(w.db.SucceedAll(t.Context(), s))
			w.must(w.db.Succeed(t.Context(), w.hookless(w.arrive(delivery("billing", fmt.Sprint("d", i, key), key)))))
		}
	}
	found, err := pool.Query(t.Context(), `SELECT custom_plans || ' times: ' || statement FROM pg_prepared_statements WHERE custom_plans > 5`)
	w.must(err)
	again, err := pgx.CollectRows(found, pgx.RowTo[string])
	w.must(err)
	for _, statement := range again {
		t.Errorf("planned %s", statement)
	}
	var once int
	w.must(pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements WHERE generic_plans > 5`).Scan(&once))
	if once < 8 {
		t.Errorf("%d statements were run from a plan made once: too few to be all that this test is about", once)
	}
}

// A batch that is pruned is found once, and reads no other row, however many are kept.
func TestPrunesByPlace(t *testing.T) {
	t.Parallel()
	d := take(t)
	pool := otherPool(t, d, func(c *pgxpool.Config) { c.MaxConns = 1 })
	w := work[pgx.Tx]{T: t, plain: d.pool}
	w.exec(`
INSERT INTO processed_events (event_id, consumer_name, expires_at) SELECT 'e' || n, 'c', CASE WHEN n < 500 THEN CAST('2026-01-01' AS timestamptz) END FROM generate_series(1, 5000) AS n;
INSERT INTO event_outbox (id, event_id, event_type, payload, status, sent_at) SELECT 's' || n, 's' || n, 't', '{}', 'sent', CAST('2026-01-01' AS timestamptz) FROM generate_series(1, 250) AS n`)
	store := pgstore.New(pool)
	var pruned eventing.Pruned
	for range 4 {
		n, err := store.Prune(t.Context(), eventing.PruneRequest{Now: noon, SentBefore: noon, Limit: 200})
		w.must(err)
		if n.Outbox == 200 && n.Inbox > 0 {
			t.Error("the inbox was looked at before the outbox, which holds its rows, was done")
		}
		pruned.Outbox, pruned.Inbox = pruned.Outbox+n.Outbox, pruned.Inbox+n.Inbox
	}
	if pruned.Outbox != 250 || pruned.Inbox != 499 {
		t.Errorf("pruned %+v", pruned)
	}
	found, err := pool.Query(t.Context(), `SELECT name, substring(statement FROM 'DELETE FROM (\w+)') AS "table" FROM pg_prepared_statements WHERE statement LIKE 'DELETE FROM %$2%'`)
	w.must(err)
	deletes, err := pgx.CollectRows(found, pgx.RowToStructByPos[struct{ Name, Table string }])
	w.must(err)
	if len(deletes) != 3 {
		t.Errorf("statements: %v", deletes)
	}
	_, err = pool.Exec(t.Context(), `SET enable_seqscan = off`) // as in the store's own transactions
	w.must(err)
	for _, s := range deletes {
		found, err := pool.Query(t.Context(), `EXPLAIN EXECUTE `+pgx.Identifier{s.Name}.Sanitize()+`(NULL, NULL)`)
		w.must(err)
		plan, err := pgx.CollectRows(found, pgx.RowTo[string])
		w.must(err)
		if text := strings.Join(plan, "\n"); !strings.Contains(text, "Tid Scan on "+s.Table) {
			t.Errorf("%s:\n%s", s.Table, text)
		}
	}
}
