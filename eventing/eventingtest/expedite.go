package eventingtest

import (
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

func expediteTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"a critical event overtakes a backlog":         expediteOvertakes[Tx],
		"an ordered consumer gets it in its turn":      expediteOrdered[Tx],
		"where all are ordered, nothing is early":      expediteOnlyOrdered[Tx],
		"in one process too":                           expediteInProcess[Tx],
		"in one process, its turn may come meanwhile":  expediteRejoins[Tx],
		"in one process, a consumer may refuse it":     expediteRefused[Tx],
		"in one process, it does not wait for room":    expediteNoRoom[Tx],
		"it waits until it is due":                     expediteDue[Tx],
		"there is one lane to append to":               expediteLanes[Tx],
		"claims of critical rows are bounded":          expediteClaim[Tx],
		"marking is conditional":                       expediteConditional[Tx],
		"one that nobody takes holds up no other":      expeditePoison[Tx],
		"a topic that has it does not get it again":    expediteHalf[Tx],
		"one without a route is a dead letter":         expediteNoRoute[Tx],
		"what the broker lost is sent again to all":    expediteRequeue[Tx],
		"a key that is held holds up no unordered one": expediteHeld[Tx],
	}
}

func critical(id, key string) eventing.Event[orderPlaced] {
	e := order(id, key)
	e.Lane = eventing.Critical
	return e
}

// behind appends a critical event of key K behind others of that key, which do not fit
// into one batch with it.
func (w *world[Tx]) behind(id string, backlog ...string) {
	w.Helper()
	w.dispatchWith(eventing.DispatcherConfig{BatchSize: eventing.Partitions}) // one of each
	w.append(orders("K", backlog...)...)
	w.append(critical(id, "K"))
}

// criticals claims rows of the critical lane.
func (w *world[Tx]) criticals(most int, partitions ...eventing.PartitionClaim) []string {
	w.Helper()
	if partitions == nil {
		partitions = allPartitions(1)
	}
	c, err := w.db.Claim(w.ctx, eventing.ClaimRequest{Now: w.clock.Now(), Partitions: partitions, Critical: most})
	w.must(err)
	for _, row := range c.Critical {
		w.equal("a critical row is complete", []any{row.Lane, row.EventType, row.Partition, len(row.Payload) > 0},
			[]any{eventing.Critical, "order.placed", eventing.PartitionOf(row.OrderingKey, row.EventID), true})
	}
	return eventIDs(c.Critical)
}

// lane returns that of an event's pending row.
func (w *world[Tx]) lane(id string) eventing.Lane {
	w.Helper()
	for _, row := range w.claim(100) {
		if row.EventID == id {
			return row.Lane
		}
	}
	w.Fatalf("%s has no pending row", id)
	return ""
}

// head returns the first of some IDs.
func head(n int, ids []string) []string { return ids[:min(n, len(ids))] }

var ledgerTopic = eventing.PartitionTopic("ledger", eventing.PartitionOf("K", ""))

func expediteOvertakes[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	w.behind("c", "e1", "e2", "e3", "e4", "e5")
	w.dispatch()
	for _, topic := range []string{"billing", "mail"} {
		w.equal("a critical event goes before all that waits", head(1, w.broker.ids(topic)), []string{"c"})
	}
	w.outboxStatus("and needs no turn any more", "c", "sent")
	w.outboxStatus("the backlog goes on waiting", "e5", "pending")
	w.rest()
	w.effects("the backlog follows, and nothing comes twice", a, "c", "e1", "e2", "e3", "e4", "e5")
	w.effects("the backlog follows, and nothing comes twice", b, "c", "e1", "e2", "e3", "e4", "e5")
	w.equal("nor is anything published twice", len(w.broker.ids("")), 12)
}

func expediteOrdered[Tx any](w *world[Tx]) {
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.behind("c", "e1", "e2", "e3", "e4")
	w.dispatch()
	w.deliver()
	w.effects("an unordered consumer has a critical event at once", loose, "c", "e1")
	w.effects("an ordered one has what is before it", strict, "e1")
	w.outboxStatus("its row is pending still", "c", "pending")
	w.equal("and marked", w.lane("c"), eventing.Expedited)
	w.equal("what is marked is critical no more", w.criticals(10), list())
	w.rest()
	w.effects("an ordered consumer gets a critical event in its turn", strict, "e1", "e2", "e3", "e4", "c")
	w.effects("an unordered one does not get it again", loose, "c", "e1", "e2", "e3", "e4")
	w.equal("a critical event is published once to each", len(w.broker.ids("")), 10)
	w.outboxStatus("its row is settled in its turn", "c", "sent")
}

func expediteOnlyOrdered[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	w.behind("c", "e1", "e2", "e3")
	w.dispatch()
	w.equal("ordered consumers ignore the lane", w.broker.ids(""), []string{"e1"})
	w.outboxStatus("the row waits for its turn", "c", "pending")
	w.rest()
	w.equal("all is published once, in order", w.broker.ids(ledgerTopic), []string{"e1", "e2", "e3", "c"})
	w.effects("and handled", c, "e1", "e2", "e3", "c")
}

func expediteInProcess[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.behind("c", "e1", "e2", "e3")
	w.append(critical("d", "")) // for both, and of no key
	w.dispatch()
	w.equal("critical events go first", head(2, w.broker.ids("billing")), []string{"c", "d"})
	w.outboxStatus("a row whose consumers have not concluded is pending", "c", "pending")
	w.deliver()
	w.dispatch()
	w.equal("once its unordered consumers have concluded, it is marked", w.lane("c"), eventing.Expedited)
	w.rest()
	inTurn := slices.DeleteFunc(strict.effects(), func(id string) bool { return id == "d" })
	w.equal("an ordered consumer gets a critical event in its turn", inTurn, list("e1", "e2", "e3", "c"))
	w.equal("an unordered one gets each once", loose.sorted(), list("c", "d", "e1", "e2", "e3"))
	w.equal("nothing is published twice", len(w.broker.ids("")), 10)
	for _, id := range []string{"c", "d", "e1", "e2", "e3"} {
		w.outboxStatus("in the end every row is settled", id, "sent")
	}
}

// expediteRejoins has the turn come while the early messages are on their way.
func expediteRejoins[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.append(critical("c", "K"))
	w.dispatch()
	w.dispatch()
	w.equal("what is on its way is not published again", []int{len(w.broker.ids("billing")), len(w.broker.ids(ledgerTopic))}, []int{1, 1})
	w.deliver(strict)
	w.dispatch()
	w.outboxStatus("until all have concluded, the row is pending", "c", "pending")
	w.deliver(loose)
	w.dispatch()
	w.outboxStatus("then it is settled", "c", "sent")
	w.effects("each has it once", loose, "c")
	w.effects("each has it once", strict, "c")
	w.equal("nothing is left to do", w.dispatch(), 0)
}

// expediteNoRoom has as much in flight as may be, and critical events beside.
func expediteNoRoom[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	c := w.consumer("billing", nil)
	w.dispatchWith(eventing.DispatcherConfig{BatchSize: 2})
	w.append(orders("", "e1", "e2", "e3", "e4")...)
	for range 4 {
		w.dispatch()
	}
	w.equal("no more is in flight than may be", len(w.broker.ids("")), 2)
	w.append(critical("c1", "K"), critical("c2", "L"))
	w.dispatch()
	w.equal("a critical event goes all the same", w.broker.ids("")[2:], []string{"c1", "c2"})
	for range 4 {
		w.dispatch()
	}
	w.equal("and nothing else", len(w.broker.ids("")), 4)
	w.rest()
	w.equal("then all do, once", c.sorted(), list("c1", "c2", "e1", "e2", "e3", "e4"))
	w.equal("nothing is published twice", len(w.broker.ids("")), 6)
}

// expediteRefused has the early message come back.
func expediteRefused[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.behind("c", "e1", "e2")
	w.dispatch()
	it := w.broker.next("billing")
	w.equal("the critical event goes first", it.msg.UUID, "c")
	w.broker.lose()
	it.done(it.msg, errors.New("the subscriber is gone"))
	w.equal("what nobody could handle is critical as before", w.criticals(10), list("c"))
	w.restart()
	w.rest()
	w.equal("and published again", loose.sorted(), list("c", "e1", "e2"))
	w.effects("in its turn, where that matters", strict, "e1", "e2", "c")
	w.outboxStatus("then it is settled", "c", "sent")
}

func expediteDue[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	late := critical("late", "")
	late.DueAt = w.clock.Now().Add(time.Hour)
	w.append(order("e1", ""), late)
	w.rest()
	w.clock.Advance(time.Hour - time.Millisecond)
	w.rest()
	w.effects("a critical event waits until it is due", c, "e1")
	w.equal("and is not claimed before", w.criticals(10), list())
	w.clock.Advance(time.Millisecond)
	w.append(order("e2", ""))
	w.rest()
	w.equal("and goes when it is", c.sorted(), list("e1", "e2", "late"))
}

func expediteLanes[Tx any](w *world[Tx]) {
	for _, lane := range []eventing.Lane{"urgent", eventing.Expedited} {
		e := order("e1", "")
		e.Lane = lane
		err := w.outbox.InTx(w.ctx, func(tx Tx) error { return w.outbox.Append(w.ctx, tx, e) })
		var invalid *eventing.InvalidEventError
		if !errors.As(err, &invalid) || invalid.Field != "lane" {
			w.Errorf("broken: an event of lane %q is refused with an InvalidEventError that names the field: %v", lane, err)
		}
	}
	w.outboxStatus("and nothing is written", "e1")
}

func expediteClaim[Tx any](w *world[Tx]) {
	w.append(orders("K", "e1", "e2")...)
	w.append(critical("c1", "L"), critical("c2", "K"), critical("c3", "M"))
	w.equal("critical rows come in the order of sequence, however many are before them", w.criticals(10), list("c1", "c2", "c3"))
	w.equal("a claim of critical rows is bounded, the oldest first", w.criticals(2), list("c1", "c2"))
	w.equal("also to none", w.criticals(0), list())
	k := eventing.PartitionClaim{Partition: eventing.PartitionOf("K", ""), After: w.claim(100)[4].Seq, Limit: 1}
	w.equal("of the partitions asked for, whatever has been looked at", w.criticals(10, k), list("c2"))
	w.equal("a critical row has its turn, too", eventIDs(w.claim(100)), list("e1", "e2", "c1", "c2", "c3"))
}

func expediteConditional[Tx any](w *world[Tx]) {
	w.append(critical("c1", "K"), critical("c2", "K"), critical("d1", "L"))
	rows := w.claim(10)
	k := eventing.PartitionOf("K", "")
	w.acquire(eventing.DispatchScope, "a", k)
	expedite := func(holder string, rows ...eventing.OutboxRow) {
		w.Helper()
		w.must(w.db.Expedite(w.ctx, eventing.SettleRequest{Holder: holder, Now: w.clock.Now(), Rows: rows}))
	}
	expedite("b", rows...)
	w.equal("who holds nothing marks nothing", w.criticals(10), list("c1", "c2", "d1"))
	expedite("a", rows[0], rows[2])
	w.equal("only rows of partitions that are held are marked", w.criticals(10), list("c2", "d1"))
	w.equal("the holder settles", w.settle("a", rows[1:2]), 1)
	expedite("a", rows[1])
	w.outboxStatus("what is settled stays settled", "c2", "sent")
	w.equal("what is marked is pending", eventIDs(w.claim(10)), list("c1", "d1"))
	w.acquire(eventing.DispatchScope, "a", rows[2].Partition)
	w.clock.Advance(leaseTTL)
	expedite("a", rows[2])
	w.equal("a lease that has run out marks nothing", w.criticals(10), list("d1"))
}

// expeditePoison has a broker that does not take the only critical event there is.
func expeditePoison[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.behind("c", "e1", "e2", "e3")
	w.dispatchWith(eventing.DispatcherConfig{BatchSize: 2 * eventing.Partitions}) // it has company in its turn
	w.append(orders("K", "e4", "e5")...)
	w.broker.refuseEvents("c")
	w.rest()
	w.effects("a critical event that cannot be published holds up no other", c, "e1", "e2", "e3", "e4", "e5")
	w.outboxStatus("in its turn it fails", "c", "failed")
	w.equal("and is a dead letter", w.deadLetter(dispatchTarget("c")).Reason, eventing.ReasonUnpublishable)
}

// expediteHalf has one of two topics take nothing for a while.
func expediteHalf[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	w.behind("c", "e1", "e2", "e3")
	w.broker.refuseIf(func(m *message.Message) bool { return m.Metadata.Get(eventing.MetadataConsumers) == "mail" })
	for range 3 {
		w.dispatch()
	}
	w.equal("a topic that has a critical event does not get it again", head(2, w.broker.ids("billing")), []string{"c", "e1"})
	w.outboxStatus("while another has not, the row is pending", "c", "pending")
	w.broker.refuseIf(nil)
	w.rest()
	w.effects("each has all", a, "c", "e1", "e2", "e3")
	w.effects("each has all", b, "c", "e1", "e2", "e3")
	w.equal("once", w.broker.ids("billing"), []string{"c", "e1", "e2", "e3"})
}

func expediteNoRoute[Tx any](w *world[Tx]) {
	w.consumer("ledger", ordered)
	lost, archived := critical("lost", "K"), critical("archived", "K")
	lost.Type, archived.Type = "order.lost", "order.archived"
	w.append(order("e1", "K"), archived, lost, order("e2", "K"))
	w.rest()
	w.outboxStatus("a critical event that cannot be routed has failed", "lost", "failed")
	w.equal("no event is dropped silently", w.deadLetter(dispatchTarget("lost")).Reason, eventing.ReasonNoRoute)
	w.outboxStatus("one that nobody needs is settled", "archived", "sent")
	w.equal("others go on", w.broker.ids(""), []string{"e1", "e2"})
}

func expediteRequeue[Tx any](w *world[Tx]) {
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.behind("c", "e1", "e2", "e3")
	for range 10 {
		w.dispatch()
	}
	w.broker.lose()
	w.outboxStatus("the broker had taken it", "c", "sent")
	w.equal("all can be sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1", "e2", "e3", "c"}}, false), 4)
	w.rest()
	w.effects("an unordered consumer gets again what it was sent before its turn", loose, "c", "e1", "e2", "e3")
	w.effects("an ordered one what it was sent in its turn", strict, "e1", "e2", "e3", "c")
}

// expediteHeld has a critical event behind one that cannot be published.
func expediteHeld[Tx any](w *world[Tx]) {
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.append(order("e1", "K"), order("f1", samePartition(2)[1]))
	w.broker.refuseEvents("e1")
	w.rest()
	w.append(critical("c", "K"))
	w.rest()
	w.effects("a critical event does not wait for its key where there is no order", loose, "f1", "c")
	w.effects("it does where there is one", strict, "f1")
	w.discard(dispatchTarget("e1"))
	w.rest()
	w.effects("and goes on with it", strict, "f1", "c")
	w.effects("nothing comes twice", loose, "f1", "c")
	w.outboxStatus("then it is settled", "c", "sent")
}
