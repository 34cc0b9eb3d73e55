package eventingtest

import (
	"errors"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func retryTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"transient failures are retried by the formula": retryFormula[Tx],
		"a restart forgets nothing":                     retryRestart[Tx],
		"a permanent failure makes one attempt":         retryPermanent[Tx],
		"an exhausted one dies with its history":        retryExhausted[Tx],
		"a snooze burns no attempt":                     retrySnooze[Tx],
		"a retry holds up no other event":               retryOthers[Tx],
	}
}

// retried is a consumer whose delays are 1.1 s, 2.2 s, 4.4 s …: base 1 s, doubled,
// and half of a jitter of 20 %.
func retried[Tx any](w *world[Tx], attempts int) *consumer[Tx] {
	w.Helper()
	return w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		cfg.Policy.Retry = eventing.RetryPolicy{MaxAttempts: attempts, Base: time.Second, Multiplier: 2, Jitter: 0.2}
	})
}

// waits checks that the delivery of e1 is next run after exactly d.
func (c *consumer[Tx]) waits(d time.Duration) {
	c.w.Helper()
	before := len(c.ran())
	c.w.clock.Advance(d - time.Millisecond)
	c.w.rest()
	c.w.equal("no retry comes early: not before "+d.String(), len(c.ran()), before)
	c.w.clock.Advance(time.Millisecond)
	c.w.rest()
	c.w.equal("a retry comes when it is due: after "+d.String(), len(c.ran()), before+1)
}

func retryFormula[Tx any](w *world[Tx]) {
	c := retried(w, 5)
	c.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.rest()
	c.waits(1100 * time.Millisecond)
	c.waits(2200 * time.Millisecond)
	c.heal()
	c.waits(4400 * time.Millisecond)
	last := c.lastConclusion()
	w.equal("three failures and a success are four attempts", []any{last.State, last.Attempts}, []any{eventing.StateNone, 4})
	w.effects("the effect happens once, on success", c, "e1")
	w.deliveries("a success removes the delivery", 0, 0, 0)
	w.equal("four runs, no more", len(c.ran()), 4)
	w.nothingDead("what succeeds in the end leaves no dead letter")
}

func retryRestart[Tx any](w *world[Tx]) {
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) { cfg.Policy.Retry.MaxAttempts = 4 })
	c.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.rest()
	for _, hours := range []time.Duration{1, 2, 4} {
		w.restart()
		c.waits(hours*time.Hour - lifetime)
	}
	w.restart()
	dl := w.deadLetter(target("e1", c))
	w.equal("a restart in between forgets no attempt", []any{dl.AttemptCount, len(dl.History), dl.Reason},
		[]any{4, 4, eventing.ReasonRetriesExhausted})
	w.clock.Advance(100 * time.Hour)
	w.rest()
	w.equal("a dead delivery does not run by itself", len(c.ran()), 4)
}

func retryPermanent[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(eventing.PermanentWithReason("UNKNOWN_CUSTOMER", errors.New("no such customer")), "e1")
	w.append(order("e1", "K"))
	w.rest()
	w.clock.Advance(100 * time.Hour)
	w.rest()
	w.equal("a permanent error makes one attempt", c.ran(), list("e1"))
	w.deliveries("a permanent error kills at once", 0, 0, 1)
	dl := w.deadLetter(target("e1", c))
	w.equal("a dead letter says what happened",
		[]any{dl.EventType, dl.Stage, dl.Reason, dl.Message, dl.AttemptCount, dl.Status, dl.Resolution, dl.Generation},
		[]any{"order.placed", eventing.StageHandle, eventing.ReasonCode("UNKNOWN_CUSTOMER"), "no such customer", 1,
			eventing.StatusPending, eventing.Resolution(""), 0})
	e, err := eventing.DecodeEnvelope(dl.Payload)
	w.must(err)
	w.equal("a dead letter keeps the whole envelope", []string{e.ID, e.OrderKey(), string(e.Payload)}, []string{"e1", "K", `{"number":"e1"}`})
	w.effects("a run that failed leaves no effect", c)
}

func retryExhausted[Tx any](w *world[Tx]) {
	c := retried(w, 3)
	start := w.clock.Now()
	c.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.rest()
	c.waits(1100 * time.Millisecond)
	c.waits(2200 * time.Millisecond)
	dl := w.deadLetter(target("e1", c))
	w.equal("the last allowed attempt was the last", []any{dl.Reason, dl.AttemptCount, dl.Message},
		[]any{eventing.ReasonRetriesExhausted, 3, errBusy.Error()})
	for i, after := range []time.Duration{0, 1100 * time.Millisecond, 3300 * time.Millisecond} {
		if i >= len(dl.History) {
			w.Fatalf("broken: the history has every attempt; it has %d of 3", len(dl.History))
		}
		a := dl.History[i]
		w.equal("the history tells each attempt", []any{a.Attempt, a.At.Equal(start.Add(after)), a.Outcome, a.ErrorCode, a.ErrorMessage},
			[]any{i + 1, true, "failed", eventing.ReasonHandlerError, errBusy.Error()})
	}
}

func retrySnooze[Tx any](w *world[Tx]) {
	c := retried(w, 2)
	c.fail(eventing.RetryAfter(10*time.Minute, errors.New("the bank opens later")), "e1")
	w.append(order("e1", ""))
	w.rest()
	for range 4 {
		c.waits(10 * time.Minute)
	}
	w.deliveries("a snooze never kills", 1, 0, 0)
	c.fail(errBusy, "e1")
	c.waits(10 * time.Minute)
	w.equal("after snoozes the first failure is the first attempt", c.lastConclusion().Attempts, 1)
	c.heal()
	c.waits(1100 * time.Millisecond)
	w.equal("snoozes are no attempts", c.lastConclusion().Attempts, 2)
	w.effects("the effect happens once", c, "e1")
}

func retryOthers[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	a.fail(errBusy, "e1")
	w.append(orders("K", "e1", "e2", "e3")...)
	w.rest()
	w.effects("for an unordered consumer nothing waits, of the same key either", a, "e2", "e3")
	w.effects("another consumer does not notice", b, "e1", "e2", "e3")
	w.equal("nor is anything published for it again", len(w.broker.ids("mail")), 3)
	a.heal()
	w.clock.Advance(time.Hour)
	w.rest()
	w.effects("the retry comes in its time", a, "e2", "e3", "e1")
	w.equal("a retry does not cross the broker", len(w.broker.ids("")), 6)
}
