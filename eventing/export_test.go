package eventing

import (
	"context"
	"time"
)

// Leaseholder is for the tests outside of the package, which can use a store.
type Leaseholder = leaseholder

// NewLeaseholder returns one of the scope "s".
func NewLeaseholder(store LeaseStore, holder string, ttl time.Duration, now func() time.Time) *Leaseholder {
	return &leaseholder{store: store, scope: "s", holder: holder, ttl: ttl, now: now}
}

func (l *leaseholder) Refresh(ctx context.Context) error { return l.refresh(ctx) }
func (l *leaseholder) Release(ctx context.Context) error { return l.release(ctx) }
func (l *leaseholder) Record(partitions []int, bases map[int]int64) {
	l.record(partitions, bases)
}
func (l *leaseholder) Use(partition, n int) { l.use(partition, n) }

// Keep is keep, whose failures nobody minds.
func (l *leaseholder) Keep(ctx context.Context) { l.keep(ctx, func(error) {}) }

// Live returns the partitions to begin work on.
func (l *leaseholder) Live() (partitions []int) {
	for _, lease := range l.live() {
		partitions = append(partitions, lease.Partition)
	}
	return partitions
}
