package eventingtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func concludeTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"duplicates at once have one effect":             concludeDuplicates[Tx],
		"an effect and its inbox row are one":            concludeAtomic[Tx],
		"a second success is a conflict":                 concludeConflict[Tx],
		"a conclusion is conditional on what was found":  concludeConditional[Tx],
		"a run of an earlier replay concludes nothing":   concludeOldReplay[Tx],
		"a replay that arrives twice dies once":          concludeReplayTwins[Tx],
		"a conclusion that cannot be stored is insisted": concludeInsists[Tx],
		"a failed run leaves no effect":                  concludeFailure[Tx],
		"panics and timeouts are failures":               concludePanicTimeout[Tx],
		"OnConclude is part of the transaction":          concludeHook[Tx],
		"a plain handler has no transaction":             concludePlain[Tx],
		"others' messages are left alone":                concludeAddressed[Tx],
		"forgetting removes delivery and dead letter":    concludeForget[Tx],
	}
}

// effect is an effect for a transaction that the store hands out.
func (w *world[Tx]) effect(consumer, eventID string) func(ctx context.Context, tx any) error {
	return func(ctx context.Context, tx any) error {
		typed, ok := tx.(Tx)
		if !ok {
			return fmt.Errorf("the store hands out a transaction of type %T", tx)
		}
		return w.db.Effect(ctx, typed, consumer, eventID)
	}
}

func concludeDuplicates[Tx any](w *world[Tx]) {
	const copies = 16
	c := w.consumer("billing", nil)
	w.append(order("e1", ""))
	w.dispatch()
	msg := w.broker.next("billing").msg
	errs := make([]error, copies)
	var all sync.WaitGroup
	for i := range copies {
		all.Go(func() { errs[i] = c.engine.Receive(w.ctx, msg.Copy()) })
	}
	all.Wait()
	w.must(errors.Join(errs...))
	w.effects("however many copies arrive at once, the effect happens once", c, "e1")
	w.equal("and is in the inbox once", w.stats().Inbox, int64(1))
}

func concludeAtomic[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	boom := errors.New("boom")
	for _, at := range []string{"Effect", "Finish"} {
		_, run := c.arrive(c.delivery(order("e1", "")))
		s := c.success(run)
		effect := s.Effect
		broken := func(ctx context.Context, tx any) error {
			if err := effect(ctx, tx); err != nil {
				return err
			}
			return boom
		}
		if at == "Effect" {
			s.Effect = broken
		} else {
			s.Finish = broken
		}
		w.equal("an error of "+at+" is returned as it is", w.db.Succeed(w.ctx, s), boom)
		w.effects("an error of "+at+" rolls everything back", c)
		w.equal("an error of "+at+" rolls the inbox row back", w.stats().Inbox, int64(0))
	}
	_, run := c.arrive(c.delivery(order("e1", "")))
	w.must(c.succeedRun(run))
	w.effects("a success commits the effect", c, "e1")
	w.equal("a success commits the inbox row", w.stats().Inbox, int64(1))
}

func concludeConflict[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	_, first := c.arrive(c.delivery(order("e1", "")))
	_, second := c.arrive(c.delivery(order("e1", "")))
	w.must(c.succeedRun(first))
	w.equal("a second success is a conflict", errors.Is(c.succeedRun(second), eventing.ErrConflict), true)
	w.effects("a conflict rolls the effect back", c, "e1")
	w.equal("a failure of what was processed is a conflict", errors.Is(c.failRun(second, eventing.StateDead), eventing.ErrConflict), true)
	w.nothingDead("a twin that fails after the success leaves no dead letter")
	w.deliveries("nor a delivery", 0, 0, 0)
}

func concludeConditional[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	_, first := c.arrive(c.delivery(order("e1", "")))
	_, second := c.arrive(c.delivery(order("e1", "")))
	w.must(c.failRun(first, eventing.StateRetrying))
	w.equal("a failure does not overwrite another run's failure", errors.Is(c.failRun(second, eventing.StateDead), eventing.ErrConflict), true)
	w.equal("a success does not go past a delivery that it has not found", errors.Is(c.succeedRun(second), eventing.ErrConflict), true)
	w.effects("a conflict rolls the effect back", c)
	w.deliveries("the first conclusion stands", 1, 0, 0)
	w.nothingDead("the first conclusion stands")
}

// concludeReplayTwins has two runs of one replay, which the broker has delivered twice.
func concludeReplayTwins[Tx any](w *world[Tx]) {
	c, second := replayedTwice(w)
	w.review(target("e1", c))
	for _, state := range []eventing.State{eventing.StateDead, eventing.StateRetrying} {
		w.equal("a failure does not go past a failure that it has not found", errors.Is(c.failRun(second, state), eventing.ErrConflict), true)
	}
	died := w.deadLetter(target("e1", c))
	w.equal("one attempt is counted", died.AttemptCount, 2)
	w.equal("and recorded", len(died.History), 2)
	w.status("what has been done about it since stands", target("e1", c), eventing.StatusReviewed, "")
	w.deliveries("it is dead", 0, 0, 1)
	w.must(c.succeedRun(second))
	w.effects("a success is one, whatever failed beside it", c, "e1")
	w.status("and closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.deliveries("nothing is left", 0, 0, 0)
}

// replayedTwice has e1 die, and two runs of its replay, of which the first has failed for good.
func replayedTwice[Tx any](w *world[Tx]) (c *consumer[Tx], second eventing.Run) {
	c = w.consumer("billing", nil)
	d := c.delivery(order("e1", ""))
	_, run := c.arrive(d)
	w.must(c.failRun(run, eventing.StateDead))
	w.replay(target("e1", c))
	d.Generation = 1
	_, first := c.arrive(d)
	_, second = c.arrive(d)
	w.must(c.failRun(first, eventing.StateDead))
	return c, second
}

// concludeOldReplay has a run of the first replay end when the second is under way.
func concludeOldReplay[Tx any](w *world[Tx]) {
	c, slow := replayedTwice(w)
	w.replay(target("e1", c))
	w.equal("a run of an earlier replay does not succeed", errors.Is(c.succeedRun(slow), eventing.ErrConflict), true)
	w.equal("nor fail", errors.Is(c.failRun(slow, eventing.StateDead), eventing.ErrConflict), true)
	w.effects("and leaves no effect", c)
	w.status("the second replay is under way", target("e1", c), eventing.StatusReplayed, "")
	d := c.delivery(order("e1", ""))
	d.Generation = 2
	_, run := c.arrive(d)
	w.must(c.succeedRun(run))
	w.effects("and has its effect", c, "e1")
}

func concludeInsists[Tx any](w *world[Tx]) {
	tries := 0
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		cfg.OnConclude = func(context.Context, any, eventing.Conclusion) error {
			if tries++; tries < 3 {
				return errors.New("disk full")
			}
			return nil
		}
	})
	w.append(order("e1", ""))
	w.rest()
	w.equal("a conclusion that cannot be stored is tried until it can", tries, 3)
	w.effects("what was tried in vain left nothing", c, "e1")
	w.deliveries("a store that fails is no attempt of the handler", 0, 0, 0)
}

func concludeFailure[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errBusy, "e1")
	w.append(orders("", "e1", "e2")...)
	w.rest()
	w.effects("a run that failed leaves no effect", c, "e2")
	w.deliveries("a run that failed transiently is to be retried", 1, 0, 0)
	got := c.conclusions[0]
	w.equal("the failure is told", []any{got.State, got.Attempts, got.Reason, errors.Is(got.Err, errBusy)},
		[]any{eventing.StateRetrying, 1, eventing.ReasonHandlerError, true})
}

func concludePanicTimeout[Tx any](w *world[Tx]) {
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		cfg.Policy.Retry.MaxAttempts = 1
		cfg.Policy.Timeout = 20 * time.Millisecond
	})
	c.handleWith(func(ctx context.Context, e eventing.Envelope) error {
		if e.ID == "panic" {
			panic("at the disco")
		}
		<-ctx.Done()
		return fmt.Errorf("call the bank: %w", ctx.Err())
	})
	w.append(order("panic", ""), order("slow", ""))
	w.rest()
	w.effects("a run that panicked or timed out leaves no effect", c)
	dl := w.deadLetter(target("panic", c))
	w.equal("a panic is a failure", []any{dl.Reason, dl.History[0].ErrorCode}, []any{eventing.ReasonRetriesExhausted, eventing.ReasonPanic})
	dl = w.deadLetter(target("slow", c))
	w.equal("a timeout is a failure", []any{dl.Reason, dl.History[0].ErrorCode}, []any{eventing.ReasonTimeoutExhausted, eventing.ReasonTimeout})
}

// hooked has OnConclude leave an effect too, under the consumer's name and the state.
func hooked[Tx any](w *world[Tx]) func(*eventing.ConsumerConfig) {
	return func(cfg *eventing.ConsumerConfig) {
		cfg.OnConclude = func(ctx context.Context, tx any, c eventing.Conclusion) error {
			return w.effect("hook", fmt.Sprintf("%s %s %d", c.Envelope.ID, c.State, c.Attempts))(ctx, tx)
		}
	}
}

func concludeHook[Tx any](w *world[Tx]) {
	c := w.consumer("billing", hooked(w))
	c.fail(errBusy, "e1")
	w.append(order("e1", ""), order("e2", ""))
	w.rest()
	c.fail(errHopeless, "e1")
	w.clock.Advance(2 * time.Hour)
	w.rest()
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	hook := &consumer[Tx]{w: w, name: "hook"}
	w.effects("OnConclude runs in the transaction of each conclusion", hook, "e1 retrying 1", "e2  1", "e1 dead 2", "e1  3")
}

func concludePlain[Tx any](w *world[Tx]) {
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) { cfg.Transactional = false })
	c.handleWith(func(ctx context.Context, _ eventing.Envelope) error {
		_, ok := eventing.TxFromContext[Tx](ctx)
		w.equal("a handler that is not transactional runs outside of any transaction", ok, false)
		return nil
	})
	w.append(order("e1", ""))
	w.faults.FailNext(eventing.FaultConcluding)
	w.rest()
	w.equal("a plain handler runs at least once", c.ran(), list("e1", "e1"))
	w.equal("and is recorded once", w.stats().Inbox, int64(1))
}

func concludeAddressed[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(order("e1", ""))
	w.dispatch()
	msg := w.broker.next("billing").msg.Copy()
	msg.Metadata.Set(eventing.MetadataConsumers, "mail,audit")
	w.must(c.engine.Receive(w.ctx, msg))
	w.equal("a message that is for others is acked and not run", c.ran(), list())
	w.equal("and leaves nothing in the inbox", w.stats().Inbox, int64(0))
}

func concludeForget[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	_, run := c.arrive(c.delivery(order("e1", "")))
	w.must(c.failRun(run, eventing.StateDead))
	w.replay(target("e1", c))
	d := c.delivery(order("e1", ""))
	d.Generation = 1
	_, run = c.arrive(d)
	w.must(c.succeedRun(run))
	w.must(w.db.Forget(w.ctx, run, w.clock.Now()))
	w.deliveries("what was processed has no delivery", 0, 0, 0)
	w.status("and its dead letter is resolved", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.equal("and stays in the inbox", w.stats().Inbox, int64(1))
}
