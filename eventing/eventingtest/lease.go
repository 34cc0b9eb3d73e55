package eventingtest

import (
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
	}
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
	w.must(w.db.ReleaseLeases(w.ctx, "s", "b"))
	w.equal("nobody releases another's lease", len(w.lease("s", "b")), 0)
	w.must(w.db.ReleaseLeases(w.ctx, "s", "a"))
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
