package eventingtest

import (
	"errors"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func forceTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"what was processed runs again, once":             forceLife[Tx],
		"at a consumer that is ordered, in its turn":      forceOrdered[Tx],
		"a failure is retried":                            forceRetried[Tx],
		"a failure for good is a dead letter, replayed":   func(w *world[Tx]) { forceDies(w, w.replay) },
		"a failure for good is a dead letter, by SQL":     func(w *world[Tx]) { forceDies(w, func(t eventing.Target) { w.replayBySQL(t.EventID) }) },
		"one that cannot be published is a dead letter":   forceUnpublishable[Tx],
		"one that was discarded runs no more, a new does": forceDiscarded[Tx],
		"twice, one after the other, is two runs":         forceTwice[Tx],
		"a twin concludes nothing":                        forceTwin[Tx],
		"what has been forgotten is not it":               forceForget[Tx],
		"what it needs":                                   forceRefused[Tx],
		"a consumer may refuse it":                        forceRefusedByPolicy[Tx],
		"is an act of a dead letter, if there is one":     forceAct[Tx],
		"one that the broker lost is named":               forceLost[Tx],
		"once the inbox has forgotten, it runs once":      forcePruned[Tx],
	}
}

// processed has a new consumer process events.
func processed[Tx any](w *world[Tx], configure func(*eventing.ConsumerConfig), key string, ids ...string) *consumer[Tx] {
	w.Helper()
	c := w.consumer("billing", configure)
	w.append(orders(key, ids...)...)
	w.rest()
	w.effects("an event is processed once", c, ids...)
	return c
}

func (w *world[Tx]) force(t eventing.Target) {
	w.Helper()
	w.try(func() error { return w.deadLetters.Force(w.ctx, t, "ann", "the bank lost it") })
}

func forceLife[Tx any](w *world[Tx]) {
	c, other := processed(w, nil, "", "e1"), w.consumer("mail", nil)
	original := w.broker.sent[0].msg
	w.force(target("e1", c))
	w.rest()
	w.effects("a forced event runs again", c, "e1", "e1")
	w.effects("at no other consumer", other)
	forced := w.broker.sent[len(w.broker.sent)-1].msg
	for _, m := range []*struct{ what string }{{"forced"}, {"forced"}, {"original"}} {
		msg := forced
		if m.what == "original" {
			msg = original
		}
		w.must(c.engine.Receive(w.ctx, msg.Copy()))
		w.effects("a duplicate of the "+m.what+" message does not run", c, "e1", "e1")
	}
	w.equal("the inbox has it once", w.stats().Inbox, int64(1))
	w.nothingDead("and there is no dead letter of it")
	w.force(target("e1", c))
	w.rest()
	w.effects("it can be forced again", c, "e1", "e1", "e1")
}

func forceOrdered[Tx any](w *world[Tx]) {
	c := processed(w, ordered, "K", "e1")
	c.fail(errHopeless, "e2")
	w.append(orders("K", "e2", "e3")...)
	w.rest()
	w.force(target("e1", c))
	w.rest()
	w.effects("while its key is busy, it waits", c, "e1")
	w.deliveries("and is parked", 0, 2, 1)
	w.append(order("e4", "K"))
	w.rest()
	c.heal()
	w.restart()
	w.replay(target("e2", c))
	w.rest()
	w.effects("it runs in the order of its arrival", c, "e1", "e2", "e3", "e1", "e4")
	w.deliveries("nothing is left", 0, 0, 0)
}

func forceRetried[Tx any](w *world[Tx]) {
	c := processed(w, nil, "", "e1")
	c.fail(errBusy, "e1")
	w.force(target("e1", c))
	w.rest()
	w.deliveries("a forced run that fails transiently is to be retried", 1, 0, 0)
	w.equal("the event counts as processed all the while", w.stats().Inbox, int64(1))
	w.restart()
	c.heal()
	w.clock.Advance(time.Hour)
	w.rest()
	w.effects("and runs again after a restart, too", c, "e1", "e1")
	w.deliveries("nothing is left", 0, 0, 0)
	w.must(c.engine.Receive(w.ctx, w.broker.sent[len(w.broker.sent)-1].msg.Copy()))
	w.effects("it has succeeded once", c, "e1", "e1")
}

func forceDies[Tx any](w *world[Tx], replay func(eventing.Target)) {
	c := processed(w, nil, "", "e1")
	c.fail(errHopeless, "e1")
	w.force(target("e1", c))
	w.rest()
	dl := w.deadLetter(target("e1", c))
	w.equal("a forced run that fails for good is a dead letter", []any{dl.Status, dl.Generation, dl.AttemptCount}, []any{eventing.StatusPending, 1, 1})
	w.equal("the event counts as processed all the while", w.stats().Inbox, int64(1))
	w.must(c.engine.Receive(w.ctx, w.broker.sent[0].msg.Copy()))
	replay(target("e1", c))
	w.rest()
	w.equal("its replay runs, too", c.ran(), list("e1", "e1", "e1"))
	w.equal("attempts are counted on", w.deadLetter(target("e1", c)).AttemptCount, 2)
	c.heal()
	replay(target("e1", c))
	w.rest()
	w.effects("and succeeds in the end", c, "e1", "e1")
	w.status("success closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.deliveries("nothing is left", 0, 0, 0)
}

func forceUnpublishable[Tx any](w *world[Tx]) {
	c := processed(w, nil, "", "e1")
	w.broker.refuseEvents("e1")
	w.force(target("e1", c))
	w.append(order("e2", "")) // that others pass says that it is the event's fault
	w.rest()
	w.equal("a forced run that cannot be published is a dead letter", w.graveyard(), []string{`e1 at "billing": dispatch UNPUBLISHABLE pending`})
	w.broker.refuseIf(nil)
	w.replay(target("e1", c))
	w.rest()
	w.equal("its replay runs", c.sorted(), list("e1", "e1", "e2"))
	w.status("success closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
}

func forceDiscarded[Tx any](w *world[Tx]) {
	c := processed(w, nil, "", "e1")
	c.fail(errHopeless, "e1")
	w.force(target("e1", c))
	w.rest()
	late := w.broker.sent[len(w.broker.sent)-1].msg
	w.discard(target("e1", c))
	c.heal()
	w.must(c.engine.Receive(w.ctx, late.Copy()))
	w.effects("a forced run that was discarded does not run", c, "e1")
	w.force(target("e1", c))
	w.status("forcing takes a discard back, as the event is processed", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.must(c.engine.Receive(w.ctx, late.Copy()))
	w.effects("but not for the run that was discarded", c, "e1")
	w.rest()
	w.effects("the new one runs", c, "e1", "e1")
}

func forceTwice[Tx any](w *world[Tx]) {
	c := processed(w, nil, "", "e1")
	w.force(target("e1", c))
	err := w.deadLetters.Force(w.ctx, target("e1", c), "test", "")
	w.equal("while a forced run is on its way, another is refused, lest one of them count for both", errors.Is(err, eventing.ErrState), true)
	w.rest()
	w.force(target("e1", c))
	w.rest()
	w.effects("forced twice, it runs twice", c, "e1", "e1", "e1")
	first := c.delivery(order("e1", ""))
	first.Generation, first.Force = 1, true
	c.decide("a forced run that comes after a later one does not run", first, eventing.DecideAck)
	first.Generation = 3
	c.decide("a later one would", first, eventing.DecideRun)
	first.Force = false
	c.decide("a replay that is not forced does not, whatever its generation", first, eventing.DecideAck)
}

// forced is the delivery of the first forced run of an event.
func (c *consumer[Tx]) forced(id string) eventing.Delivery {
	d := c.delivery(order(id, ""))
	d.Generation, d.Force = 1, true
	return d
}

func forceTwin[Tx any](w *world[Tx]) {
	c := processed(w, nil, "", "e1", "e2")
	_, first := c.arrive(c.forced("e1"))
	_, second := c.arrive(c.forced("e1"))
	w.must(c.succeedRun(first))
	w.equal("a second success is a conflict", errors.Is(c.succeedRun(second), eventing.ErrConflict), true)
	w.equal("so is a failure after it", errors.Is(c.failRun(second, eventing.StateDead), eventing.ErrConflict), true)
	_, first = c.arrive(c.forced("e2"))
	_, second = c.arrive(c.forced("e2"))
	w.must(c.failRun(first, eventing.StateRetrying))
	w.equal("a success after a failure is a conflict", errors.Is(c.succeedRun(second), eventing.ErrConflict), true)
	w.equal("a conflict rolls the effect back", c.sorted(), list("e1", "e1", "e2"))
	c.decide("the message that comes again does not run beside the retry", c.forced("e2"), eventing.DecideAck)
	w.deliveries("the first conclusions stand", 1, 0, 0)
	w.nothingDead("the first conclusions stand")
}

func forceForget[Tx any](w *world[Tx]) {
	c := processed(w, nil, "", "e1", "e2")
	stale := eventing.Run{Delivery: c.delivery(order("e1", "")), Found: eventing.StateRetrying}
	_, run := c.arrive(c.forced("e1"))
	w.must(c.failRun(run, eventing.StateRetrying))
	_, dead := c.arrive(c.forced("e2"))
	w.must(c.failRun(dead, eventing.StateDead))
	for _, r := range []eventing.Run{stale, run, dead} {
		w.must(w.db.Forget(w.ctx, r, w.clock.Now()))
	}
	w.deliveries("that the event was processed before does not end a forced run", 1, 0, 1)
	w.status("nor close its dead letter", target("e2", c), eventing.StatusPending, "")
	due := c.due("a", 10)
	w.equal("its retry is forced, too", []any{len(due), w.clock.Now()}, []any{0, w.clock.Now()})
	w.clock.Advance(2 * time.Hour)
	due = c.due("b", 10)
	if len(due) != 1 || !due[0].Force || due[0].Generation != 1 {
		w.Fatalf("broken: a forced run is redelivered as one; got %+v", due)
	}
	w.must(c.succeedRun(due[0]))
	w.deliveries("success removes it", 0, 0, 1)
}

func forceRefused[Tx any](w *world[Tx]) {
	w.dispatchWith(eventing.DispatcherConfig{DeleteSent: true})
	c := die(w, "e1")
	w.append(order("e2", ""))
	w.rest()
	force := func(id string) error { return w.deadLetters.Force(w.ctx, target(id, c), "ann", "") }
	for what, want := range map[string]struct{ err, sentinel error }{
		"what is open is replayed":          {force("e1"), eventing.ErrState},
		"what nobody knows is not there":    {force("e3"), eventing.ErrNotFound},
		"what was deleted has no payload":   {force("e2"), eventing.ErrNotFound},
		"what was processed elsewhere, too": {w.deadLetters.Force(w.ctx, eventing.Target{EventID: "e2", Consumer: "mail"}, "ann", ""), eventing.ErrNotFound},
	} {
		if !errors.Is(want.err, want.sentinel) {
			w.Errorf("broken: %s: want %v; got %v", what, want.sentinel, want.err)
		}
	}
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	c.fail(errBusy, "e1")
	w.force(target("e1", c))
	w.rest()
	if err := force("e1"); !errors.Is(err, eventing.ErrState) {
		w.Errorf("broken: what is under way is not forced again; got %v", err)
	}
	w.effects("what is refused does not run", c, "e2", "e1")
}

func forceAct[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	options := eventing.ReplayOptions{By: "bob", Note: "lost", Plan: "p1", Generation: 1}
	w.must(w.deadLetters.ForceAs(w.ctx, target("e1", c), options))
	w.equal("what a plan has forced is not forced by it again",
		errors.Is(w.deadLetters.ForceAs(w.ctx, target("e1", c), options), eventing.ErrChanged), true)
	dl := w.deadLetter(target("e1", c))
	last := dl.Acts[len(dl.Acts)-1]
	w.equal("the act is recorded", []any{last.Act, last.By, last.Note, last.Plan, last.At.Equal(w.clock.Now()), dl.Generation},
		[]any{"forced", "bob", "lost", "p1", true, 2})
	w.status("the dead letter stays closed", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	c.fail(errHopeless, "e1")
	w.rest()
	dl = w.deadLetter(target("e1", c))
	w.equal("a new death opens it, and its history goes on", []any{dl.Status, dl.Resolution, dl.AttemptCount, dl.Generation, len(dl.Acts)},
		[]any{eventing.StatusPending, eventing.Resolution(""), 2, 2, 2})
}

func forceLost[Tx any](w *world[Tx]) {
	c := processed(w, nil, "", "e1")
	w.force(target("e1", c))
	w.dispatch()
	w.broker.lose()
	w.clock.Advance(2 * grace)
	_, found := w.audit(auditing{})
	w.equal("a forced run that the broker has lost is named", found, list("e1 missing billing"))
	_, err := eventing.Requeue(w.ctx, w.db, eventing.RequeueFilter{EventIDs: []string{"e1"}}, false)
	w.must(err)
	w.rest()
	w.effects("and runs when it is sent again, as the event itself does not", c, "e1", "e1")
	w.clock.Advance(2 * grace)
	_, found = w.audit(auditing{})
	w.equal("then nothing is missing", found, list())
}

func forcePruned[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.decide("where the inbox has forgotten the event, it runs as others do", c.forced("e1"), eventing.DecideRun)
	_, run := c.arrive(c.forced("e1"))
	_, twin := c.arrive(c.forced("e1"))
	w.must(c.succeedRun(run))
	w.equal("once", errors.Is(c.failRun(twin, eventing.StateDead), eventing.ErrConflict), true)
	c.decide("and once only", c.forced("e1"), eventing.DecideAck)
	_, first := c.arrive(c.forced("e2"))
	w.must(c.failRun(first, eventing.StateDead))
	w.equal("a failure leaves no inbox row", w.stats().Inbox, int64(1))
}

// forceRefusedByPolicy has a consumer refuse what is forced, and what died of a forced run
// before it did.
func forceRefusedByPolicy[Tx any](w *world[Tx]) {
	c := processed(w, ordered, "K", "e1")
	c.fail(errHopeless, "e1")
	w.force(target("e1", c))
	w.rest()
	w.status("a forced run dies", target("e1", c), eventing.StatusPending, "")
	w.append(order("e2", "K"))
	w.rest()
	w.deliveries("its key waits", 0, 1, 1)
	c.cfg.Policy.RefuseForce = true
	c.start()
	c.heal()
	runs := len(c.ran())
	w.replay(target("e1", c))
	w.rest()
	w.status("its replay is refused, as it is processed", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.effects("without the handler, and the key goes on", c, "e1", "e2")
	w.equal("the handler ran for the next one only", len(c.ran())-runs, 1)
	w.force(target("e1", c))
	w.rest()
	w.effects("a new one is refused, too", c, "e1", "e2")
	w.deliveries("nothing is left in trouble", 0, 0, 0)
}
