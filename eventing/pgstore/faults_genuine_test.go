package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
)

// The server's own collisions, of transactions that are brought to meet.

func TestCollisions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pgx func(*testing.T, rig[pgx.Tx])
		sql func(*testing.T, rig[*sql.Tx])
	}{
		"a discard and a settlement take turns":   {takeTurns[pgx.Tx], takeTurns[*sql.Tx]},
		"a row has changed since the snapshot":    {changed[pgx.Tx], changed[*sql.Tx]},
		"a twin has succeeded since the snapshot": {overtaken[pgx.Tx], overtaken[*sql.Tx]},
		"holders compete for leases":              {competing[pgx.Tx], competing[*sql.Tx]},
		"an event dies while it is pruned":        {dying[pgx.Tx], dying[*sql.Tx]},
		"an event dies while its row is settled":  {settled[pgx.Tx], settled[*sql.Tx]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := map[string]string{"default_transaction_isolation": "serializable"}
			switch name {
			case "a discard and a settlement take turns", "an event dies while it is pruned", "an event dies while its row is settled":
				settings = nil
			}
			t.Run("pgx", func(t *testing.T) {
				t.Parallel()
				test.pgx(t, newRig(t, take(t), settings))
			})
			t.Run("sql", func(t *testing.T) {
				t.Parallel()
				test.sql(t, newSQLRig(t, take(t), settings))
			})
		})
	}
}

func (r rig[Tx]) work(t *testing.T) work[Tx] {
	t.Helper()
	return work[Tx]{T: t, db: r.open(), plain: r.plain}
}

// meet has f happen before the nth statement from now on.
func (r rig[Tx]) meet(nth int, f func()) {
	r.faulty.arm(kind{strike: func(r *faulty, _ *pgx.Conn, _ hit) {
		r.mu.Unlock() // others' statements go on
		defer r.mu.Lock()
		f()
	}}, nth)
}

// takeTurns has an operator discard a replay that the dispatcher has published, and is settling:
// both lock the dead letter first, so neither waits for what the other has.
func takeTurns[Tx any](t *testing.T, r rig[Tx]) {
	w := r.work(t)
	w.lease(eventing.DispatchScope)
	for nth := 1; nth <= 3; nth++ {
		id := fmt.Sprint("e", nth)
		target := eventing.Target{EventID: id}
		w.must(w.db.FailDispatch(w.background(), eventing.DispatchFailure{
			Row: w.append(row(id, ""))[0], Holder: "me", Reason: eventing.ReasonUnpublishable, Message: "too large", Now: noon, DeadLetterUntil: later,
		}))
		w.must(w.db.Replay(w.background(), target, eventing.AnyGeneration, act("replayed")))
		w.rows = w.claimed()

		discarded := make(chan error, 1)
		r.meet(r.begin+nth, func() {
			go func() { discarded <- w.db.Discard(w.background(), target, act("discarded")) }()
			w.await(`SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')
				OR EXISTS (SELECT 1 FROM dead_letter_consumers WHERE event_id = '` + id + `' AND status = 'closed')`)
		})
		n, err := w.db.Settle(r.faulty.context(w.background()), eventing.SettleRequest{Holder: "me", Now: noon, Rows: w.rows})
		discardErr := <-discarded
		if slices.Contains(r.faulty.met(), "40P01") {
			t.Fatalf("before statement %d of the settlement: a deadlock", nth)
		}
		letters, listErr := w.db.DeadLetters(w.background(), eventing.DeadLetterFilter{EventID: id, Limit: 10})
		w.must(listErr)
		w.must(err)
		switch {
		case n == 1 && errors.Is(discardErr, eventing.ErrState) && letters[0].Resolution == eventing.Resolved:
		case n == 0 && discardErr == nil && letters[0].Resolution == eventing.Discarded:
		default:
			t.Errorf("settled %d, discarded: %v, and the dead letter is %q; want one of the two", n, discardErr, letters[0].Resolution)
		}
	}
}

// await waits until a query is true.
func (w work[Tx]) await(query string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.background(), time.Minute)
	defer cancel()
	for yes := false; !yes; {
		if err := w.plain.QueryRow(ctx, query+` FROM pg_sleep(0.01)`).Scan(&yes); err != nil {
			w.Error(err)
			return
		}
	}
}

// changed has a row change that a transaction is about to delete.
func changed[Tx any](t *testing.T, r rig[Tx]) {
	w := r.work(t)
	d := delivery("billing", "e1", "")
	w.fail(eventing.StateRetrying, d)
	w.exec(`INSERT INTO processed_events (event_id, consumer_name) VALUES ('e1', 'billing')`)
	r.meet(r.begin+2, func() { w.exec(`UPDATE event_deliveries SET updated_at = now()`) })
	w.must(w.db.Forget(r.faulty.context(w.background()), eventing.Run{Delivery: d}, noon))
	if !slices.Contains(r.faulty.met(), "40001") {
		t.Errorf("there was no serialization failure: %v", r.faulty.met())
	}
	if stats, err := w.db.Stats(w.background()); err != nil || len(stats.Deliveries) != 0 {
		t.Errorf("deliveries %v, %v; want none", stats.Deliveries, err)
	}
}

// overtaken has a twin commit its success while a handler runs.
func overtaken[Tx any](t *testing.T, r rig[Tx]) {
	w := r.work(t)
	s := w.success(eventing.Run{Delivery: delivery("billing", "e1", "")})
	r.meet(r.begun+2, func() { w.must(w.db.Succeed(w.background(), s)) }) // the effect, and now the inbox
	err := w.db.Succeed(r.faulty.context(w.background()), s)
	if !errors.Is(err, eventing.ErrSerialization) {
		t.Errorf("got %v, want a serialization failure", err)
	}
	if err := w.db.Succeed(w.background(), s); !errors.Is(err, eventing.ErrConflict) {
		t.Errorf("once more: got %v, want a conflict", err)
	}
	if effects, err := w.db.Effects(w.background()); err != nil || len(effects) != 2 {
		t.Errorf("effects %v, %v; want that of the twin and of its end", effects, err)
	}
}

// competing has holders renew and take leases at once.
func competing[Tx any](t *testing.T, r rig[Tx]) {
	const rounds = 20
	w := r.work(t)
	var all sync.WaitGroup
	for _, holder := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			for range rounds {
				_, err := w.db.AcquireLeases(w.background(), leaseRequest("scope", holder))
				if err != nil && !errors.Is(err, eventing.ErrSerialization) {
					t.Errorf("%s: %v", holder, err)
				}
			}
		})
	}
	all.Wait()
	held := 0
	for _, holder := range []string{"a", "b", "c", "d"} {
		table, err := w.db.AcquireLeases(w.background(), leaseRequest("scope", holder))
		w.must(err)
		for _, l := range table.Held {
			if l.Token != 1 {
				t.Errorf("%s took over what had not run out: %+v", holder, l)
			}
		}
		held += len(table.Held)
	}
	if held != eventing.Partitions {
		t.Errorf("%d leases are held, want each one once", held)
	}
}

// dying has an event die at a consumer while its last closed dead letter is pruned.
func dying[Tx any](t *testing.T, r rig[Tx]) {
	w := r.work(t)
	w.fail(eventing.StateDead, delivery("billing", "e1", ""))
	w.must(w.db.Discard(w.background(), eventing.Target{EventID: "e1", Consumer: "billing"}, act("discarded")))
	f := failure(w.arrive(delivery("shipping", "e1", "")), eventing.StateDead)
	pruned, counts := make(chan error, 1), eventing.Pruned{}
	f.Finish = func(context.Context, any) error {
		go func() {
			var err error
			counts, err = w.db.Prune(w.background(), eventing.PruneRequest{Now: later.AddDate(1, 0, 0), SentBefore: noon, Limit: 10})
			pruned <- err
		}()
		w.await(`SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
		return nil
	}
	w.must(w.db.Fail(w.background(), f))
	w.must(<-pruned)
	letters, err := w.db.DeadLetters(w.background(), eventing.DeadLetterFilter{EventID: "e1", Limit: 10})
	w.must(err)
	if counts.DeadLetters != 1 || len(letters) != 1 || letters[0].Consumer != "shipping" {
		t.Errorf("pruned %+v, and there are %+v; want one pruned, and the new one", counts, letters)
	}
}

// settled has a retried event die at a consumer while a completed row is settled, and the other
// way round: whoever commits last, the row has failed.
func settled[Tx any](t *testing.T, r rig[Tx]) {
	const blocked = `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock') OR `
	w := r.work(t)
	w.lease(eventing.DispatchScope)
	for i := range 20 {
		nth, id := i/2+1, fmt.Sprint("e", i)
		rows := w.append(row(id, ""))
		d := delivery("billing", id, "")
		d.OutboxSeq = rows[0].Seq
		f := failure(w.arrive(d), eventing.StateDead)
		die := func(ctx context.Context) error { return w.db.Fail(ctx, f) }
		settle := func(ctx context.Context) error {
			_, err := w.db.Settle(ctx, eventing.SettleRequest{Holder: "me", Now: noon, Rows: rows, ByCompletion: true})
			return err
		}
		first, second, done := settle, die, `EXISTS (SELECT 1 FROM dead_letter_consumers WHERE event_id = '`+id+`')`
		if i%2 == 1 {
			first, second, done = die, settle, `EXISTS (SELECT 1 FROM event_outbox WHERE event_id = '`+id+`' AND status <> 'pending')`
		}
		other, met := make(chan error, 1), false
		r.meet(r.begin+nth, func() {
			met = true
			go func() { other <- second(w.background()) }()
			w.await(blocked + done)
		})
		w.must(first(r.faulty.context(w.background())))
		if r.faulty.disarm(); !met {
			continue // it has fewer statements
		}
		w.must(<-other)
		var status string
		w.must(w.plain.QueryRow(w.background(), `SELECT status FROM event_outbox WHERE event_id = $1`, id).Scan(&status))
		if status != "failed" {
			t.Errorf("round %d: before statement %d the other began, and the row is %s", i%2, nth, status)
		}
	}
}
