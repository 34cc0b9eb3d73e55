package eventingtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Several dispatchers share the partitions.
func shareTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"two share fairly":                             func(w *world[Tx]) { share(w, 2) },
		"three share fairly":                           func(w *world[Tx]) { share(w, 3) },
		"five share fairly":                            func(w *world[Tx]) { share(w, 5) },
		"a newcomer gets its share":                    shareNewcomer[Tx],
		"what one leaves is taken without waiting":     shareLeaver[Tx],
		"what a dead one had is taken when it expires": shareDeath[Tx],
	}
}

// crew is some dispatchers, by their holders' names.
type crew map[string]*eventing.Dispatcher

func (w *world[Tx]) crew(n int) crew {
	w.Helper()
	c := crew{}
	for i := range n {
		w.join(c, fmt.Sprintf("member-%d", i))
	}
	return c
}

func (w *world[Tx]) join(c crew, name string) {
	w.Helper()
	c[name] = w.newDispatcher(name)
}

// work has all of them make a pass, one after the other, again and again for so long;
// a pass at least every sixth of a lease's life, as in real life.
func (w *world[Tx]) work(c crew, d time.Duration) {
	w.Helper()
	for {
		for _, name := range slices.Sorted(maps.Keys(c)) {
			_, err := c[name].DispatchOnce(w.ctx)
			w.must(err)
		}
		if d <= 0 {
			return
		}
		w.clock.Advance(min(d, leaseTTL/6))
		d -= leaseTTL / 6
	}
}

// shares returns how many partitions each of the dispatchers holds, the fewest first.
func (w *world[Tx]) shares(c crew) []int {
	w.Helper()
	table := w.acquire(eventing.DispatchScope, "observer")
	w.must(w.db.ReleaseLeases(w.ctx, eventing.DispatchScope, "observer", nil))
	held := partitions(table.Others)
	shares := []int{}
	for name := range c {
		shares = append(shares, len(held[name]))
	}
	slices.Sort(shares)
	return shares
}

// fair are shares that differ by one at most.
func fair(holders int) []int {
	shares := make([]int, holders)
	for i := range shares {
		shares[i] = (eventing.Partitions + i) / holders
	}
	return shares
}

// fillShares appends an event for each partition, or more.
func (w *world[Tx]) fillShares(prefix string) (ids []string) {
	w.Helper()
	var events []eventing.Appendable
	for p := range eventing.Partitions {
		id := fmt.Sprintf("%s-%02d", prefix, p)
		ids = append(ids, id)
		events = append(events, order(id, fmt.Sprintf("key of %d", p)))
	}
	w.append(events...)
	return ids
}

// published checks that everything was published, and nothing twice.
func (w *world[Tx]) published(guarantee string, ids ...[]string) {
	w.Helper()
	got := slices.Sorted(slices.Values(w.broker.ids("")))
	w.equal(guarantee, got, slices.Sorted(slices.Values(slices.Concat(ids...))))
	w.equal("nothing is left in the outbox", w.stats().Outbox["pending"], int64(0))
}

func share[Tx any](w *world[Tx], n int) {
	w.consumer("billing", nil)
	c := w.crew(n)
	w.work(c, 2*leaseTTL)
	w.equal("each dispatcher has its share of the partitions", w.shares(c), fair(n))
	before := partitions(w.acquire(eventing.DispatchScope, "observer").Others)
	w.must(w.db.ReleaseLeases(w.ctx, eventing.DispatchScope, "observer", nil))
	ids := w.fillShares("e")
	w.work(c, 2*leaseTTL)
	w.equal("and keeps it", partitions(w.acquire(eventing.DispatchScope, "observer").Others), before)
	w.published("together they publish everything, once", ids)
}

func shareNewcomer[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	c := w.crew(1)
	w.work(c, 0)
	w.equal("the first has all", w.shares(c), []int{eventing.Partitions})
	first := w.fillShares("first")
	w.work(c, 0)
	w.join(c, "newcomer")
	second := w.fillShares("second")
	w.work(c, leaseTTL)
	w.equal("within a lease's life, a newcomer has its share", w.shares(c), fair(2))
	third := w.fillShares("third")
	w.work(c, leaseTTL)
	w.published("what was handed on is published by either, not by both", first, second, third)
}

func shareLeaver[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	c := w.crew(3)
	w.work(c, 2*leaseTTL)
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	w.must(c["member-1"].Run(ended))
	delete(c, "member-1")
	w.equal("who stops has nothing any more", partitions(w.acquire(eventing.DispatchScope, "observer").Others)["member-1"], []int(nil))
	w.must(w.db.ReleaseLeases(w.ctx, eventing.DispatchScope, "observer", nil))
	ids := w.fillShares("e")
	w.work(c, leaseTTL/2)
	w.equal("what one leaves the others have before a lease could expire", w.shares(c), fair(2))
	w.published("and publish", ids)
}

func shareDeath[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	c := w.crew(3)
	w.work(c, 2*leaseTTL)
	delete(c, "member-1")
	ids := w.fillShares("e")
	w.work(c, leaseTTL/2)
	w.equal("what a dead dispatcher has is its own until it expires", len(w.broker.ids("")) < eventing.Partitions, true)
	w.work(c, leaseTTL)
	w.equal("and the others' then", w.shares(c), fair(2))
	w.published("they publish what it had", ids)
}
