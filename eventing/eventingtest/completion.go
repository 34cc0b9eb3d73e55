package eventingtest

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// With the broker in the same process, a row is settled when its consumers have
// concluded, and no earlier.
func completionTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"a row is pending until its consumers have concluded": completionPending[Tx],
		"a crash before that loses nothing":                   completionCrash[Tx],
		"retrying counts as concluded":                        completionRetrying[Tx],
		"a dead letter makes the row failed":                  completionDead[Tx],
		"also hours after the row was sent":                   completionDeadLate[Tx],
		"a message that cannot be handled is sent again":      completionRefused[Tx],
		"a topic that is not taken keeps the row pending":     completionTopicRefused[Tx],
		"replays are settled too":                             completionReplay[Tx],
		"a replay that is retried has a row of its own":       completionReplayRetried[Tx],
		"a replay is settled by its consumer":                 completionReplayOfOne[Tx],
	}
}

func completionPending[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	c := w.consumer("billing", nil)
	w.append(order("e1", ""))
	w.dispatch()
	w.dispatch()
	w.equal("what is in flight is not published again", w.broker.ids(""), []string{"e1"})
	w.outboxStatus("a row whose consumers have not concluded is pending", "e1", "pending")
	w.deliver()
	w.effects("the event is handled", c, "e1")
	w.dispatch()
	w.outboxStatus("a row whose consumers have concluded is sent", "e1", "sent")
}

func completionCrash[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	b.fail(errHopeless, "e2")
	w.append(order("e1", ""), order("e2", ""))
	a.fail(errHopeless, "e2")
	w.dispatch()
	w.deliver(a)
	w.dispatch()
	w.outboxStatus("one consumer that has not concluded keeps the row pending", "e1", "pending")
	w.outboxStatus("also if the other's delivery has died", "e2", "pending")
	w.restart()
	w.rest()
	w.effects("after the crash the first consumer's inbox drops the second copy", a, "e1")
	w.effects("after the crash the other consumer gets what it had not concluded", b, "e1")
	w.equal("a dead delivery does not run again by itself", a.ran(), list("e1", "e2"))
	w.equal("the other consumer runs it", b.ran(), list("e1", "e2"))
	w.outboxStatus("both have concluded: sent", "e1", "sent")
	w.outboxStatus("both are dead: failed", "e2", "failed")
}

func completionRetrying[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	c := w.consumer("ledger", ordered)
	c.fail(errBusy, "e1")
	w.append(orders("K", "e1", "e2")...)
	w.rest()
	w.deliveries("a failed event retries, the next of its key is parked", 1, 1, 0)
	w.outboxStatus("retrying counts as concluded", "e1", "sent")
	w.outboxStatus("parked counts as concluded", "e2", "sent")
}

func completionDead[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	a.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.effects("one consumer's dead letter is nothing to the other", b, "e1")
	w.outboxStatus("a dead letter makes the row failed", "e1", "failed")
}

func completionDeadLate[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	c := w.consumer("billing", nil)
	c.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.outboxStatus("retrying counts as concluded", "e1", "sent")
	for range 2 {
		w.clock.Advance(4 * time.Hour)
		w.rest()
	}
	w.deliveries("the third attempt was the last", 0, 0, 1)
	w.outboxStatus("the transaction that opens the dead letter sets the row failed, also hours later", "e1", "failed")
}

func completionRefused[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	c := w.consumer("billing", nil)
	w.append(order("e1", ""))
	w.dispatch()
	it := w.broker.next("billing")
	w.broker.lose()
	it.done(it.msg, errors.New("the subscriber is gone"))
	w.outboxStatus("a message that nobody could handle leaves its row pending", "e1", "pending")
	w.rest()
	w.effects("it is published again", c, "e1")
	w.outboxStatus("and then settled", "e1", "sent")
}

func completionTopicRefused[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	w.append(orders("", "e1", "e2")...)
	w.broker.refuseIf(func(m *message.Message) bool { return m.Metadata.Get(eventing.MetadataConsumers) == "mail" })
	w.dispatch()
	w.deliver()
	w.dispatch()
	w.effects("the topic that was taken is delivered", a, "e1", "e2")
	w.outboxStatus("the one that was not keeps the row pending", "e1", "pending")
	w.broker.refuseIf(nil)
	w.rest()
	w.effects("and is published again", b, "e1", "e2")
	w.effects("what was handled is recognised", a, "e1", "e2")
	w.outboxStatus("then the row is settled", "e1", "sent")
}

func completionReplay[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	c := w.consumer("billing", nil)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.replay(target("e1", c))
	w.rest()
	w.outboxStatus("a replay that fails again makes its row failed", "e1", "failed", "failed")
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	w.outboxStatus("a replay that succeeds is sent", "e1", "failed", "failed", "sent")
	w.status("success closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
}

// completionReplayRetried has a replay die at its last attempt, hours after its own row
// was sent.
func completionReplayRetried[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	c := w.consumer("billing", nil)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	c.fail(errBusy, "e1")
	w.replay(target("e1", c))
	w.rest()
	w.outboxStatus("a replay that is retried counts as concluded", "e1", "failed", "sent")
	for range 2 {
		w.clock.Advance(4 * time.Hour)
		w.rest()
	}
	w.status("the third attempt was the last", target("e1", c), eventing.StatusPending, "")
	w.outboxStatus("a replay that dies makes its own row failed, also hours after that was sent", "e1", "failed", "failed")
}

func completionReplayOfOne[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	a.fail(errHopeless, "e1")
	b.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	a.heal()
	w.replay(target("e1", a))
	w.rest()
	w.outboxStatus("another consumer's dead letter is nothing to a replay", "e1", "failed", "sent")
}
