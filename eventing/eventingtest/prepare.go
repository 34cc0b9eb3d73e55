package eventingtest

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func prepareTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"a transactional handler gets what was prepared": func(w *world[Tx]) { prepareHandler(w, true) },
		"any other does as well":                         func(w *world[Tx]) { prepareHandler(w, false) },
		"its failures are the handler's":                 prepareFailing[Tx],
		"its failure can exhaust an event":               prepareExhausted[Tx],
		"nobody waits for it":                            prepareHanging[Tx],
	}
}

// preparing has a consumer prepare the event's ID.
func preparing(cfg *eventing.ConsumerConfig) {
	cfg.Prepare = func(_ context.Context, e eventing.Envelope) (any, error) { return "for " + e.ID, nil }
}

func prepareHandler[Tx any](w *world[Tx], transactional bool) {
	var before, handled []any
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		preparing(cfg)
		cfg.Transactional = transactional
		prepare := cfg.Prepare
		cfg.Prepare = func(ctx context.Context, e eventing.Envelope) (any, error) {
			_, inTx := eventing.TxFromContext[Tx](ctx)
			a, _ := eventing.AttemptFromContext(ctx)
			of, _ := eventing.EnvelopeFromContext(ctx)
			before = append(before, inTx, a.Number, of.ID, eventing.CausationID(ctx), eventing.Prepared(ctx))
			return prepare(ctx, e)
		}
	})
	c.handleWith(func(ctx context.Context, _ eventing.Envelope) error {
		_, inTx := eventing.TxFromContext[Tx](ctx)
		a, _ := eventing.AttemptFromContext(ctx)
		handled = append(handled, eventing.Prepared(ctx), inTx, a.Number)
		if a.Number == 1 {
			return errBusy
		}
		return nil
	})
	w.append(order("e1", ""))
	w.rest()
	w.clock.Advance(time.Hour)
	w.rest()
	w.equal("each attempt prepares anew, in no transaction, in the handler's context", before,
		[]any{false, 1, "e1", "e1", nil, false, 2, "e1", "e1", nil})
	w.equal("the handler gets what was prepared", handled, []any{"for e1", transactional, 1, "for e1", transactional, 2})
	w.equal("the event is processed", w.stats().Inbox, int64(1))
}

func prepareFailing[Tx any](w *world[Tx]) {
	failing := map[string]error{"hopeless": errHopeless, "busy": errBusy, "snoozed": eventing.RetryAfter(time.Hour, errBusy)}
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		preparing(cfg)
		prepare := cfg.Prepare
		cfg.Prepare = func(ctx context.Context, e eventing.Envelope) (any, error) {
			if e.ID == "panicked" && failing[e.ID] != nil {
				panic("boom")
			}
			if err := failing[e.ID]; err != nil {
				return nil, err
			}
			return prepare(ctx, e)
		}
		cfg.Policy.Retry.MaxAttempts = 2
	})
	failing["panicked"] = errBusy
	for id, want := range map[string]eventing.Conclusion{
		"hopeless": {State: eventing.StateDead, Attempts: 1, Reason: eventing.ReasonRejected},
		"busy":     {State: eventing.StateRetrying, Attempts: 1, Reason: eventing.ReasonHandlerError},
		"snoozed":  {State: eventing.StateRetrying, Attempts: 0, Reason: eventing.ReasonHandlerError, Snoozed: true},
		"panicked": {State: eventing.StateRetrying, Attempts: 1, Reason: eventing.ReasonPanic},
	} {
		w.append(order(id, ""))
		w.rest()
		got := c.lastConclusion()
		w.equal("its error is the handler's: "+id, []any{got.State, got.Attempts, got.Reason, got.Snoozed},
			[]any{want.State, want.Attempts, want.Reason, want.Snoozed})
	}
	w.equal("the handler is not called then", c.ran(), list())
	clear(failing)
	w.clock.Advance(time.Hour)
	w.rest()
	got := c.effects()
	slices.Sort(got)
	w.equal("what is retried is prepared again", got, list("busy", "panicked", "snoozed"))
}

func prepareExhausted[Tx any](w *world[Tx]) {
	var at eventing.CurrentAttempt
	w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		cfg.Prepare = func(context.Context, eventing.Envelope) (any, error) { return nil, errBusy }
		cfg.Policy.Retry.MaxAttempts = 2
		acting(w, eventing.ActionFallback)(cfg)
		fallback := cfg.Actions[eventing.ActionFallback]
		cfg.Actions[eventing.ActionFallback] = func(ctx context.Context, tx any, c eventing.Conclusion) error {
			at, _ = eventing.AttemptFromContext(ctx)
			return fallback(ctx, tx, c)
		}
	})
	w.routeBy("v1")
	w.append(order("e1", ""))
	w.rest()
	w.clock.Advance(time.Hour)
	w.rest()
	w.effects("its failures exhaust an event", named(w, eventing.ActionFallback), "e1")
	w.equal("an action knows the attempt that did", at, eventing.CurrentAttempt{Consumer: "billing", Number: 2, RoutingVersion: "v1"})
}

// prepareHanging has the preparation for one event wait, while everybody else writes.
func prepareHanging[Tx any](w *world[Tx]) {
	waiting, answer := make(chan struct{}), make(chan struct{})
	slow := w.consumer("slow", func(cfg *eventing.ConsumerConfig) {
		ordered(cfg)
		cfg.Prepare = func(context.Context, eventing.Envelope) (any, error) {
			close(waiting)
			<-answer
			return "the answer", nil
		}
	})
	other := w.consumer("other", nil)
	w.append(order("e1", "K"))
	w.dispatch()
	msg := w.broker.next(eventing.PartitionTopic("slow", eventing.PartitionOf("K", ""))).msg
	concluded := make(chan error, 1)
	go func() { concluded <- slow.engine.Receive(w.ctx, msg.Copy()) }()
	w.waitFor("the preparation", waiting)

	w.append(order("e2", "L"))
	w.dispatch()
	w.deliver(other)
	w.effects("another consumer goes on, and so does the producer", other, "e1", "e2")
	w.effects("nothing has happened meanwhile", slow)
	select {
	case err := <-concluded:
		w.Fatalf("broken: the run waits for what is prepared; it ended: %v", err)
	default:
	}
	close(answer)
	w.must(<-concluded)
	w.effects("then the handler runs", slow, "e1")
}

// crashPrepare has an event that is prepared for twice, since its handler fails at first, and another that cannot be
// prepared for at first.
func crashPrepare[Tx any](w *world[Tx]) {
	failing := errBusy
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		preparing(cfg)
		prepare := cfg.Prepare
		cfg.Prepare = func(ctx context.Context, e eventing.Envelope) (any, error) {
			if e.ID == "e2" && failing != nil {
				return nil, failing
			}
			return prepare(ctx, e)
		}
	})
	c.fail(errBusy, "e1")
	w.append(orders("", "e1", "e2", "e3")...)
	w.rest()
	w.equal("wherever the process died, what can be handled is", c.sorted(), list("e3"))
	w.deliveries("and the others are retried", 2, 0, 0)
	c.heal()
	failing = nil
	w.clock.Advance(2 * time.Hour)
	w.rest()
	w.equal("wherever the process died, each effect happens exactly once", c.sorted(), list("e1", "e2", "e3"))
	w.equal("a crash is no attempt", c.lastConclusion().Attempts, 2)
	w.deliveries("nothing is left in trouble", 0, 0, 0)
	w.nothingDead("a crash kills no event")
}
