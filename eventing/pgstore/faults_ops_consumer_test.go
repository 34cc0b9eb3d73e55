package pgstore_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

func arriveOperations[Tx any]() []operation[Tx] {
	type arrived struct {
		Decision eventing.Decision
		Run      eventing.Run
	}
	arrive := func(d eventing.Delivery) func(context.Context, work[Tx]) (any, error) {
		return func(ctx context.Context, w work[Tx]) (any, error) {
			decision, run, err := w.db.Arrive(ctx, d, leaseOf(d), noon)
			return arrived{decision, run}, err
		}
	}
	outOfTurn := delivery("ledger", "e2", "K")
	outOfTurn.Generation, outOfTurn.OutboxSeq = 1, 2
	return []operation[Tx]{
		{name: "arrive", prepare: nothing[Tx], do: arrive(delivery("billing", "e1", ""))},
		{name: "arrive and be parked", repeats: true, do: arrive(delivery("ledger", "e2", "K")), prepare: func(w work[Tx]) {
			w.lease("consumer/ledger")
			w.fail(eventing.StateDead, delivery("ledger", "e1", "K"))
		}},
		{name: "arrive out of turn", repeats: true, do: arrive(outOfTurn), prepare: func(w work[Tx]) {
			w.lease("consumer/ledger")
			first, second := w.arrive(delivery("ledger", "e1", "K")), w.arrive(delivery("ledger", "e2", "K"))
			w.must(w.db.Fail(w.background(), failure(first, eventing.StateDead)))
			w.must(w.db.Fail(w.background(), failure(second, eventing.StateDead)))
			w.must(w.db.Replay(w.background(), eventing.Target{EventID: "e2", Consumer: "ledger"}, eventing.AnyGeneration, act("replayed")))
		}},
	}
}

// A run is as it was read before: it is what its worker knows.
func concludeOperations[Tx any]() []operation[Tx] {
	fresh := func(d eventing.Delivery) eventing.Run { return eventing.Run{Delivery: d, Lease: leaseOf(d)} }
	again := func(d eventing.Delivery, found eventing.State) eventing.Run {
		d.Generation, d.OutboxSeq = 1, 2
		return eventing.Run{
			Delivery: d, Lease: leaseOf(d), Found: found, Attempts: 1, PriorAttempts: 1,
			History: []eventing.Attempt{{Attempt: 1, At: noon, Outcome: "failed", ErrorCode: eventing.ReasonRejected, ErrorMessage: "no"}},
		}
	}
	succeed := func(r eventing.Run) func(context.Context, work[Tx]) (any, error) {
		return func(ctx context.Context, w work[Tx]) (any, error) { return nil, w.db.Succeed(ctx, w.success(r)) }
	}
	hookless := func(r eventing.Run) func(context.Context, work[Tx]) (any, error) { // it goes with the commit then
		return func(ctx context.Context, w work[Tx]) (any, error) { return nil, w.db.Succeed(ctx, w.hookless(r)) }
	}
	fail := func(r eventing.Run, state eventing.State) func(context.Context, work[Tx]) (any, error) {
		return func(ctx context.Context, w work[Tx]) (any, error) {
			f := failure(r, state)
			f.Finish = w.success(r).Finish
			return nil, w.db.Fail(ctx, f)
		}
	}
	plain, keyed := delivery("billing", "e1", ""), delivery("ledger", "e1", "K")
	id, payload := eventing.Undecodable([]byte("nonsense"))
	garbage := eventing.Run{Delivery: eventing.Delivery{Consumer: "billing", EventID: id, Payload: payload}}
	quarantine := func(ctx context.Context, w work[Tx]) (any, error) {
		return nil, w.db.Quarantine(ctx, failure(garbage, eventing.StateDead))
	}
	settled := func(w work[Tx]) { // the row that the delivery is from
		w.lease(eventing.DispatchScope)
		_, err := w.db.Settle(w.background(), eventing.SettleRequest{Holder: "me", Now: noon, Rows: w.append(row("e1", ""))})
		w.must(err)
	}
	replayed := func(w work[Tx]) {
		w.lease("consumer/ledger")
		w.replayed(keyed)
	}
	retrying := func(w work[Tx]) { w.fail(eventing.StateRetrying, w.replayed(plain)) }
	processed := func(w work[Tx]) { w.must(w.db.Succeed(w.background(), w.success(fresh(plain)))) }
	retry := again(plain, eventing.StateRetrying)
	retry.Attempts = 2 // it died once, and was replayed
	conflict := says(eventing.ErrConflict)
	return []operation[Tx]{
		{name: "succeed", prepare: nothing[Tx], do: succeed(fresh(plain)), done: conflict},
		{name: "succeed in order", prepare: func(w work[Tx]) { w.lease("consumer/ledger") }, do: succeed(fresh(keyed)), done: conflict},
		{name: "succeed at a replay", prepare: replayed, do: succeed(again(keyed, eventing.StateDead)), done: conflict},
		{name: "succeed at a retry", prepare: retrying, do: succeed(retry), done: conflict},
		{name: "succeed without a hook", prepare: nothing[Tx], do: hookless(fresh(plain)), done: conflict},
		{name: "succeed in order without a hook", prepare: func(w work[Tx]) { w.lease("consumer/ledger") }, do: hookless(fresh(keyed)), done: conflict},
		{name: "succeed at a replay without a hook", prepare: replayed, do: hookless(again(keyed, eventing.StateDead)), done: conflict},
		{name: "succeed at a retry without a hook", prepare: retrying, do: hookless(retry), done: conflict},
		{name: "succeed with two", done: conflict, prepare: func(w work[Tx]) { w.lease("consumer/ledger") }, do: func(ctx context.Context, w work[Tx]) (any, error) {
			s := w.hookless(fresh(keyed))
			return nil, w.db.SucceedAll(ctx, eventing.BatchSuccess{
				Consumer: s.Consumer, EventIDs: []string{"e1", "e2"}, Leases: []eventing.Lease{*s.Lease}, Now: noon, InboxUntil: later, Effect: s.Effect,
			})
		}},
		{name: "succeed for the second time", prepare: processed, do: func(ctx context.Context, w work[Tx]) (any, error) {
			return refused(w.db.Succeed(ctx, w.success(fresh(plain))), eventing.ErrConflict)
		}},
		{name: "fail and retry", prepare: nothing[Tx], do: fail(fresh(plain), eventing.StateRetrying), done: conflict},
		{name: "fail and die", prepare: settled, do: fail(fresh(plain), eventing.StateDead), done: conflict},
		{name: "fail at a replay and retry", prepare: replayed, do: fail(again(keyed, eventing.StateDead), eventing.StateRetrying), done: conflict},
		{name: "fail at a retry and die", prepare: retrying, do: fail(retry, eventing.StateDead), done: conflict},
		{name: "fail after a success", prepare: processed, do: func(ctx context.Context, w work[Tx]) (any, error) {
			return refused(w.db.Fail(ctx, failure(fresh(plain), eventing.StateDead)), eventing.ErrConflict)
		}},
		{name: "quarantine", prepare: nothing[Tx], do: quarantine},
		{name: "quarantine again", do: quarantine, prepare: func(w work[Tx]) {
			w.must(w.db.Quarantine(w.background(), failure(garbage, eventing.StateDead)))
			w.must(w.db.Replay(w.background(), eventing.Target{EventID: id, Consumer: "billing"}, eventing.AnyGeneration, act("replayed")))
		}},
	}
}

func redeliverOperations[Tx any]() []operation[Tx] {
	due := func(r eventing.DueRequest) func(context.Context, work[Tx]) (any, error) {
		return func(ctx context.Context, w work[Tx]) (any, error) {
			r.Now, r.Limit, r.Exclude = noon.Add(time.Hour), 10, []string{"e9"}
			return w.db.Due(ctx, r)
		}
	}
	ordered := eventing.DueRequest{Consumer: "ledger", Ordered: true}
	for p := range eventing.Partitions {
		ordered.Leases = append(ordered.Leases, eventing.Lease{Scope: "consumer/ledger", Partition: p, Holder: "me", Token: 1, Until: later})
	}
	twice := eventing.Run{Delivery: delivery("billing", "e1", "")}
	return []operation[Tx]{
		{
			name: "claim what is due", repeats: true, do: due(eventing.DueRequest{Consumer: "billing", ClaimToken: "token", ClaimUntil: later}),
			prepare: func(w work[Tx]) {
				w.fail(eventing.StateRetrying, delivery("billing", "e1", ""), delivery("billing", "e2", ""))
			},
		},
		{name: "find the heads", do: due(ordered), prepare: func(w work[Tx]) {
			w.lease("consumer/ledger")
			w.fail(eventing.StateRetrying, delivery("ledger", "e1", "K"))
			w.arrive(delivery("ledger", "e2", "K"))
		}},
		{
			name: "forget", repeats: true,
			prepare: func(w work[Tx]) { // what nothing but a race brings about
				w.fail(eventing.StateRetrying, w.replayed(twice.Delivery))
				w.exec(`INSERT INTO processed_events (event_id, consumer_name) VALUES ('e1', 'billing')`)
			},
			do: func(ctx context.Context, w work[Tx]) (any, error) { return nil, w.db.Forget(ctx, twice, noon) },
		},
	}
}

// engineOperations have the engine insist, where the store leaves that to it.
func engineOperations[Tx any]() []operation[Tx] {
	clock := func() time.Time { return noon }
	receive := func(ctx context.Context, w work[Tx]) (any, error) {
		c, err := eventing.NewConsumer(w.db, func(ctx context.Context, e eventing.Envelope) error {
			if e.ID == "first" {
				return nil
			}
			tx, _ := eventing.TxFromContext[Tx](ctx)
			return w.db.Effect(ctx, tx, "ledger", e.ID)
		}, eventing.ConsumerConfig{
			Name: "ledger", Transactional: true, Policy: eventing.Policy{Ordered: true}, Now: clock, Holder: "me",
			Random: func() float64 { return 0 }, Logger: slog.New(slog.DiscardHandler),
		})
		w.must(err)
		receive := func(ctx context.Context, id string) error {
			e, err := eventing.DecodeEnvelope(envelope(id, "K"))
			w.must(err)
			m, err := eventing.EnvelopeCodec{}.Marshal(e)
			w.must(err)
			return c.Receive(ctx, m)
		}
		w.must(receive(w.background(), "first")) // with it, it takes its leases: if that fails, it tries again at another time of its clock
		return nil, receive(ctx, "e1")
	}
	dispatch := func(ctx context.Context, w work[Tx]) (any, error) {
		d, err := eventing.NewDispatcher(w.db, taker{}, everywhere{}, eventing.DispatcherConfig{
			Holder: "me", Now: clock, Logger: slog.New(slog.DiscardHandler),
		})
		w.must(err)
		return d.DispatchOnce(ctx)
	}
	return []operation[Tx]{
		{name: "the engine receives", prepare: nothing[Tx], do: receive, insists: true},
		{name: "the engine dispatches", prepare: func(w work[Tx]) { w.append(row("e1", "K"), row("e2", "")) }, do: dispatch, several: true},
	}
}

// taker is a broker that takes everything, and everywhere a table that routes it.
type (
	taker      struct{}
	everywhere struct{}
)

func (taker) Publish(string, ...*message.Message) error { return nil }
func (taker) Close() error                              { return nil }

func (everywhere) Route(string) ([]eventing.Route, bool) {
	r, _ := everywhere{}.Consumer("billing")
	return []eventing.Route{r}, true
}

func (everywhere) Consumer(name string) (eventing.Route, bool) {
	return eventing.Route{Consumer: name, Topic: name}, true
}
