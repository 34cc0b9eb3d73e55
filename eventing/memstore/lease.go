package memstore

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

type leaseKey struct {
	scope     string
	partition int
}

type lease struct {
	holder string // empty: free
	token  int64
	until  time.Time
}

func (l lease) heldBy(holder string, now time.Time) bool {
	return l.holder == holder && l.until.After(now)
}

// AcquireLeases implements [eventing.LeaseStore]. It does not wait for the open
// transaction: a handler that takes its time must not cost its process the leases.
func (s *Store) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) ([]eventing.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []eventing.Lease
	for p := range eventing.Partitions {
		key := leaseKey{r.Scope, p}
		l := s.leases[key]
		switch {
		case l.holder == r.Holder: // also if it has run out: nobody wanted it
		case l.holder == "" || !l.until.After(r.Now):
			l.holder = r.Holder
			l.token++
		default:
			continue
		}
		l.until = r.Until
		s.leases[key] = l
		held = append(held, eventing.Lease{Scope: r.Scope, Partition: p, Token: l.token, Until: l.until})
	}
	return held, nil
}

// ReleaseLeases implements [eventing.LeaseStore].
func (s *Store) ReleaseLeases(ctx context.Context, scope, holder string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, l := range s.leases {
		if key.scope == scope && l.holder == holder {
			s.leases[key] = lease{token: l.token}
		}
	}
	return nil
}

func (s *Store) lease(key leaseKey) lease {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.leases[key]
}

// rely makes the transaction depend on a lease's being current, now and when it
// commits. Unordered consumers have none.
func (tx *Tx) rely(l *eventing.Lease) error {
	if l == nil {
		return nil
	}
	key := leaseKey{l.Scope, l.Partition}
	if tx.store.lease(key).token != l.Token {
		return eventing.ErrLeaseLost
	}
	tx.relyOn(key, l.Token)
	return nil
}

// dispatches reports whether the holder may settle rows of the partition.
func (tx *Tx) dispatches(holder string, partition int, now time.Time) bool {
	key := leaseKey{eventing.DispatchScope, partition}
	l := tx.store.lease(key)
	if !l.heldBy(holder, now) {
		return false
	}
	tx.relyOn(key, l.token)
	return true
}

func (tx *Tx) relyOn(key leaseKey, token int64) {
	if tx.relied == nil {
		tx.relied = map[leaseKey]int64{}
	}
	tx.relied[key] = token
}
