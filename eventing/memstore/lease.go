package memstore

import (
	"cmp"
	"context"
	"slices"
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
	base   int64
}

func (l lease) heldBy(holder string, now time.Time) bool {
	return l.holder == holder && l.until.After(now)
}

// AcquireLeases implements [eventing.LeaseStore]. It does not wait for the open
// transaction: a handler that takes its time must not cost its process the leases.
func (s *Store) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (t eventing.LeaseTable, err error) {
	if err := ctx.Err(); err != nil {
		return t, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders[r.Scope] == nil {
		s.holders[r.Scope] = map[string]time.Time{}
	}
	s.holders[r.Scope][r.Holder] = r.Until
	for holder, until := range s.holders[r.Scope] {
		if holder == r.Holder || until.After(r.Now) {
			t.Holders++
		} else {
			delete(s.holders[r.Scope], holder)
		}
	}
	for p := range eventing.Partitions {
		key := leaseKey{r.Scope, p}
		l := s.leases[key]
		if r.Partitions == nil || slices.Contains(r.Partitions, p) {
			free := l.holder == "" || !l.until.After(r.Now)
			had := l.holder == r.Holder
			if l.holder != r.Holder && free {
				l.holder = r.Holder
				l.token++
			}
			if l.holder == r.Holder { // also if it has run out: nobody wanted it
				l.until = r.Until
				if had {
					l.base = cmp.Or(r.Bases[p], l.base)
				}
			}
			s.leases[key] = l
		}
		lease := eventing.Lease{Scope: r.Scope, Partition: p, Holder: l.holder, Token: l.token, Until: l.until, Base: l.base}
		switch {
		case !l.until.After(r.Now):
		case l.holder == r.Holder:
			t.Held = append(t.Held, lease)
		case l.holder != "":
			t.Others = append(t.Others, lease)
		}
	}
	return t, nil
}

// ReleaseLeases implements [eventing.LeaseStore].
func (s *Store) ReleaseLeases(ctx context.Context, scope, holder string, partitions []int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, l := range s.leases {
		if key.scope == scope && l.holder == holder && (partitions == nil || slices.Contains(partitions, key.partition)) {
			s.leases[key] = lease{token: l.token, base: l.base}
		}
	}
	if partitions == nil {
		delete(s.holders[scope], holder)
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
