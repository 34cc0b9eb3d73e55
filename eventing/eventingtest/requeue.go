package eventingtest

import (
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func requeueTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"what the broker lost is sent again":         requeueLost[Tx],
		"a dry run only counts":                      requeueDry[Tx],
		"by time":                                    requeueByTime[Tx],
		"only what was sent, as far as it is kept":   requeueReach[Tx],
		"a selection is needed":                      requeueNeeds[Tx],
		"it releases no key and overtakes no event":  requeueOrdered[Tx],
		"an event that was appended twice":           requeueTwins[Tx],
		"it says what it cannot send again, and why": requeueExplains[Tx],
	}
}

func (w *world[Tx]) requeue(f eventing.RequeueFilter, dry bool) int {
	w.Helper()
	n, err := eventing.Requeue(w.ctx, w.db, f, dry)
	w.must(err)
	return n.Rows
}

func requeueLost[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(order("e1", ""))
	w.rest()
	w.append(order("e2", ""))
	w.dispatch()
	w.broker.lose()
	w.outboxStatus("the broker has taken it", "e2", "sent")
	w.equal("both can be sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1", "e2", "e3"}}, false), 2)
	w.rest()
	w.effects("what was lost is handled; what was processed is recognised", c, "e1", "e2")
	w.outboxStatus("and settled again", "e1", "sent")
}

func requeueTwins[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	w.append(orders("", "e1", "e2")...)
	w.rest()
	// Where IDs are unique for ever it is refused, and there is one row.
	twin := func() error {
		return w.db.InTx(w.ctx, func(tx Tx) error { return w.outbox.Append(w.ctx, tx, order("e1", "")) })
	}
	refused := twin() != nil
	w.rest()
	both := eventing.RequeueFilter{EventIDs: []string{"e1", "e2"}}
	w.equal("is sent again once", []int{w.requeue(both, true), w.requeue(both, false)}, []int{2, 2})
	w.rest()
	if !refused {
		w.must(twin())
		rows, err := w.db.AuditEvents(w.ctx, []string{"e1"})
		w.must(err)
		n, err := w.db.Requeue(w.ctx, []int64{rows[0].Seq})
		w.must(err)
		w.equal("a store keeps the IDs of pending rows unique", n, 0)
		w.equal("and not at all while it is pending", []int{w.requeue(both, true), w.requeue(both, false)}, []int{1, 1})
		w.rest()
	}
	w.equal("everything is settled", w.stats().Outbox["pending"], int64(0))
}

func requeueDry[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(orders("", "e1", "e2")...)
	w.rest()
	w.equal("a dry run counts", w.requeue(eventing.RequeueFilter{SentFrom: w.clock.Now().Add(-time.Hour)}, true), 2)
	w.outboxStatus("and changes nothing", "e1", "sent")
	w.rest()
	w.equal("nothing runs again", c.ran(), list("e1", "e2"))
}

func requeueByTime[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	start := w.clock.Now()
	for _, id := range []string{"e1", "e2", "e3"} {
		w.append(order(id, ""))
		w.rest()
		w.clock.Advance(time.Hour)
	}
	w.equal("from a time on, inclusive", w.requeue(eventing.RequeueFilter{SentFrom: start.Add(time.Hour)}, true), 2)
	w.equal("to a time, exclusive", w.requeue(eventing.RequeueFilter{SentFrom: start, SentTo: start.Add(time.Hour)}, true), 1)
	w.equal("an ID narrows the time", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e3"}, SentFrom: start, SentTo: start.Add(time.Hour)}, true), 0)
	w.equal("what is selected is sent again", w.requeue(eventing.RequeueFilter{SentFrom: start, SentTo: start.Add(time.Hour)}, false), 1)
	w.rest()
	w.equal("and nothing else", w.broker.ids(""), []string{"e1", "e2", "e3", "e1"})
}

func requeueReach[Tx any](w *world[Tx]) {
	w.consumer("billing", keeping)
	lost := order("lost", "")
	lost.Type = "order.lost"
	w.append(order("e1", ""), lost)
	w.rest()
	w.append(order("new", ""))
	w.equal("only sent rows are selected", w.requeue(eventing.RequeueFilter{EventIDs: []string{"lost", "new"}}, false), 0)
	w.outboxStatus("a failed row stays failed", "lost", "failed")
	w.later(2 * sentRetention)
	w.equal("what is not kept cannot be sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1"}}, false), 0)
}

func requeueNeeds[Tx any](w *world[Tx]) {
	if _, err := eventing.Requeue(w.ctx, w.db, eventing.RequeueFilter{}, false); err == nil {
		w.Error("broken: sending everything again needs a selection")
	}
}

// requeueOrdered sends again the events of a key that is held.
func requeueOrdered[Tx any](w *world[Tx]) {
	c := closeGate(w)
	w.equal("all of the key can be sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1", "e2", "e3", "e4", "e5"}}, false), 5)
	w.rest()
	w.effects("sending again releases no key", c, "e1", "f1", "f2")
	w.deliveries("what waits goes on waiting", 0, 3, 1)
	c.heal()
	w.replay(target("e2", c))
	w.rest()
	w.effects("the key goes on in order", c, "e1", "f1", "f2", "e2", "e3", "e4", "e5")
}

func requeueExplains[Tx any](w *world[Tx]) {
	w.consumer("billing", keeping)
	w.append(order("old", ""))
	w.rest()
	w.later(2 * sentRetention)
	lost := order("lost", "")
	lost.Type = "order.lost"
	w.append(order("e1", ""), lost)
	w.rest()
	w.clock.Advance(time.Hour)
	w.append(order("new", ""))
	f := eventing.RequeueFilter{EventIDs: []string{"new", "old", "never", "e1", "lost", "e1", "never"}}
	for _, dry := range []bool{true, false} {
		got, err := eventing.Requeue(w.ctx, w.db, f, dry)
		w.must(err)
		w.equal("it says how far it reaches", got.OldestSent.Equal(w.clock.Now().Add(-time.Hour)), true)
		got.OldestSent = time.Time{}
		w.equal("and what it cannot send again, once", got, eventing.Requeued{
			Rows: 1, NotKept: []string{"never", "old"}, Pending: []string{"new"}, Failed: []string{"lost"},
		})
	}
	got, err := eventing.Requeue(w.ctx, w.db, f, false)
	w.must(err)
	w.equal("what is sent again is pending", got, eventing.Requeued{
		NotKept: []string{"never", "old"}, Pending: []string{"e1", "new"}, Failed: []string{"lost"},
	})
	seqs := []int64{}
	rows, err := w.db.AuditEvents(w.ctx, []string{"e1", "lost", "new"})
	w.must(err)
	for _, row := range rows {
		seqs = append(seqs, row.Seq)
	}
	n, err := w.db.Requeue(w.ctx, seqs)
	w.must(err)
	w.equal("a store makes nothing pending that is not sent", n, 0)
	w.outboxStatus("a store makes nothing pending that is not sent", "lost", "failed")
}
