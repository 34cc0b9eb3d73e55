package eventingtest

import (
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func leaseTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"one holder at a time":                     leaseExclusive[Tx],
		"scopes are apart":                         leaseScopes[Tx],
		"a released lease is free at once":         leaseReleased[Tx],
		"a second dispatcher takes over on expiry": leaseTakeover[Tx],
		"a stale dispatcher settles nothing":       leaseStale[Tx],
		"only what is asked for is taken":          leasePartly[Tx],
		"some can be released":                     leaseReleasePartly[Tx],
		"holders know of each other":               leasePresence[Tx],
		"a base is there for the next holder":      leaseBase[Tx],
	}
}

// acquire asks for some partitions, or for none.
func (w *world[Tx]) acquire(scope, holder string, partitions ...int) eventing.LeaseTable {
	w.Helper()
	now := w.clock.Now()
	table, err := w.db.AcquireLeases(w.ctx, eventing.LeaseRequest{
		Scope: scope, Holder: holder, Now: now, Until: now.Add(leaseTTL), Partitions: append([]int{}, partitions...),
	})
	w.must(err)
	return table
}

// partitions names what leases are of, by holder.
func partitions(leases []eventing.Lease) map[string][]int {
	m := map[string][]int{}
	for _, l := range leases {
		m[l.Holder] = append(m[l.Holder], l.Partition)
	}
	for _, of := range m {
		slices.Sort(of)
	}
	return m
}

func tokens(leases []eventing.Lease) map[int]int64 {
	m := map[int]int64{}
	for _, l := range leases {
		m[l.Partition] = l.Token
	}
	return m
}

func leaseExclusive[Tx any](w *world[Tx]) {
	first := w.lease("s", "a")
	w.equal("the first holder gets all partitions", len(tokens(first)), eventing.Partitions)
	for _, l := range first {
		w.equal("a lease says what it is for, and until when", []any{l.Scope, l.Until.Equal(w.clock.Now().Add(leaseTTL))}, []any{"s", true})
	}
	w.equal("while a lease lives, nobody else gets it", len(w.lease("s", "b")), 0)
	w.clock.Advance(leaseTTL - time.Millisecond)
	w.equal("while a lease lives, nobody else gets it", len(w.lease("s", "b")), 0)
	w.equal("renewing keeps the tokens", tokens(w.lease("s", "a")), tokens(first))
	w.clock.Advance(leaseTTL)
	second := tokens(w.lease("s", "b"))
	w.equal("an expired lease is free", len(second), eventing.Partitions)
	for p, token := range tokens(first) {
		if second[p] <= token {
			w.Fatalf("broken: the token grows with each change of holder (partition %d: %d, then %d)", p, token, second[p])
		}
	}
	w.equal("who was taken over from has nothing", len(w.lease("s", "a")), 0)
}

func leaseScopes[Tx any](w *world[Tx]) {
	w.lease("s", "a")
	w.equal("a lease of one scope is none of another", len(w.lease("t", "b")), eventing.Partitions)
}

func leaseReleased[Tx any](w *world[Tx]) {
	first := tokens(w.lease("s", "a"))
	w.lease("t", "a")
	w.must(w.db.ReleaseLeases(w.ctx, "s", "b", nil))
	w.equal("nobody releases another's lease", len(w.lease("s", "b")), 0)
	w.must(w.db.ReleaseLeases(w.ctx, "s", "a", nil))
	second := tokens(w.lease("s", "b"))
	w.equal("what was released is free at once", len(second), eventing.Partitions)
	w.equal("the token grows also after a release", second[0] > first[0], true)
	w.equal("releasing one scope keeps the others", len(w.lease("t", "b")), 0)
}

func leaseTakeover[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(order("e1", ""))
	_, err := w.db.AcquireLeases(w.ctx, eventing.LeaseRequest{
		Scope: eventing.DispatchScope, Holder: "dead", Now: w.clock.Now(), Until: w.clock.Now().Add(leaseTTL),
	})
	w.must(err)
	w.rest()
	w.effects("a dispatcher that holds nothing publishes nothing", c)
	w.clock.Advance(leaseTTL)
	w.rest()
	w.effects("a live dispatcher takes over from one that died", c, "e1")
}

func leaseStale[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	w.append(order("e1", ""))
	w.lease(eventing.DispatchScope, "stale")
	rows := w.claim(10)
	w.clock.Advance(leaseTTL)
	fresh := w.newDispatcher("fresh")
	_, err := fresh.DispatchOnce(w.ctx)
	w.must(err)
	w.outboxStatus("the new holder settles", "e1", "sent")
	w.append(order("e2", ""))
	rows = append(rows, w.claim(10)...)
	w.equal("a stale dispatcher settles nothing", w.settle("stale", rows), 0)
	w.outboxStatus("a stale dispatcher settles nothing", "e2", "pending")
}

func leasePartly[Tx any](w *world[Tx]) {
	first := w.acquire("s", "a", 3, 5)
	w.equal("only the partitions asked for are taken", partitions(first.Held), map[string][]int{"a": {3, 5}})
	w.clock.Advance(leaseTTL / 2)
	second := w.acquire("s", "a", 5, 7)
	w.equal("what was not asked for again is held as long as it was", partitions(second.Held), map[string][]int{"a": {3, 5, 7}})
	for _, l := range second.Held {
		until := w.clock.Now().Add(leaseTTL)
		if l.Partition == 3 {
			until = until.Add(-leaseTTL / 2)
		}
		w.equal("each lease knows its end", l.Until.Equal(until), true)
	}
	w.equal("renewing keeps the token", tokens(second.Held)[5], tokens(first.Held)[5])
	w.clock.Advance(leaseTTL / 2)
	w.equal("and no longer", partitions(w.acquire("s", "a").Held), map[string][]int{"a": {5, 7}})
	w.equal("it is free then", partitions(w.acquire("s", "b", 3, 5).Held), map[string][]int{"b": {3}})
}

func leaseReleasePartly[Tx any](w *world[Tx]) {
	first := tokens(w.acquire("s", "a", 1, 2, 3).Held)
	w.acquire("t", "a", 2)
	w.must(w.db.ReleaseLeases(w.ctx, "s", "b", []int{2}))
	w.equal("nobody releases another's lease", partitions(w.acquire("s", "a").Held), map[string][]int{"a": {1, 2, 3}})
	w.must(w.db.ReleaseLeases(w.ctx, "s", "a", []int{2, 30}))
	w.equal("what was released is held no more, and the rest is", partitions(w.acquire("s", "a").Held), map[string][]int{"a": {1, 3}})
	w.must(w.db.ReleaseLeases(w.ctx, "s", "a", []int{}))
	w.equal("releasing an empty list releases nothing", partitions(w.acquire("s", "a").Held), map[string][]int{"a": {1, 3}})
	table := w.acquire("s", "b", 1, 2)
	w.equal("what was released is free at once", partitions(table.Held), map[string][]int{"b": {2}})
	w.equal("with a new token", tokens(table.Held)[2] > first[2], true)
	w.equal("who has released a part is present still", table.Holders, 2)
	w.equal("another scope keeps its own", partitions(w.acquire("t", "b").Others), map[string][]int{"a": {2}})
}

func leasePresence[Tx any](w *world[Tx]) {
	table := w.acquire("s", "a")
	w.equal("who asks for nothing takes nothing", []int{len(table.Held), len(table.Others), table.Holders}, []int{0, 0, 1})
	w.acquire("s", "b", 1, 2)
	w.acquire("t", "d", 3)
	table = w.acquire("s", "c", 2, 4)
	w.equal("and counts as present all the same", table.Holders, 3)
	w.equal("a holder knows what it has", partitions(table.Held), map[string][]int{"c": {4}})
	w.equal("and what others have", partitions(table.Others), map[string][]int{"b": {1, 2}})
	for _, l := range table.Others {
		w.equal("and until when", []any{l.Scope, l.Until.Equal(w.clock.Now().Add(leaseTTL))}, []any{"s", true})
	}
	w.must(w.db.ReleaseLeases(w.ctx, "s", "b", nil))
	table = w.acquire("s", "c")
	w.equal("who has released all is not present any more", []int{table.Holders, len(table.Others)}, []int{2, 0})
	w.clock.Advance(leaseTTL - time.Millisecond)
	table = w.acquire("s", "b", 1)
	w.equal("who is silent is present until its time is over", table.Holders, 3)
	w.clock.Advance(time.Millisecond)
	table = w.acquire("s", "b", 1, 4)
	w.equal("and not longer", table.Holders, 1)
	w.equal("nor has it anything then", partitions(table.Held), map[string][]int{"b": {1, 4}})
	w.equal("it can come back", []int{w.acquire("s", "a").Holders, w.acquire("t", "d").Holders}, []int{2, 1})
}

func leaseBase[Tx any](w *world[Tx]) {
	acquire := func(holder string, bases map[int]int64, partitions ...int) []eventing.Lease {
		now := w.clock.Now()
		table, err := w.db.AcquireLeases(w.ctx, eventing.LeaseRequest{
			Scope: "s", Holder: holder, Now: now, Until: now.Add(leaseTTL), Partitions: partitions, Bases: bases,
		})
		w.must(err)
		return table.Held
	}
	bases := func(leases []eventing.Lease) map[int]int64 {
		m := map[int]int64{}
		for _, l := range leases {
			m[l.Partition] = l.Base
		}
		return m
	}
	w.equal("nothing has been recorded at first", bases(acquire("a", nil, 1, 2)), map[int]int64{1: 0, 2: 0})
	const large = 1 << 40
	w.equal("a base is recorded of what is asked for", bases(acquire("a", map[int]int64{1: 7, 2: large, 3: 9}, 1, 2)), map[int]int64{1: 7, 2: large})
	w.equal("and kept if none is given", bases(acquire("a", map[int]int64{2: 5}, 1, 2)), map[int]int64{1: 7, 2: 5})
	acquire("b", map[int]int64{1: 100}, 1, 3)
	w.equal("who does not get a partition records nothing of it", bases(acquire("a", nil, 1, 2)), map[int]int64{1: 7, 2: 5})
	w.must(w.db.ReleaseLeases(w.ctx, "s", "a", []int{1}))
	w.equal("it is there after a release", bases(acquire("b", nil, 1, 3)), map[int]int64{1: 7, 3: 0})
	w.clock.Advance(leaseTTL)
	w.equal("and after an expiry; what its new holder says of before does not count",
		bases(acquire("c", map[int]int64{2: 4, 3: 4}, 1, 2, 3)), map[int]int64{1: 7, 2: 5, 3: 0})
}
