package pgstore_test

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// operation is one call of a store, from a state that is prepared for it.
type operation[Tx any] struct {
	name    string
	prepare func(w work[Tx])
	// do returns what the operation answers; refusals that are right are answers.
	do func(ctx context.Context, w work[Tx]) (answer any, err error)
	// repeats: the store itself does it again after a collision. Else the caller does,
	// as there is something of his in the transaction.
	repeats bool
	// insists: it goes on until it has succeeded.
	insists bool
	// several: it is of several transactions, some of which may have happened.
	several bool
	// done is what a second call may say if the first one has happened.
	done func(error) bool
}

func nothing[Tx any](work[Tx]) {}

func says(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// exists: the rows are there already, with the IDs that the caller chose.
func exists(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && state.SQLState() == "23505"
}

// refused makes an error an answer.
func refused(err, want error) (any, error) {
	switch {
	case err == nil:
		return "not refused", nil
	case errors.Is(err, want):
		return want.Error(), nil
	}
	return nil, err
}

var errOwn = errors.New("the caller's own")

func operations[Tx any]() []operation[Tx] {
	var all []operation[Tx]
	for _, some := range [][]operation[Tx]{
		outboxOperations[Tx](), leaseOperations[Tx](), dispatchOperations[Tx](), adoptOperations[Tx](), arriveOperations[Tx](),
		concludeOperations[Tx](), redeliverOperations[Tx](), deadLetterOperations[Tx](), adminOperations[Tx](), engineOperations[Tx](),
	} {
		all = append(all, some...)
	}
	return all
}

func outboxOperations[Tx any]() []operation[Tx] {
	appending := func(keys []string, rows ...eventing.OutboxRow) func(context.Context, work[Tx]) (any, error) {
		return func(ctx context.Context, w work[Tx]) (any, error) {
			return nil, w.db.InTx(ctx, func(tx Tx) error {
				if err := w.db.Effect(ctx, tx, "producer", "e1"); err != nil {
					return err
				}
				if keys != nil {
					if err := w.db.LockKeys(ctx, tx, keys); err != nil {
						return err
					}
				}
				return w.db.AppendRows(ctx, tx, rows)
			})
		}
	}
	return []operation[Tx]{
		{name: "append one", prepare: nothing[Tx], do: appending(nil, row("e1", "")), done: exists},
		{name: "append many, keys locked", prepare: nothing[Tx], do: appending([]string{"K", "L"}, row("e1", "K"), row("e2", "L"), row("e3", "")), done: exists},
		{name: "append alone", prepare: nothing[Tx], do: func(ctx context.Context, w work[Tx]) (any, error) {
			return nil, w.db.InTx(ctx, func(tx Tx) error { return w.db.AppendRows(ctx, tx, []eventing.OutboxRow{row("e1", "")}) })
		}, done: exists},
		{name: "append, then write", prepare: nothing[Tx], do: func(ctx context.Context, w work[Tx]) (any, error) {
			return nil, w.db.InTx(ctx, func(tx Tx) error { return appendAndWrite(ctx, w, tx) })
		}, done: exists},
		{name: "append and fail", prepare: nothing[Tx], do: func(ctx context.Context, w work[Tx]) (any, error) {
			err := w.db.InTx(ctx, func(tx Tx) error {
				if err := appendAndWrite(ctx, w, tx); err != nil {
					return err
				}
				return errOwn
			})
			return refused(err, errOwn)
		}},
	}
}

func appendAndWrite[Tx any](ctx context.Context, w work[Tx], tx Tx) error {
	if err := w.db.AppendRows(ctx, tx, []eventing.OutboxRow{row("e1", "")}); err != nil {
		return err
	}
	return w.db.Effect(ctx, tx, "producer", "e1")
}

func leaseOperations[Tx any]() []operation[Tx] {
	acquire := func(ctx context.Context, w work[Tx]) (any, error) {
		r := leaseRequest(eventing.DispatchScope, "me")
		r.Now, r.Until = later, later.Add(time.Minute)
		return w.db.AcquireLeases(ctx, r)
	}
	return []operation[Tx]{
		{name: "acquire leases", prepare: nothing[Tx], repeats: true, do: acquire},
		{name: "take leases over", repeats: true, do: acquire, prepare: func(w work[Tx]) {
			_, err := w.db.AcquireLeases(w.background(), leaseRequest(eventing.DispatchScope, "other"))
			w.must(err)
		}},
		{
			name: "release some leases", repeats: true, prepare: func(w work[Tx]) { w.lease(eventing.DispatchScope) },
			do: func(ctx context.Context, w work[Tx]) (any, error) {
				return nil, w.db.ReleaseLeases(ctx, eventing.DispatchScope, "me", []int{1, 2})
			},
		},
		{
			name: "release all leases", repeats: true, prepare: func(w work[Tx]) { w.lease(eventing.DispatchScope) },
			do: func(ctx context.Context, w work[Tx]) (any, error) {
				return nil, w.db.ReleaseLeases(ctx, eventing.DispatchScope, "me", nil)
			},
		},
	}
}

func dispatchOperations[Tx any]() []operation[Tx] {
	settle := func(byCompletion, remove bool) func(context.Context, work[Tx]) (any, error) {
		return func(ctx context.Context, w work[Tx]) (any, error) {
			return w.db.Settle(ctx, eventing.SettleRequest{
				Holder: "me", Now: noon, Rows: w.rows, ByCompletion: byCompletion, Delete: remove,
			})
		}
	}
	sent := func(w work[Tx]) { // e2 has died at a consumer meanwhile
		w.lease(eventing.DispatchScope)
		w.append(row("e1", "K"), row("e2", ""), row("e3", ""))
		w.fail(eventing.StateDead, delivery("billing", "e2", ""))
	}
	critical := func(w work[Tx]) {
		w.lease(eventing.DispatchScope)
		first := row("e1", "K")
		first.Lane = eventing.Critical
		w.append(first, row("e2", "K"))
		w.must(w.db.InsertByHand(w.background(), "h1", "h1", "order.placed", envelope("h1", "")))
		w.exec(`UPDATE event_outbox SET created_at = '2026-02-26' WHERE id = 'h1'`)
	}
	unpublishable := func(rows []eventing.OutboxRow) eventing.DispatchFailure {
		return eventing.DispatchFailure{
			Row: rows[0], Holder: "me", Reason: eventing.ReasonUnpublishable, Message: "too large", HoldKey: true, Now: noon, DeadLetterUntil: later,
		}
	}
	failing := func(ctx context.Context, w work[Tx]) (any, error) {
		return nil, w.db.FailDispatch(ctx, unpublishable(w.rows))
	}
	failed := func(w work[Tx]) {
		w.lease(eventing.DispatchScope)
		w.must(w.db.FailDispatch(w.background(), unpublishable(w.append(row("e1", "K"), row("e2", "K")))))
		w.must(w.db.Replay(w.background(), eventing.Target{EventID: "e1"}, eventing.AnyGeneration, act("replayed")))
	}
	return []operation[Tx]{
		{name: "claim", prepare: critical, do: func(ctx context.Context, w work[Tx]) (any, error) { return w.db.Claim(ctx, claimAll()) }},
		{name: "settle", prepare: sent, repeats: true, do: settle(false, false)},
		{name: "settle by deleting", prepare: sent, repeats: true, do: settle(false, true)},
		{name: "settle by completion", prepare: sent, repeats: true, do: settle(true, false)},
		{name: "settle by completion and deleting", prepare: sent, repeats: true, do: settle(true, true)},
		{name: "settle the replay of what was not published", prepare: failed, repeats: true, do: settle(false, false)},
		{name: "expedite", prepare: critical, repeats: true, do: func(ctx context.Context, w work[Tx]) (any, error) {
			return nil, w.db.Expedite(ctx, eventing.SettleRequest{Holder: "me", Now: noon, Rows: w.rows[:1]})
		}},
		{name: "fail what is not published", repeats: true, do: failing, prepare: func(w work[Tx]) {
			w.lease(eventing.DispatchScope)
			w.append(row("e1", "K"), row("e2", "K"))
		}},
		{name: "fail it again", prepare: failed, repeats: true, do: failing},
	}
}

func adoptOperations[Tx any]() []operation[Tx] {
	adopt := func(ctx context.Context, w work[Tx]) (any, error) {
		return w.db.Adopt(ctx, eventing.AdoptRequest{Now: noon, Limit: 10, DeadLetterUntil: later})
	}
	byHand := func(payload string, ids ...string) func(work[Tx]) {
		return func(w work[Tx]) {
			for _, id := range ids {
				body := []byte(payload)
				if payload == "" {
					body = envelope(id, "")
				}
				w.must(w.db.InsertByHand(w.background(), id, id, "order.placed", body))
			}
		}
	}
	replay := func(w work[Tx]) {
		n, err := w.db.ReplayBySQL(w.background(), "e1")
		if n != 1 {
			w.Errorf("%d rows inserted, not one", n)
		}
		w.must(err)
	}
	return []operation[Tx]{
		{name: "adopt a new event", prepare: byHand("", "h1"), repeats: true, do: adopt},
		{name: "adopt what is no envelope", prepare: byHand("nonsense", "h1"), repeats: true, do: adopt},
		{name: "adopt several", repeats: true, several: true, do: adopt, prepare: func(w work[Tx]) {
			byHand("", "h1", "h2")(w)
			byHand("nonsense", "h3")(w)
		}},
		{name: "adopt a replay", repeats: true, do: adopt, prepare: func(w work[Tx]) {
			w.fail(eventing.StateDead, delivery("billing", "e1", ""), delivery("mail", "e1", ""))
			replay(w)
		}},
		{name: "adopt a replay of what retries", repeats: true, do: adopt, prepare: func(w work[Tx]) {
			w.fail(eventing.StateRetrying, w.replayed(delivery("billing", "e1", "")))
			replay(w)
		}},
		{name: "adopt a replay of what is closed", repeats: true, do: adopt, prepare: func(w work[Tx]) {
			w.fail(eventing.StateDead, delivery("billing", "e1", ""))
			w.must(w.db.Discard(w.background(), eventing.Target{EventID: "e1", Consumer: "billing"}, act("discarded")))
			replay(w)
		}},
	}
}
