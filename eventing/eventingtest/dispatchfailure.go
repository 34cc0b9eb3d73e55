package eventingtest

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

func dispatchFailureTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"no route is a dead letter":                         failNoRoute[Tx],
		"one message that cannot be published":              failUnpublishable[Tx],
		"it holds its key until discarded":                  failHoldsUntilDiscard[Tx],
		"it holds its key until its replay is published":    failHoldsUntilReplay[Tx],
		"an event that does not encode holds its key":       failUnencodable[Tx],
		"an unordered consumer's keys are not held":         failUnordered[Tx],
		"only a pending row that is held can fail":          failConditional[Tx],
		"a dead letter of a replay is that of its consumer": failReplay[Tx],
	}
}

// dispatchTarget names the dead letter of an event that could not be published.
func dispatchTarget(eventID string) eventing.Target { return eventing.Target{EventID: eventID} }

// samePartition returns n keys that hash to one partition, so that the messages of
// an ordered consumer share a topic.
func samePartition(n int) []string {
	keys := []string{"K"}
	for c := 'a'; len(keys) < n; c++ {
		if key := string(c); eventing.PartitionOf(key, "") == eventing.PartitionOf("K", "") {
			keys = append(keys, key)
		}
	}
	return keys
}

func failNoRoute[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	lost := order("lost", "K")
	lost.Type = "order.lost"
	w.append(order("e1", "K"), lost, order("e2", "K"))
	w.rest()
	w.effects("an event that goes nowhere holds up no other", c, "e1", "e2")
	w.outboxStatus("a row that cannot be routed has failed", "lost", "failed")
	dl := w.deadLetter(dispatchTarget("lost"))
	w.equal("no event is dropped silently", []any{dl.Stage, dl.Reason, dl.Status, dl.EventType},
		[]any{eventing.StageDispatch, eventing.ReasonNoRoute, eventing.StatusPending, "order.lost"})
}

func failUnpublishable[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(orders("", "e1", "e2", "big", "e3", "e4")...)
	w.broker.refuseEvents("big")
	w.rest()
	w.effects("one message that the broker does not take holds up no other", c, "e1", "e2", "e3", "e4")
	w.outboxStatus("a row that cannot be published has failed", "big", "failed")
	dl := w.deadLetter(dispatchTarget("big"))
	w.equal("a row that cannot be published is a dead letter of stage dispatch", []any{dl.Stage, dl.Reason, dl.Status},
		[]any{eventing.StageDispatch, eventing.ReasonUnpublishable, eventing.StatusPending})
	w.broker.refuseIf(nil)
	w.replay(dispatchTarget("big"))
	w.rest()
	w.effects("its replay reaches the consumers", c, "e1", "e2", "e3", "e4", "big")
	w.status("publishing the replay closes the dead letter", dispatchTarget("big"), eventing.StatusClosed, eventing.Resolved)
}

// holdKey leaves e1 of key K dead at dispatch, e2 of K held, and f1 and f2 of
// another key handled.
func holdKey[Tx any](w *world[Tx]) *consumer[Tx] {
	w.Helper()
	c := w.consumer("ledger", ordered)
	keys := samePartition(2)
	w.append(order("e1", keys[0]), order("f1", keys[1]), order("e2", keys[0]))
	w.broker.refuseEvents("e1")
	w.rest()
	w.append(order("e3", keys[0]), order("f2", keys[1]))
	w.rest()
	w.effects("of a key, nothing passes an event that cannot be published; other keys flow", c, "f1", "f2")
	w.outboxStatus("the event itself has failed", "e1", "failed")
	w.outboxStatus("later rows of the key stay pending", "e2", "pending")
	w.outboxStatus("later rows of the key stay pending", "e3", "pending")
	return c
}

func failHoldsUntilDiscard[Tx any](w *world[Tx]) {
	c := holdKey(w)
	w.discard(dispatchTarget("e1"))
	w.rest()
	w.effects("after the discard the key goes on without the event", c, "f1", "f2", "e2", "e3")
	w.status("a discard closes", dispatchTarget("e1"), eventing.StatusClosed, eventing.Discarded)
}

func failHoldsUntilReplay[Tx any](w *world[Tx]) {
	c := holdKey(w)
	w.broker.refuseIf(func(*message.Message) bool { return true })
	w.replay(dispatchTarget("e1"))
	if _, err := w.dispatcher.DispatchOnce(w.ctx); err == nil {
		w.Fatal("broken: a broker that takes nothing is reported")
	}
	w.broker.refuseIf(nil)
	w.outboxStatus("until the replay is published, the key is held", "e2", "pending")
	w.equal("the replay goes first, and what is held is not claimed beside it", eventIDs(w.claim(10)), list("e1"))
	w.rest()
	w.effects("after the replay the key goes on, in order", c, "f1", "f2", "e1", "e2", "e3")
	w.status("publishing the replay closes", dispatchTarget("e1"), eventing.StatusClosed, eventing.Resolved)
}

// failingCodec cannot encode some events.
type failingCodec struct {
	eventing.EnvelopeCodec
	bad string
}

func (c failingCodec) Marshal(e eventing.Envelope) (*message.Message, error) {
	if e.ID == c.bad {
		return nil, errors.New("does not fit the format")
	}
	return c.EnvelopeCodec.Marshal(e)
}

func failUnencodable[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	c.codec = failingCodec{bad: "e2"}
	w.append(orders("K", "e1", "e2", "e3")...)
	w.append(order("f1", samePartition(2)[1]))
	w.rest()
	w.effects("of a key, nothing passes an event that does not encode", c, "e1", "f1")
	dl := w.deadLetter(dispatchTarget("e2"))
	w.equal("an event that does not encode is a dead letter of stage dispatch", dl.Stage, eventing.StageDispatch)
	c.codec = nil
	w.replay(dispatchTarget("e2"))
	w.rest()
	w.effects("after the replay the key goes on, in order", c, "e1", "f1", "e2", "e3")
}

func failUnordered[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(orders("K", "e1", "e2")...)
	w.broker.refuseEvents("e1")
	w.rest()
	w.append(order("e3", "K"))
	w.rest()
	w.effects("where no ordered consumer is routed, nothing is held", c, "e2", "e3")
}

func failConditional[Tx any](w *world[Tx]) {
	w.append(order("e1", ""))
	rows := w.claim(1)
	w.lease(eventing.DispatchScope, "a")
	fail := func(holder string) {
		w.Helper()
		err := w.db.FailDispatch(w.ctx, eventing.DispatchFailure{
			Row: rows[0], Holder: holder, Reason: eventing.ReasonUnpublishable, Message: "too large",
			Now: w.clock.Now(), DeadLetterUntil: w.clock.Now().Add(1),
		})
		if err != nil && !errors.Is(err, eventing.ErrLeaseLost) && !errors.Is(err, eventing.ErrConflict) {
			w.Fatal(err)
		}
	}
	fail("b")
	w.outboxStatus("a dispatcher that does not hold the partition fails nothing", "e1", "pending")
	w.equal("the holder settles", w.settle("a", rows), 1)
	fail("a")
	w.outboxStatus("a row that was sent does not fail", "e1", "sent")
	w.nothingDead("a failure that came too late leaves no dead letter")
}

func failReplay[Tx any](w *world[Tx]) {
	c, other := w.consumer("billing", nil), w.consumer("mail", nil)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.broker.refuseEvents("e1")
	w.replay(target("e1", c))
	w.append(order("e2", ""))
	w.rest()
	w.append(order("e3", ""))
	w.rest()
	dl := w.deadLetter(target("e1", c))
	w.equal("a replay that cannot be published is again a dead letter of its consumer", []any{dl.Reason, dl.Status},
		[]any{eventing.ReasonUnpublishable, eventing.StatusPending})
	w.equal("its history is kept", []int{dl.AttemptCount, len(dl.History)}, []int{1, 1})
	w.equal("and of no other", len(w.graveyard()), 1)
	w.broker.refuseIf(nil)
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	w.effects("it can be replayed again", c, "e2", "e3", "e1")
	w.effects("other consumers do not see the replay", other, "e1", "e2", "e3")
	w.status("success closes it", target("e1", c), eventing.StatusClosed, eventing.Resolved)
}
