package pgstore_test

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func deadLetterOperations[Tx any]() []operation[Tx] {
	died := eventing.Target{EventID: "e1", Consumer: "ledger"}
	dead := func(w work[Tx]) {
		w.lease("consumer/ledger")
		w.fail(eventing.StateDead, delivery("ledger", "e1", "K"))
		w.arrive(delivery("ledger", "e2", "K")) // parked behind it
	}
	onItsWay := func(w work[Tx]) {
		dead(w)
		w.must(w.db.Replay(w.background(), died, eventing.AnyGeneration, act("replayed")))
	}
	review := func(ctx context.Context, w work[Tx]) error { return w.db.Review(ctx, died, act("reviewed")) }
	return []operation[Tx]{
		{name: "list dead letters", prepare: dead, do: func(ctx context.Context, w work[Tx]) (any, error) {
			return w.db.DeadLetters(ctx, eventing.DeadLetterFilter{Limit: 10, OpenOnly: true})
		}},
		{
			name: "review", prepare: dead, repeats: true, done: says(eventing.ErrState),
			do: func(ctx context.Context, w work[Tx]) (any, error) { return nil, review(ctx, w) },
		},
		{
			name: "review what is replayed", prepare: onItsWay, repeats: true,
			do: func(ctx context.Context, w work[Tx]) (any, error) { return refused(review(ctx, w), eventing.ErrState) },
		},
		{
			name: "replay", prepare: dead, repeats: true, done: says(eventing.ErrState),
			do: func(ctx context.Context, w work[Tx]) (any, error) {
				return nil, w.db.Replay(ctx, died, eventing.AnyGeneration, act("replayed"))
			},
		},
		{
			name: "discard a replay", prepare: onItsWay, repeats: true, done: says(eventing.ErrState),
			do: func(ctx context.Context, w work[Tx]) (any, error) {
				return nil, w.db.Discard(ctx, died, act("discarded"))
			},
		},
	}
}

func adminOperations[Tx any]() []operation[Tx] {
	sent := func(w work[Tx]) {
		w.lease(eventing.DispatchScope)
		_, err := w.db.Settle(w.background(), eventing.SettleRequest{Holder: "me", Now: noon, Rows: w.append(row("e1", "K"), row("e2", ""))})
		w.must(err)
	}
	ids := []string{"e1", "e2"}
	requeue := func(ctx context.Context, w work[Tx]) (any, error) {
		rows, err := w.db.AuditEvents(w.background(), ids)
		w.must(err)
		return w.db.Requeue(ctx, []int64{rows[0].Seq, rows[1].Seq})
	}
	return []operation[Tx]{
		{name: "count", prepare: sent, do: func(ctx context.Context, w work[Tx]) (any, error) { return w.db.Stats(ctx) }},
		{name: "look at the backlog", prepare: sent, do: func(ctx context.Context, w work[Tx]) (any, error) { return w.db.Backlog(ctx, noon) }},
		{name: "requeue", prepare: sent, repeats: true, do: requeue},
		{name: "audit a page", prepare: sent, do: func(ctx context.Context, w work[Tx]) (any, error) { return w.db.AuditPage(ctx, 0, 10) }},
		{name: "audit events", prepare: sent, do: func(ctx context.Context, w work[Tx]) (any, error) { return w.db.AuditEvents(ctx, ids) }},
		{name: "audit deliveries", prepare: sent, do: func(ctx context.Context, w work[Tx]) (any, error) { return w.db.AuditDeliveries(ctx, ids) }},
		{name: "how far back an audit reaches", prepare: sent, do: func(ctx context.Context, w work[Tx]) (any, error) { return w.db.AuditReach(ctx, noon) }},
		{
			name: "prune", repeats: true, several: true,
			prepare: func(w work[Tx]) { // something of each table, and a dead letter that nobody looked at
				sent(w)
				w.must(w.db.Succeed(w.background(), w.success(eventing.Run{Delivery: delivery("billing", "e3", "")})))
				w.fail(eventing.StateDead, delivery("billing", "e4", ""))
				w.must(w.db.Quarantine(w.background(), failure(eventing.Run{Delivery: delivery("billing", "e5", "")}, eventing.StateDead)))
				w.must(w.db.Discard(w.background(), eventing.Target{EventID: "e5", Consumer: "billing"}, act("discarded")))
			},
			do: func(ctx context.Context, w work[Tx]) (any, error) {
				now := later.Add(eventing.ActRetention)
				return w.db.Prune(ctx, eventing.PruneRequest{Now: now, SentBefore: now, Limit: 100})
			},
		},
		{name: "listen", prepare: nothing[Tx], do: func(ctx context.Context, w work[Tx]) (any, error) {
			l, ok := w.db.Store.(eventing.Listener)
			if !ok {
				w.Fatalf("%T does not listen", w.db.Store)
			}
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return nil, l.Listen(ctx, cancel)
		}},
	}
}
