package eventingtest

import (
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

func dispatchTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"claims come in the order of sequence":         dispatchOrder[Tx],
		"claims are bounded and leave out what flies":  dispatchLimits[Tx],
		"settling is conditional":                      dispatchSettle[Tx],
		"a crash between publish and settle":           dispatchUnsettled[Tx],
		"handed over is sent, whatever follows":        dispatchSentMeansHandedOver[Tx],
		"a broker that is down is nobody's attempt":    dispatchBrokerDown[Tx],
		"a type that nobody needs is settled":          dispatchNobody[Tx],
		"all consumers of a type get it, each for its": dispatchFanOut[Tx],
		"a wake-up reaches the dispatchers":            dispatchWake[Tx],
		"a claim says where to look":                   dispatchAfter[Tx],
		"each partition has a limit of its own":        dispatchPartitionLimits[Tx],
		"hand-written rows are noticed":                dispatchUnadopted[Tx],
		"what is not held is not touched":              dispatchForeign[Tx],
		"a late commit is found":                       dispatchLate[Tx],
		"a backlog is published once, in order":        func(w *world[Tx]) { dispatchBacklog(w, 1) },
		"by several workers, too":                      func(w *world[Tx]) { dispatchBacklog(w, 4) },
	}
}

// allPartitions asks for so many rows of each partition.
func allPartitions(limit int) []eventing.PartitionClaim {
	claims := make([]eventing.PartitionClaim, eventing.Partitions)
	for p := range claims {
		claims[p] = eventing.PartitionClaim{Partition: p, Limit: limit}
	}
	return claims
}

// claim claims as a dispatcher would that holds all partitions.
func (w *world[Tx]) claim(limit int, exclude ...int64) []eventing.OutboxRow {
	w.Helper()
	partitions := allPartitions(limit)
	for p := range partitions {
		partitions[p].Exclude = exclude
	}
	c, err := w.db.Claim(w.ctx, eventing.ClaimRequest{Partitions: partitions, Now: w.clock.Now()})
	w.must(err)
	return c.Rows
}

func eventIDs(rows []eventing.OutboxRow) []string {
	ids := list()
	for _, r := range rows {
		ids = append(ids, r.EventID)
	}
	return ids
}

func dispatchOrder[Tx any](w *world[Tx]) {
	ids := []string{"e5", "e3", "e4", "e1", "e2", "e0"}
	for i, id := range ids {
		w.append(order(id, []string{"K", "L", ""}[i%3]))
	}
	rows := w.claim(100)
	w.equal("rows are claimed in the order of their sequence", eventIDs(rows), ids)
	w.equal("the sequence grows", slices.IsSortedFunc(rows, func(a, b eventing.OutboxRow) int { return int(a.Seq - b.Seq) }), true)
	for i, r := range rows {
		key := []string{"K", "L", ""}[i%3]
		w.equal("a claimed row is complete", []any{r.ID, r.EventType, r.OrderingKey, r.Partition, r.Consumer, r.Generation},
			[]any{ids[i], "order.placed", key, eventing.PartitionOf(key, ids[i]), "", 0})
		w.equal("a claimed row knows when it was made", r.CreatedAt.Equal(w.clock.Now()), true)
	}
	for _, r := range rows {
		one, err := w.db.Claim(w.ctx, eventing.ClaimRequest{
			Partitions: []eventing.PartitionClaim{{Partition: r.Partition, Limit: 100}}, Now: w.clock.Now(),
		})
		w.must(err)
		for _, o := range one.Rows {
			w.equal("only rows of the partitions asked for are claimed", o.Partition, r.Partition)
		}
	}
}

func dispatchLimits[Tx any](w *world[Tx]) {
	w.append(orders("K", "e1", "e2", "e3", "e4")...)
	w.equal("a claim is bounded, the oldest first", eventIDs(w.claim(2)), list("e1", "e2"))
	all := w.claim(4)
	w.equal("rows in flight are left out", eventIDs(w.claim(2, all[0].Seq, all[2].Seq)), list("e2", "e4"))
}

func (w *world[Tx]) settle(holder string, rows []eventing.OutboxRow) int {
	w.Helper()
	n, err := w.db.Settle(w.ctx, eventing.SettleRequest{Holder: holder, Now: w.clock.Now(), Rows: rows})
	w.must(err)
	return n
}

func (w *world[Tx]) lease(scope, holder string) []eventing.Lease {
	w.Helper()
	now := w.clock.Now()
	table, err := w.db.AcquireLeases(w.ctx, eventing.LeaseRequest{Scope: scope, Holder: holder, Now: now, Until: now.Add(leaseTTL)})
	w.must(err)
	return table.Held
}

func dispatchSettle[Tx any](w *world[Tx]) {
	w.append(orders("K", "e1", "e2")...)
	w.lease(eventing.DispatchScope, "a")
	rows := w.claim(10)
	w.equal("a dispatcher that holds nothing settles nothing", w.settle("b", rows), 0)
	w.outboxStatus("a row that was not settled is pending", "e1", "pending")
	w.equal("the holder settles", w.settle("a", rows[:1]), 1)
	w.equal("only pending rows are settled", w.settle("a", rows), 1)
	w.outboxStatus("settled is sent", "e2", "sent")
	w.equal("what is settled is not claimed", eventIDs(w.claim(10)), list())
	w.append(order("e3", "K"))
	rows = w.claim(10)
	w.clock.Advance(leaseTTL)
	w.equal("a lease that has run out settles nothing", w.settle("a", rows), 0)
}

func dispatchUnsettled[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	for _, p := range []eventing.FaultPoint{eventing.FaultPublished, eventing.FaultSettling} {
		id := "e at " + string(p)
		w.append(order(id, ""))
		w.faults.FailNext(p)
		w.dispatch()
		w.outboxStatus("what was not settled stays pending", id, "pending")
		w.rest()
		published := slices.DeleteFunc(w.broker.ids(""), func(s string) bool { return s != id })
		w.equal("after a crash between publish and settle the event is published again", published, []string{id, id})
		w.outboxStatus("the second time it is settled", id, "sent")
		w.equal("the inbox drops the second copy", slices.DeleteFunc(c.effects(), func(s string) bool { return s != id }), []string{id})
	}
}

// dispatchSentMeansHandedOver has the event die at its consumer before its row is settled.
func dispatchSentMeansHandedOver[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.faults.FailNext(eventing.FaultPublished)
	w.dispatch()
	w.deliver()
	w.deliveries("the event died before its row was settled", 0, 0, 1)
	w.rest()
	w.outboxStatus("with a remote broker, sent means handed over", "e1", "sent")
}

func dispatchBrokerDown[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(orders("", "e1", "e2", "e3")...)
	w.broker.refuseIf(func(*message.Message) bool { return true })
	for range 10 {
		if _, err := w.dispatcher.DispatchOnce(w.ctx); err == nil {
			w.Fatal("broken: a broker that takes nothing is reported")
		}
		w.clock.Advance(time.Hour)
	}
	w.outboxStatus("while the broker is down, rows stay pending", "e1", "pending")
	w.nothingDead("a broker that is down kills no event")
	w.broker.refuseIf(nil)
	w.rest()
	w.effects("when the broker is back, all is delivered, in order", c, "e1", "e2", "e3")
}

func dispatchAfter[Tx any](w *world[Tx]) {
	w.append(orders("K", "e1", "e2", "e3")...)
	w.append(orders("L", "f1", "f2")...)
	all := w.claim(100)
	claim := func(p ...eventing.PartitionClaim) []string {
		w.Helper()
		c, err := w.db.Claim(w.ctx, eventing.ClaimRequest{Now: w.clock.Now(), Partitions: p})
		w.must(err)
		return eventIDs(c.Rows)
	}
	k, l := eventing.PartitionClaim{Partition: all[0].Partition, Limit: 10}, eventing.PartitionClaim{Partition: all[3].Partition, Limit: 10}
	w.equal("from nowhere in particular, all is found", claim(k, l), list("e1", "e2", "e3", "f1", "f2"))
	k.After = all[1].Seq
	w.equal("what need not be looked at is not", claim(k), list("e3"))
	both := claim(l, k) // a store may look further back than it need
	w.equal("in another partition, it is", both[max(0, len(both)-3):], list("e3", "f1", "f2"))
	k.After, k.Limit = all[0].Seq, 1
	w.equal("the first after that are claimed", claim(k), list("e2"))
	k.After = all[4].Seq
	w.equal("there may be nothing", claim(k), list())
	w.equal("nothing asked for is nothing found", claim(), list())
}

// dispatchPartitionLimits lets a store stop when it has as many rows as all partitions
// together may have.
func dispatchPartitionLimits[Tx any](w *world[Tx]) {
	w.append(orders("K", "k1", "k2", "k3", "k4", "k5")...)
	w.append(orders("L", "l1", "l2", "l3")...)
	w.append(orders("M", "m1")...)
	all := w.claim(100)
	limits := map[int]int{}
	var ask []eventing.PartitionClaim
	for key, limit := range map[string]int{"K": 2, "L": 3, "M": 4} {
		p := eventing.PartitionOf(key, "")
		limits[p] = limit
		ask = append(ask, eventing.PartitionClaim{Partition: p, Limit: limit})
	}
	c, err := w.db.Claim(w.ctx, eventing.ClaimRequest{Now: w.clock.Now(), Partitions: ask})
	w.must(err)
	w.equal("something is found", len(c.Rows) > 0, true)
	of := func(rows []eventing.OutboxRow, p int) []string {
		return eventIDs(slices.DeleteFunc(slices.Clone(rows), func(r eventing.OutboxRow) bool { return r.Partition != p }))
	}
	for p, limit := range limits {
		got, want := of(c.Rows, p), of(all, p)
		w.equal("no partition has more rows than it may", len(got) <= limit, true)
		w.equal("and they are its first", got, want[:min(len(got), len(want))])
	}
}

func dispatchUnadopted[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	unadopted := func(look bool) bool {
		w.Helper()
		c, err := w.db.Claim(w.ctx, eventing.ClaimRequest{Now: w.clock.Now(), Partitions: allPartitions(10), Critical: 10, Unadopted: look})
		w.must(err)
		w.equal("a row that is not adopted is not claimed", len(c.Rows)+len(c.Critical), 0)
		return c.Unadopted
	}
	w.equal("where there is nothing, nothing is noticed", unadopted(true), false)
	w.must(w.db.InsertByHand(w.ctx, "hand", "hand", "order.placed", []byte(`{"payload":{}}`)))
	w.equal("a hand-written row is noticed", unadopted(true), true)
	w.equal("by who looks for it", unadopted(false), false)
	w.rest()
	w.equal("once it is adopted, it is no news", unadopted(true), false)
	w.outboxStatus("and goes its way", "hand", "sent")
}

func dispatchForeign[Tx any](w *world[Tx]) {
	w.append(order("e1", "K"), order("f1", "L"))
	rows := w.claim(10)
	w.acquire(eventing.DispatchScope, "a", rows[0].Partition)
	w.acquire(eventing.DispatchScope, "b", rows[1].Partition)
	w.acquire("s", "c", rows[0].Partition, rows[1].Partition)
	w.equal("a lease of another scope settles nothing", w.settle("c", rows), 0)
	w.equal("of a batch, only what is held is settled", w.settle("a", rows), 1)
	w.outboxStatus("the rest is pending", "f1", "pending")
	w.must(w.db.ReleaseLeases(w.ctx, eventing.DispatchScope, "b", []int{rows[1].Partition}))
	w.equal("what was released is not held", w.settle("b", rows), 0)
	w.must(w.db.Expedite(w.ctx, eventing.SettleRequest{Holder: "b", Now: w.clock.Now(), Rows: rows}))
	w.equal("nor marked", w.lane("f1"), eventing.Lane(""))
}

func dispatchNobody[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	e := order("e1", "")
	e.Type = "order.archived"
	w.append(e)
	w.rest()
	w.outboxStatus("a type that is known to go nowhere is settled", "e1", "sent")
	w.equal("and published nowhere", len(w.broker.ids("")), 0)
	w.nothingDead("a type that nobody needs is no failure")
}

func dispatchFanOut[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", ordered)
	w.append(orders("K", "e1", "e2")...)
	w.rest()
	w.effects("every routed consumer handles the event once", a, "e1", "e2")
	w.effects("every routed consumer handles the event once", b, "e1", "e2")
	w.equal("an ordered consumer's topic is partitioned by the key",
		w.broker.ids(eventing.PartitionTopic("mail", eventing.PartitionOf("K", ""))), []string{"e1", "e2"})
}

func dispatchWake[Tx any](w *world[Tx]) {
	woken, stop := w.db.Sleep()
	w.append(order("e1", ""))
	w.db.Wake() // a second one folds into the first
	select {
	case <-woken:
	case <-w.ctx.Done():
		w.Fatal("broken: who commits with InTx wakes the dispatchers of the process")
	}
	stop()
	w.db.Wake() // nobody sleeps: it must not block
}
