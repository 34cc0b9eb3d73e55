//go:build unix

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
)

// journal is what was appended.
type journal struct {
	mu         sync.Mutex
	keys       map[string]string    // of each event
	order      map[string][]string  // by key: events in the order of their appending
	committed  map[string]time.Time // of each event: a moment just before its commit
	rolledBack map[string]bool
	doubtful   map[string]bool // the database was gone before it told whether they are committed
	discarded  map[string]bool
}

func newJournal() *journal {
	return &journal{
		keys: map[string]string{}, order: map[string][]string{}, committed: map[string]time.Time{},
		rolledBack: map[string]bool{}, doubtful: map[string]bool{}, discarded: map[string]bool{},
	}
}

var errRollback = errors.New("rolled back on purpose")

// append appends events of a type in a transaction of pgx; see appendNoted.
func (j *journal) append(ctx context.Context, outbox *eventing.Outbox[pgx.Tx], eventType string, keys []string, rollback bool) ([]string, error) {
	return appendNoted(ctx, j, outbox, eventType, keys, rollback)
}

// appendNoted appends events of a type in a transaction. It writes them down in the
// journal while their keys are locked.
func appendNoted[Tx any](ctx context.Context, j *journal, outbox *eventing.Outbox[Tx], eventType string, keys []string, rollback bool) ([]string, error) {
	events, ids := make([]eventing.Appendable, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		e := newEvent(eventType, key)
		events[i], ids[i] = e, e.ID
	}
	err := outbox.InTx(ctx, func(tx Tx) error {
		if err := outbox.Append(ctx, tx, events...); err != nil {
			return err
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		now := time.Now()
		for i, id := range ids {
			j.keys[id] = keys[i]
			if rollback {
				j.rolledBack[id] = true
				continue
			}
			j.order[keys[i]] = append(j.order[keys[i]], id)
			j.committed[id] = now
		}
		if rollback {
			return errRollback
		}
		return nil
	})
	if rollback && errors.Is(err, errRollback) {
		return ids, nil
	}
	return ids, err
}

// doubt says of events that their transaction may or may not have been committed.
func (j *journal) doubt(ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		j.doubtful[id] = true
		delete(j.committed, id)
	}
}

// load is what writers do.
type load struct {
	writers   int
	every     time.Duration // of each writer: a transaction
	events    int           // of a transaction, from 1 to this
	keys      int
	rollbacks int  // so many of a hundred transactions are rolled back
	retries   int  // so many are of events that the ledger refuses the first time
	outages   bool // of the database: its writers go on
}

// eventType returns that of a transaction's events.
func (l load) eventType(r *rand.Rand) string {
	if r.IntN(100) < l.retries {
		return retried
	}
	return parcel
}

// key returns a random key. Some are much more frequent than others.
func (l load) key(r *rand.Rand) string { return fmt.Sprint("key-", r.IntN(1+r.IntN(l.keys))) }

// write has writers append parcels until stop is called.
func (a *arena) write(j *journal, l load, seed uint64) (stop func()) {
	a.Helper()
	return l.write(a.T, seed, j, func(eventType string, keys []string, rollback bool) ([]string, error) {
		return j.append(a.Context(), a.outbox, eventType, keys, rollback)
	})
}

// write has writers append until stop is called.
func (l load) write(t testing.TB, seed uint64, j *journal, appendTo func(eventType string, keys []string, rollback bool) ([]string, error)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for n := range l.writers {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		work.Go(func() {
			tick := time.NewTicker(l.every)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				keys := make([]string, 1+r.IntN(l.events))
				for i := range keys {
					keys[i] = l.key(r)
				}
				ids, err := appendTo(l.eventType(r), keys, r.IntN(100) < l.rollbacks)
				if err != nil && !l.outages {
					t.Errorf("append: %v", err)
					return
				}
				if err != nil {
					j.doubt(ids)
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// batch is how many events are appended in a large transaction.
const batch = 1000

// fill appends n events of a type to keys in turn, in large transactions.
func (a *arena) fill(j *journal, eventType string, n, keys int) {
	a.Helper()
	for from := 0; from < n; from += batch {
		if err := a.append(j, eventType, "key", min(batch, n-from), keys); err != nil {
			a.Fatal(err)
		}
	}
}

// append appends n events of a type, in one transaction, to keys in turn that begin
// with prefix.
func (a *arena) append(j *journal, eventType, prefix string, n, keys int) error {
	of := make([]string, n)
	for i := range of {
		of[i] = fmt.Sprint(prefix, "-", i%keys)
	}
	_, err := j.append(a.Context(), a.outbox, eventType, of, false)
	return err
}

// compare checks that all that was committed is published, in the order of each key,
// and nothing else is.
func (j *journal) compare(t testing.TB, p published) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	got := map[string][]string{}
	for _, events := range p.order {
		for _, id := range events {
			key, known := j.keys[id]
			if !known || j.rolledBack[id] {
				t.Errorf("event %s of key %q was published; rolled back: %t", id, key, j.rolledBack[id])
				continue
			}
			got[key] = append(got[key], id)
		}
	}
	lost := 0
	for id := range j.committed {
		if p.copies[id] == 0 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("of %d committed events, %d have not been published", len(j.committed), lost)
	}
	wrong, example := 0, ""
	for key, want := range j.order {
		if !slices.Equal(got[key], want) {
			wrong++
			example = key + ": " + firstDifference(got[key], want)
		}
	}
	if lost == 0 && wrong > 0 {
		t.Errorf("of %d keys, %d have first deliveries that are not in the order of appending, such as %s", len(j.order), wrong, example)
	}
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("delivery %d is of event %s, want %s", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d deliveries, want %d", len(got), len(want))
}

// ages returns how long after its commit each event was published, those of events
// that pass, the shortest first. Redis counts in whole milliseconds.
func (j *journal) ages(p published, pass func(committed time.Time) bool) []time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []time.Duration
	for id, at := range j.committed {
		if first, ok := p.first[id]; ok && pass(at) {
			all = append(all, max(0, first.Sub(at)))
		}
	}
	slices.Sort(all)
	return all
}

// death is that of a dispatcher, and the partitions that it had.
type death struct {
	at         time.Time
	partitions []int
}

// waits returns how long each event waited for its publication after its commit or, if
// the dispatcher that had its partition died meanwhile, after the last of these deaths.
func (j *journal) waits(p published, deaths []death) []time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []time.Duration
	for id, from := range j.committed {
		first, ok := p.first[id]
		if !ok {
			continue
		}
		partition := eventing.PartitionOf(j.keys[id], id)
		for _, d := range deaths {
			if d.at.After(from) && d.at.Before(first) && slices.Contains(d.partitions, partition) {
				from = d.at
			}
		}
		all = append(all, max(0, first.Sub(from)))
	}
	slices.Sort(all)
	return all
}

// quantile returns that of sorted values, which there are.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(time.Millisecond)
}
