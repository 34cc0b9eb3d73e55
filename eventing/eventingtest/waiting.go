package eventingtest

import (
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func backlogTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"an empty store":                        backlogEmpty[Tx],
		"what is due, and since when":           backlogDue[Tx],
		"written by hand and not yet adopted":   backlogByHand[Tx],
		"sent again: due since it was appended": backlogRequeued[Tx],
		"the count of a partition is bounded":   backlogBounded[Tx],
		"deliveries and dead letters":           backlogDeliveries[Tx],
		"dead letters until they are closed":    backlogDeadLetters[Tx],
	}
}

func (w *world[Tx]) backlog() eventing.Backlog {
	w.Helper()
	b, err := w.db.Backlog(w.ctx, w.clock.Now())
	w.must(err)
	return b
}

// ages checks how long ago the oldest due, pending and sent rows were; -1: there is none.
func (w *world[Tx]) ages(guarantee string, b eventing.Backlog, due, pending, sent time.Duration) {
	w.Helper()
	age := func(t time.Time) time.Duration {
		if t.IsZero() {
			return -1
		}
		return w.clock.Now().Sub(t)
	}
	w.equal(guarantee+" (ages of the oldest due, pending, sent)",
		[]time.Duration{age(b.OldestDue), age(b.OldestPending), age(b.OldestSent)}, []time.Duration{due, pending, sent})
}

func backlogEmpty[Tx any](w *world[Tx]) {
	b := w.backlog()
	w.equal("nothing waits in an empty store", []any{b.Due, len(b.Deliveries), len(b.DeadLetters)}, []any{int64(0), 0, 0})
	w.ages("nothing waits in an empty store", b, -1, -1, -1)
}

func backlogDue[Tx any](w *world[Tx]) {
	w.consumer("billing", keeping)
	w.append(order("e1", ""))
	w.rest()
	w.clock.Advance(time.Minute)
	late := order("late", "")
	late.DueAt = w.clock.Now().Add(time.Hour)
	w.append(late)
	w.clock.Advance(time.Minute)
	b := w.backlog()
	w.equal("a delayed row is not due", b.Due, int64(0))
	w.ages("but pending", b, -1, time.Minute, 2*time.Minute)
	w.append(order("e2", ""), order("e3", ""))
	w.clock.Advance(time.Minute)
	b = w.backlog()
	w.equal("what was appended is due", b.Due, int64(2))
	w.ages("since then", b, time.Minute, 2*time.Minute, 3*time.Minute)
	w.clock.Advance(2 * time.Hour)
	w.rest()
	w.append(order("e4", ""))
	b = w.backlog()
	w.equal("what was sent is not due any more", b.Due, int64(1))
	w.ages("nor pending", b, 0, 0, 123*time.Minute)
	delayed := order("e5", "")
	delayed.DueAt = w.clock.Now().Add(time.Hour)
	w.rest()
	w.append(delayed)
	w.clock.Advance(61 * time.Minute)
	b = w.backlog()
	w.equal("a delayed row falls due", b.Due, int64(1))
	w.ages("when its time has come", b, time.Minute, 61*time.Minute, 184*time.Minute)
}

func backlogByHand[Tx any](w *world[Tx]) {
	w.must(w.db.InsertByHand(w.ctx, "r1", "e1", "order.placed", []byte(`{"event_id":"e1"}`)))
	w.clock.Advance(time.Hour) // the row has the server's time
	b := w.backlog()
	w.equal("a row written by hand is due", b.Due, int64(1))
	for name, since := range map[string]time.Time{"due": b.OldestDue, "pending": b.OldestPending} {
		w.equal(name+" since it was written", since.Before(w.clock.Now().Add(-50*time.Minute)) && !since.IsZero(), true)
	}
}

func backlogRequeued[Tx any](w *world[Tx]) {
	w.consumer("billing", keeping)
	w.append(order("e1", ""))
	w.rest()
	w.clock.Advance(time.Minute)
	w.equal("sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1"}}, false), 1)
	w.ages("a row that is sent again is no older than it is", w.backlog(), time.Minute, time.Minute, -1)
}

func backlogBounded[Tx any](w *world[Tx]) {
	const more = eventing.BacklogPartitionLimit + 5
	var events []eventing.Appendable
	for n := range more {
		events = append(events, order(fmt.Sprintf("e%04d", n), "K"))
	}
	w.append(events...)
	due := w.backlog().Due
	w.equal(fmt.Sprintf("%d due rows of a partition are counted up to the limit at least, and not beyond what there is: %d", more, due),
		due == eventing.BacklogPartitionLimit || due == more, true)
}

func backlogDeliveries[Tx any](w *world[Tx]) {
	c := closeGate(w) // ledger: e2 is dead, e3, e4, e5 are parked
	keys := samePartition(2)
	c.fail(errBusy, "f3")
	w.append(order("f3", keys[1]), order("f4", keys[1]))
	w.rest()
	lost := order("lost", "")
	lost.Type = "order.lost"
	w.append(lost)
	w.rest()
	b := w.backlog()
	w.equal("deliveries that wait are counted by consumer, dead ones not", b.Deliveries,
		map[string]eventing.WaitingDeliveries{"ledger": {Retrying: 1, Parked: 4, ParkedKeys: 2}})
	w.equal("open dead letters are counted by consumer", b.DeadLetters, map[string]int64{"ledger": 1, "": 1})
}

func backlogDeadLetters[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errHopeless, "e1", "e2")
	w.append(orders("", "e1", "e2")...)
	w.rest()
	w.equal("dead letters are open", w.backlog().DeadLetters, map[string]int64{"billing": 2})
	c.heal()
	w.replay(target("e1", c))
	w.equal("also while they are replayed", w.backlog().DeadLetters, map[string]int64{"billing": 2})
	w.rest()
	w.equal("until a replay has succeeded", w.backlog().DeadLetters, map[string]int64{"billing": 1})
	w.discard(target("e2", c))
	w.equal("or they are discarded", w.backlog().DeadLetters, map[string]int64{})
}
