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
	"github.com/waybill-go/waybill/internal/testkit"
)

// Transactions that overlap draw their sequence numbers in one order and commit in any
// other, or roll back, while dispatchers run and settle what is after them: none is
// skipped, and each is published soon after its commit. Some are open for longer than
// dispatchers remember where they were.
func TestSoakLateCommits(t *testing.T) {
	beside(t)
	a := newArena(t, "")
	r := testkit.Random(t)
	l := &lateCommits{arena: a, outbox: eventing.NewOutbox(a.store, eventing.OutboxConfig{}), journal: newJournal(), commits: map[string]time.Time{}}
	l.follower = a.follow(a.ledgerStreams()...)

	// The oldest have the lowest numbers, and a backlog after them.
	var old []*openTx
	for i := range eventing.Partitions {
		tx, err := l.open(t.Context(), keyIn(i, "old", i))
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, tx)
	}
	a.fill(l.journal, parcel, either(10_000, 200_000), 200)
	a.dispatchers(2, spec{})
	stop := a.write(l.journal, load{writers: 2, every: 20 * time.Millisecond, events: 3, keys: 200, rollbacks: 5}, r.Uint64())

	seed := r.Uint64()
	errs := make(chan error)
	go func() { errs <- l.endSlowly(t.Context(), old, rand.New(rand.NewPCG(seed, 0))) }()
	// What is committed behind a backlog waits for it.
	testkit.Eventually(t, patient, func() error {
		if n := a.count(`SELECT count(*) FROM event_outbox WHERE status = 'pending'`); n > 1000 {
			return fmt.Errorf("%d events wait", n)
		}
		return nil
	})
	const lanes = 4 // so many overlap, each in a partition of its own
	rounds := append(permutations(4), make([][]int, either(8, 200))...)
	r.Shuffle(len(rounds), func(i, j int) { rounds[i], rounds[j] = rounds[j], rounds[i] })
	for lane := range lanes {
		r := rand.New(rand.NewPCG(seed, uint64(1+lane)))
		go func() {
			errs <- l.rounds(t.Context(), 3+7*lane, rounds[lane*len(rounds)/lanes:(lane+1)*len(rounds)/lanes], r)
		}()
	}
	var err error
	for range 1 + lanes {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		t.Fatal(err)
	}
	stop()
	a.drained(patient)
	a.settledOnce()
	l.check()
}

// A transaction commits when dispatchers have looked past its event, and the next event
// of the key is appended at once: it does not overtake the first, however little of the
// outbox the next look is at.
func TestOrderOfLateCommits(t *testing.T) {
	beside(t)
	a := newArena(t, "")
	l := &lateCommits{arena: a, outbox: eventing.NewOutbox(a.store, eventing.OutboxConfig{}), journal: newJournal(), commits: map[string]time.Time{}}
	l.follower = a.follow(a.ledgerStreams()...)
	a.dispatchers(2, spec{})
	a.shares(2, 16, 16)
	var events []string // of each key: the one that is committed late, and the next
	for i := range either(50, 1000) {
		partition, key := i%eventing.Partitions, keyIn(i%eventing.Partitions, "key", i)
		late, err := l.open(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.pass(t.Context(), keyIn(partition, "marker", i)); err != nil {
			t.Fatal(err)
		}
		if err := l.commit(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		next, err := l.open(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.commit(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		events = append(events, late.event, next.event)
	}
	a.drained(patient)
	p := a.readAll(a.ledgerStreams()...)
	position := map[string]int{}
	for _, stream := range p.order {
		for i, id := range stream {
			position[id] = 1 + i
		}
	}
	overtaken := 0
	for i := 0; i < len(events); i += 2 {
		late, next := position[events[i]], position[events[i+1]]
		if late == 0 || next == 0 {
			t.Errorf("events %s and %s: positions %d and %d in the stream", events[i], events[i+1], late, next)
		} else if next < late {
			overtaken++
		}
	}
	if overtaken > 0 {
		t.Errorf("%d of %d events that were committed late were overtaken by the next event of their key", overtaken, len(events)/2)
	}
}

// lateCommits keeps what was committed in which order.
type lateCommits struct {
	*arena
	*journal
	outbox   *eventing.Outbox[pgx.Tx] // locks no keys
	follower *follower

	mu      sync.Mutex
	commits map[string]time.Time // of events: when the commit had returned
	undone  []string
}

// openTx is a transaction that has appended an event and is open.
type openTx struct {
	tx    pgx.Tx
	event string
}

func (l *lateCommits) open(ctx context.Context, key string) (*openTx, error) {
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	l.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // it has ended, unless the test has failed
	e := newEvent(parcel, key)
	return &openTx{tx, e.ID}, l.outbox.Append(ctx, tx, e)
}

func (l *lateCommits) commit(ctx context.Context, tx *openTx) error {
	if err := tx.tx.Commit(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commits[tx.event] = time.Now()
	return nil
}

func (l *lateCommits) rollback(ctx context.Context, tx *openTx) error {
	l.mu.Lock()
	l.undone = append(l.undone, tx.event)
	l.mu.Unlock()
	return tx.tx.Rollback(ctx)
}

// endSlowly commits most transactions, and rolls back some, when they have been open for
// 3 seconds and more.
func (l *lateCommits) endSlowly(ctx context.Context, old []*openTx, r *rand.Rand) error {
	<-time.After(3 * time.Second)
	span := either(3*time.Second, 40*time.Second)
	for i, n := range r.Perm(len(old)) {
		<-time.After(span / time.Duration(len(old)))
		end := l.commit
		if i%5 == 4 {
			end = l.rollback
		}
		if err := end(ctx, old[n]); err != nil {
			return err
		}
	}
	return nil
}

// rounds makes rounds in a partition. One without an order gets a random one.
func (l *lateCommits) rounds(ctx context.Context, partition int, orders [][]int, r *rand.Rand) error {
	for i, order := range orders {
		if order == nil {
			order = r.Perm(5 + r.IntN(either(3, 8)))
		}
		if err := l.round(ctx, partition, i, order, r); err != nil {
			return fmt.Errorf("a round in partition %d, which commits in the order %v: %w", partition, order, err)
		}
	}
	return nil
}

// round opens transactions, some of which it rolls back, and commits the others in an
// order. Before each commit a later event of the partition is published, so that the
// dispatcher has looked past them.
func (l *lateCommits) round(ctx context.Context, partition, number int, order []int, r *rand.Rand) error {
	txs := make([]*openTx, len(order))
	var doomed []*openTx
	for i := range txs {
		var err error
		if txs[i], err = l.open(ctx, keyIn(partition, "late", 100*number+i)); err != nil {
			return err
		}
		if r.IntN(2) == 0 {
			tx, err := l.open(ctx, keyIn(partition, "undone", 100*number+i))
			if err != nil {
				return err
			}
			doomed = append(doomed, tx)
		}
	}
	for i, n := range order {
		if err := l.pass(ctx, keyIn(partition, "marker", 100*number+i)); err != nil {
			return err
		}
		if len(doomed) > 0 && r.IntN(2) == 0 {
			if err := l.rollback(ctx, doomed[0]); err != nil {
				return err
			}
			doomed = doomed[1:]
		}
		if err := l.commit(ctx, txs[n]); err != nil {
			return err
		}
	}
	for _, tx := range doomed {
		if err := l.rollback(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// pass appends an event and waits until it has been published.
func (l *lateCommits) pass(ctx context.Context, key string) error {
	tx, err := l.open(ctx, key)
	if err != nil {
		return err
	}
	if err := l.commit(ctx, tx); err != nil {
		return err
	}
	_, err = l.follower.await(tx.event, patient)
	return err
}

func (l *lateCommits) check() {
	l.Helper()
	p := l.readAll(l.ledgerStreams()...)
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	for id, committed := range l.commits {
		if at, ok := p.first[id]; ok {
			took = append(took, max(0, at.Sub(committed)))
		} else {
			l.Errorf("event %s was committed late and skipped", id)
		}
	}
	for _, id := range l.undone {
		if p.copies[id] > 0 {
			l.Errorf("event %s was rolled back and published", id)
		}
	}
	l.compare(l.T, p.without(func(id string) bool { _, late := l.commits[id]; return late }))
	slices.Sort(took)
	l.Logf("%d late commits were published after %v in the median, 99 %% within %v, all within %v; %d were rolled back",
		len(took), quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1), len(l.undone))
	if worst, limit := quantile(took, 1), bound(2*time.Second); worst > limit {
		l.Errorf("a late commit was published after %v, want at most %v", worst, limit)
	}
}

// permutations returns all orders of n numbers from 0.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}
