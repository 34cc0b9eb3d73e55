package eventingtest

import (
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// A dispatcher may delete rows instead of marking them as sent.
func deleteSentTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"what was handed over is gone":               deleteHandedOver[Tx],
		"in one process, a row that failed stays":    deleteByCompletion[Tx],
		"a dead letter does not need its row":        deleteDead[Tx],
		"publishing a replay lets go of its key":     deletePublishedReplay[Tx],
		"a critical row goes in its turn":            deleteExpedited[Tx],
		"deleting is conditional, too":               deleteConditional[Tx],
		"a crash before that is one before settling": deleteCrash[Tx],
	}
}

func (w *world[Tx]) deleteSent() {
	w.Helper()
	w.dispatchWith(eventing.DispatcherConfig{DeleteSent: true})
}

func deleteHandedOver[Tx any](w *world[Tx]) {
	w.deleteSent()
	c := w.consumer("billing", nil)
	lost := order("lost", "")
	lost.Type = "order.lost"
	w.append(order("e1", ""), order("e2", "K"), lost)
	w.rest()
	w.effects("the events are handled", c, "e1", "e2")
	w.outboxStatus("what was handed over is gone", "e1")
	w.outboxStatus("what was handed over is gone", "e2")
	w.outboxStatus("what failed stays", "lost", "failed")
	w.equal("nothing can be sent again", w.requeue(eventing.RequeueFilter{SentFrom: w.clock.Now().Add(-time.Hour)}, false), 0)
	w.append(order("e3", "K"))
	w.rest()
	w.effects("and the dispatcher goes on", c, "e1", "e2", "e3")
}

func deleteByCompletion[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	w.deleteSent()
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	a.fail(errHopeless, "e1")
	a.fail(errBusy, "e2")
	w.append(orders("K", "e1", "e2", "e3")...)
	w.dispatch()
	w.outboxStatus("a row whose consumers have not concluded is pending", "e3", "pending")
	w.rest()
	w.effects("the events are handled", b, "e1", "e2", "e3")
	w.outboxStatus("a row whose event died at a consumer stays, as failed", "e1", "failed")
	w.outboxStatus("one that is retried counts as concluded", "e2")
	w.outboxStatus("the others are gone", "e3")
	w.equal("nothing can be sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1", "e2", "e3"}}, false), 0)
	a.heal()
	w.replay(target("e1", a))
	w.rest()
	w.effects("the dead letter can be replayed", a, "e3", "e1")
	w.outboxStatus("and the replay's row goes", "e1", "failed")
	w.status("success closes", target("e1", a), eventing.StatusClosed, eventing.Resolved)
	w.clock.Advance(2 * time.Hour)
	w.rest()
	w.effects("the retry needs no row", a, "e3", "e1", "e2")
}

func deleteDead[Tx any](w *world[Tx]) {
	w.deleteSent()
	c := w.consumer("ledger", ordered)
	c.fail(errHopeless, "e1")
	w.append(orders("K", "e1", "e2")...)
	w.rest()
	w.outboxStatus("with a remote broker, handed over is gone, whatever follows", "e1")
	w.deliveries("the event died, the next is parked", 0, 1, 1)
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	w.effects("a dead letter does not need its row to be replayed", c, "e1", "e2")
	c.fail(errHopeless, "e3")
	w.append(order("e3", "K"))
	w.rest()
	c.heal()
	w.replayBySQL("e3")
	w.rest()
	w.effects("also by plain SQL", c, "e1", "e2", "e3")
	w.status("success closes", target("e3", c), eventing.StatusClosed, eventing.Resolved)
	w.outboxStatus("and leaves no row", "e3")
}

func deletePublishedReplay[Tx any](w *world[Tx]) {
	w.deleteSent()
	c := holdKey(w)
	w.broker.refuseIf(nil)
	w.replay(dispatchTarget("e1"))
	w.rest()
	w.effects("after the replay the key goes on, in order", c, "f1", "f2", "e1", "e2", "e3")
	w.status("publishing the replay closes", dispatchTarget("e1"), eventing.StatusClosed, eventing.Resolved)
	w.outboxStatus("its row is gone, the failed one stays", "e1", "failed")
}

func deleteExpedited[Tx any](w *world[Tx]) {
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.append(orders("K", "e1", "e2", "e3")...)
	w.append(critical("c", "K"))
	w.dispatchWith(eventing.DispatcherConfig{DeleteSent: true, BatchSize: eventing.Partitions})
	w.dispatch()
	w.outboxStatus("a row whose ordered consumers wait stays", "c", "pending")
	w.rest()
	w.outboxStatus("and goes in its turn", "c")
	w.effects("each has had it", loose, "c", "e1", "e2", "e3")
	w.effects("each has had it", strict, "e1", "e2", "e3", "c")
}

func deleteConditional[Tx any](w *world[Tx]) {
	w.append(orders("K", "e1", "e2")...)
	w.append(order("f1", "L"))
	rows := w.claim(10)
	w.acquire(eventing.DispatchScope, "a", rows[0].Partition)
	remove := func(holder string, rows ...eventing.OutboxRow) int {
		w.Helper()
		n, err := w.db.Settle(w.ctx, eventing.SettleRequest{Holder: holder, Now: w.clock.Now(), Rows: rows, Delete: true})
		w.must(err)
		return n
	}
	w.equal("who holds nothing deletes nothing", remove("b", rows...), 0)
	w.equal("of partitions that are not held, nothing is deleted", remove("a", rows[0], rows[2]), 1)
	w.equal("a row is deleted once", remove("a", rows[0]), 0)
	w.equal("only the rows named are", eventIDs(w.claim(10)), list("e2", "f1"))
	w.equal("the holder settles", w.settle("a", rows[1:2]), 1)
	w.equal("what is settled is not deleted", remove("a", rows[1]), 0)
	w.outboxStatus("it is kept", "e2", "sent")
	w.clock.Advance(leaseTTL)
	w.append(order("e3", "K"))
	w.equal("a lease that has run out deletes nothing", remove("a", w.claim(10)...), 0)
}

func deleteCrash[Tx any](w *world[Tx]) {
	w.deleteSent()
	c := w.consumer("billing", nil)
	for _, p := range []eventing.FaultPoint{eventing.FaultPublished, eventing.FaultSettling} {
		id := "e at " + string(p)
		w.append(order(id, ""))
		w.faults.FailNext(p)
		w.dispatch()
		w.outboxStatus("what was not settled is there", id, "pending")
		w.rest()
		w.outboxStatus("it is published again and gone then", id)
	}
	w.equal("each effect happens once", len(c.effects()), 2)
}
