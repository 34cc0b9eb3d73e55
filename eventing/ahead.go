package eventing

import (
	"context"
	"slices"
)

// ahead is a claim that is made while the batch before it is published. It finds what
// comes after that batch and the one that is being settled, whose rows it leaves out. So
// it is of use only if both are out as a whole, no row of theirs is a dead letter that
// holds its key, and the leases are the same still.
type ahead struct {
	hold    *hold
	request ClaimRequest
	asked   int
	ended   chan struct{}
	claimed Claimed
	err     error
}

// lookAhead begins the next claim. A look at everything is not made ahead, lest an event
// that is critical waits for it.
func (w *worker) lookAhead(ctx context.Context, publishing []OutboxRow) {
	if w.d.inFlight != nil || w.look.everything() {
		return
	}
	a := &ahead{hold: w.hold(), ended: make(chan struct{})}
	a.request, a.asked = w.request(a.hold.partitions(), false, publishing)
	w.ahead = a
	go func() {
		defer close(a.ended)
		a.claimed, a.err = w.d.store.Claim(ctx, a.request)
	}()
}

// caughtUp returns what has been found ahead, if there is anything and it can be used.
func (w *worker) caughtUp(h *hold) (c Claimed, more, ok bool) {
	a := w.ahead
	if a == nil {
		return c, false, false
	}
	defer w.drop()
	<-a.ended
	if a.err != nil {
		w.look.forget() // it may be another server now
	}
	if a.err != nil || len(a.claimed.Rows) == 0 || !a.hold.same(h) {
		return c, false, false
	}
	c = a.claimed
	more, again := w.look.learn(a.request, c)
	if again {
		return Claimed{}, false, false
	}
	w.look.looked(false, 0)
	return c.without(a.request), more || a.asked < len(a.request.Partitions), true
}

// drop waits for the claim ahead, and leaves what it has found to the next one.
func (w *worker) drop() {
	if a := w.ahead; a != nil {
		<-a.ended
		a.hold.end()
		w.ahead = nil
	}
}

// hold keeps leases from being left to others while something is done under them.
type hold struct {
	of     *leaseholder
	leases []Lease
}

// hold begins with all leases of the worker's.
func (w *worker) hold() *hold {
	h := &hold{of: w.d.leases}
	for _, l := range w.d.leases.live() {
		if l.Partition%w.of == w.n {
			h.leases = append(h.leases, l)
			h.of.use(l.Partition, 1)
		}
	}
	return h
}

func (h *hold) end() {
	for _, l := range h.leases {
		h.of.use(l.Partition, -1)
	}
}

func (h *hold) partitions() []int {
	partitions := make([]int, len(h.leases))
	for i, l := range h.leases {
		partitions[i] = l.Partition
	}
	return partitions
}

// same reports whether two are of the same leases.
func (h *hold) same(other *hold) bool {
	return slices.EqualFunc(h.leases, other.leases, func(a, b Lease) bool { return a.Partition == b.Partition && a.Token == b.Token })
}
