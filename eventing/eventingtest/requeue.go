package eventingtest

import (
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func requeueTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"what the broker lost is sent again":        requeueLost[Tx],
		"a dry run only counts":                     requeueDry[Tx],
		"by time":                                   requeueByTime[Tx],
		"only what was sent, as far as it is kept":  requeueReach[Tx],
		"a selection is needed":                     requeueNeeds[Tx],
		"it releases no key and overtakes no event": requeueOrdered[Tx],
	}
}

func (w *world[Tx]) requeue(f eventing.RequeueFilter, dry bool) int {
	w.Helper()
	n, err := eventing.Requeue(w.ctx, w.db, f, dry)
	w.must(err)
	return n
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
