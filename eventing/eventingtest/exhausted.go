package eventingtest

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/eventing"
)

func exhaustedTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"an action and the dead letter are one":              exhaustedWithDeadLetter[Tx],
		"without a dead letter the event is processed":       exhaustedWithout[Tx],
		"the next of the key follows what fell back":         exhaustedOrdered[Tx],
		"an action that fails leaves a dead letter":          exhaustedFailing[Tx],
		"an action that breaks its transaction does as well": exhaustedBreaking[Tx],
		"a replay may be saved by an action":                 exhaustedReplay[Tx],
	}
}

// acting has a consumer's exhausted events go through these actions; each leaves an effect
// of a consumer of its own name.
func acting[Tx any](w *world[Tx], names ...string) func(*eventing.ConsumerConfig) {
	return func(cfg *eventing.ConsumerConfig) {
		cfg.Policy.OnExhausted = names
		cfg.Actions = map[string]eventing.Action{}
		for _, name := range names {
			if name != eventing.ActionDeadLetter && name != eventing.ActionAlert && name != eventing.ActionFreeze {
				cfg.Actions[name] = func(ctx context.Context, tx any, c eventing.Conclusion) error {
					return w.effect(name, c.Envelope.ID)(ctx, tx)
				}
			}
		}
	}
}

func named[Tx any](w *world[Tx], name string) *consumer[Tx] { return &consumer[Tx]{w: w, name: name} }

func exhaustedWithDeadLetter[Tx any](w *world[Tx]) {
	c := w.consumer("billing", acting(w, "note", eventing.ActionDeadLetter, eventing.ActionAlert))
	c.fail(errHopeless, "e1")
	w.append(order("e2", ""), order("e1", ""))
	w.rest()
	w.effects("only the handler's failure is rolled back", c, "e2")
	w.effects("the action happened once", named(w, "note"), "e1")
	w.status("and there is a dead letter", target("e1", c), eventing.StatusPending, "")
	w.equal("of which OnConclude is told", c.lastConclusion().State, eventing.StateDead)
}

func exhaustedWithout[Tx any](w *world[Tx]) {
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		acting(w, eventing.ActionFallback)(cfg)
		cfg.Policy.Retry.MaxAttempts = 2
	})
	c.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.effects("attempts that are left come first", named(w, eventing.ActionFallback))
	w.deliveries("the event is to be retried", 1, 0, 0)
	w.clock.Advance(lifetime * 120)
	w.rest()
	w.effects("then the fallback", named(w, eventing.ActionFallback), "e1")
	w.effects("instead of the handler", c)
	w.deliveries("which ends the trouble", 0, 0, 0)
	w.nothingDead("without a dead letter")
	w.equal("as processed", w.stats().Inbox, int64(1))
	last := c.lastConclusion()
	w.equal("OnConclude is told both", []any{last.State, errors.Is(last.Err, errBusy), last.Attempts}, []any{eventing.StateNone, true, 2})
}

func exhaustedOrdered[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", func(cfg *eventing.ConsumerConfig) {
		acting(w, eventing.ActionDefault)(cfg)
		cfg.Policy.Ordered = true
		cfg.Policy.Retry.MaxAttempts = 2
	})
	c.fail(errBusy, "e1")
	w.append(orders("K", "e1", "e2")...)
	w.rest()
	w.deliveries("the second waits for the first", 1, 1, 0)
	w.clock.Advance(lifetime * 120)
	w.rest()
	w.effects("and follows it", c, "e2")
	w.effects("which was decided by default", named(w, eventing.ActionDefault), "e1")
	w.deliveries("the gate is open", 0, 0, 0)
}

func exhaustedFailing[Tx any](w *world[Tx]) {
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		acting(w, eventing.ActionFallback)(cfg)
		fallback := cfg.Actions[eventing.ActionFallback]
		cfg.Actions[eventing.ActionFallback] = func(ctx context.Context, tx any, c eventing.Conclusion) error {
			if err := fallback(ctx, tx, c); err != nil {
				return err
			}
			if c.Envelope.ID == "e2" {
				panic("boom")
			}
			return errBusy
		}
	})
	c.fail(errHopeless, "e1", "e2")
	w.append(order("e1", ""), order("e2", ""))
	w.rest()
	w.effects("what a failed action wrote is rolled back", named(w, eventing.ActionFallback))
	for _, id := range []string{"e1", "e2"} {
		w.status("the event is not lost", target(id, c), eventing.StatusPending, "")
	}
	w.equal("OnConclude is told of a death", c.lastConclusion().State, eventing.StateDead)
}

func exhaustedBreaking[Tx any](w *world[Tx]) {
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		acting(w, "note", eventing.ActionDeadLetter)(cfg)
		note := cfg.Actions["note"]
		cfg.Actions["note"] = func(ctx context.Context, tx any, c eventing.Conclusion) error {
			if err := note(ctx, tx, c); err != nil {
				return err
			}
			breakTx(tx)
			return nil
		}
	})
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.status("the event is a dead letter", target("e1", c), eventing.StatusPending, "")
}

// breakTx leaves a transaction that cannot commit, where the store has such.
func breakTx(tx any) {
	if t, ok := tx.(interface{ Rollback() error }); ok {
		_ = t.Rollback()
	}
	if t, ok := tx.(interface{ Rollback(context.Context) error }); ok {
		_ = t.Rollback(context.Background())
	}
}

func exhaustedReplay[Tx any](w *world[Tx]) {
	failing := true
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		cfg.Policy.OnExhausted = []string{eventing.ActionFallback}
		cfg.Actions = map[string]eventing.Action{eventing.ActionFallback: func(ctx context.Context, tx any, c eventing.Conclusion) error {
			if failing {
				return errBusy
			}
			return w.effect(eventing.ActionFallback, c.Envelope.ID)(ctx, tx)
		}}
	})
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.status("handler and action failed", target("e1", c), eventing.StatusPending, "")
	failing = false
	w.replay(target("e1", c))
	w.rest()
	w.effects("the replay has one effect", named(w, eventing.ActionFallback), "e1")
	w.status("and closes the dead letter", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.deliveries("nothing is left in trouble", 0, 0, 0)
}
