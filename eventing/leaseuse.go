package eventing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// take returns the lease of a partition, if it has not run out, to work under: that counts
// as one use.
func (l *leaseholder) take(partition int) (Lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, ok := l.held[partition]
	if !ok || l.ended || !lease.Until.After(l.now()) {
		return Lease{}, false
	}
	l.count(partition, 1)
	return lease, true
}

// use counts work that begins, or with -1 ends, on a partition.
func (l *leaseholder) use(partition, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(partition, n)
}

func (l *leaseholder) count(partition, n int) {
	if l.uses == nil {
		l.uses = map[int]int{}
	}
	l.uses[partition] += n
	if l.working += n; l.working == 0 && l.rested != nil {
		close(l.rested)
		l.rested = nil
	}
}

// begin has it take leases, until as many ends.
func (l *leaseholder) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs++
	l.ending, l.ended = false, false
}

// end has it take no more leases, and waits for the work under way, or for ctx. Then none
// begins any more, but what it has it keeps until it is released.
func (l *leaseholder) end(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs--; l.runs > 0 {
		return
	}
	l.ending = true
	if l.working > 0 {
		if l.rested == nil {
			l.rested = make(chan struct{})
		}
		rested := l.rested
		l.mu.Unlock()
		select {
		case <-rested:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
	l.ended = l.runs == 0
}

// letGo releases what is leaving and not worked on, or has been leaving for long.
func (l *leaseholder) letGo(ctx context.Context) error {
	var idle []int
	for p, since := range l.leaving {
		if l.uses[p] == 0 || l.now().Sub(since) > l.ttl {
			idle = append(idle, p)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	slices.Sort(idle)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin) // as in acquire
	defer cancel()
	if err := l.store.ReleaseLeases(ctx, l.scope, l.holder, idle); err != nil {
		return err
	}
	for _, p := range idle {
		delete(l.leaving, p)
		delete(l.held, p)
		l.changed(p, false)
	}
	l.wanted = slices.DeleteFunc(l.wanted, func(p int) bool { return slices.Contains(idle, p) })
	return nil
}

// release lets go of everything, so that a successor need not wait for the expiry; unless
// another run has begun.
func (l *leaseholder) release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs > 0 {
		return nil
	}
	held := slices.Sorted(maps.Keys(l.held))
	for _, p := range held {
		l.changed(p, false)
	}
	l.held, l.leaving, l.wanted, l.next = map[int]Lease{}, nil, nil, time.Time{}
	if l.follows {
		return nil
	}
	var err error
	if len(held) > 0 && len(l.bases) > 0 {
		now := l.now()
		_, err = l.store.AcquireLeases(ctx, LeaseRequest{Scope: l.scope, Holder: l.holder, Now: now, Until: now.Add(l.ttl), Partitions: held, Bases: l.bases})
	}
	return errors.Join(err, l.store.ReleaseLeases(ctx, l.scope, l.holder, nil))
}
