package eventing

import (
	"context"
	"sync"
	"time"
)

// Lease is the right to work on one partition of a scope for a while. The
// token grows with each change of holder: a write that checks it cannot come
// from a holder that has been taken over from.
type Lease struct {
	Scope     string
	Partition int
	Token     int64
	Until     time.Time
}

// LeaseRequest asks for the partitions of a scope.
type LeaseRequest struct {
	Scope  string
	Holder string // unique for each process and run
	Now    time.Time
	Until  time.Time
}

// LeaseStore keeps who holds which partition.
type LeaseStore interface {
	// AcquireLeases renews what the holder has in the scope, the tokens
	// unchanged; takes, with the next token, whatever partition of the scope is
	// free or expired; and returns all that the holder has now.
	AcquireLeases(ctx context.Context, r LeaseRequest) ([]Lease, error)
	// ReleaseLeases frees what the holder has in the scope.
	ReleaseLeases(ctx context.Context, scope, holder string) error
}

// DispatchScope is the scope of the leases that dispatchers hold.
const DispatchScope = "dispatch"

var processHolder = sync.OnceValue(NewID)

// leaseholder keeps the leases of one scope. The holders of one process share
// their identity, so that two of one scope hold the same partitions.
type leaseholder struct {
	store  LeaseStore
	scope  string
	holder string
	ttl    time.Duration
	now    func() time.Time

	mu      sync.Mutex
	renewed time.Time
	held    []Lease
}

// refresh acquires and renews, if it is time to.
func (l *leaseholder) refresh(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if !l.renewed.IsZero() && now.Sub(l.renewed) < l.ttl/3 && !now.Before(l.renewed) {
		return nil
	}
	held, err := l.store.AcquireLeases(ctx, LeaseRequest{Scope: l.scope, Holder: l.holder, Now: now, Until: now.Add(l.ttl)})
	if err != nil {
		return err
	}
	l.held, l.renewed = held, now
	return nil
}

// doubt has the next refresh ask the store: a write found that a lease is not held.
func (l *leaseholder) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = time.Time{}
}

// live returns the leases that have not run out.
func (l *leaseholder) live() []Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 || !l.held[0].Until.After(l.now()) { // acquired together, they end together
		return nil
	}
	return l.held
}

// lease returns the live lease of a partition.
func (l *leaseholder) lease(partition int) (Lease, bool) {
	for _, lease := range l.live() {
		if lease.Partition == partition {
			return lease, true
		}
	}
	return Lease{}, false
}

// keep renews until ctx ends and then lets go of everything.
func (l *leaseholder) keep(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(max(l.ttl/6, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := l.refresh(ctx); err != nil && ctx.Err() == nil {
				failed(err)
			}
		}
	}
}

// release lets go, so that a successor need not wait for the expiry.
func (l *leaseholder) release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.renewed = nil, time.Time{}
	return l.store.ReleaseLeases(ctx, l.scope, l.holder)
}
