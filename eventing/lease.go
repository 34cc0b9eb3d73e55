package eventing

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"
)

// Lease is the right to work on one partition of a scope for a while. The
// token grows with each change of holder: a write that checks it cannot come
// from a holder that has been taken over from.
type Lease struct {
	Scope     string
	Partition int
	Holder    string
	Token     int64
	Until     time.Time
	Base      int64 // what a holder has recorded; see [LeaseRequest]
}

// LeaseRequest asks for partitions of a scope, and makes its holder known there
// until then.
type LeaseRequest struct {
	Scope      string
	Holder     string // unique for each process and run
	Now        time.Time
	Until      time.Time
	Partitions []int // nil: all of the scope; empty: none
	// Bases are to be recorded, by partition, of those asked for that the holder had
	// already. Whoever has the partition next goes on from there. A dispatcher's base is
	// the Seq of a row: up to there, nothing is pending that is not Unsure (see
	// [Claimed]), nor will be.
	Bases map[int]int64
}

// LeaseTable is who holds what in a scope.
type LeaseTable struct {
	Held    []Lease // what the holder has now
	Others  []Lease // what others hold and has not run out
	Holders int     // how many there are, itself included, whether they hold something or not
}

// LeaseStore keeps who holds which partition.
type LeaseStore interface {
	// AcquireLeases renews, of the partitions asked for, what the holder has, the
	// tokens unchanged, and takes, with the next token, what is free or expired. It
	// records the holder as present in the scope until r.Until.
	AcquireLeases(ctx context.Context, r LeaseRequest) (LeaseTable, error)
	// ReleaseLeases frees partitions that the holder has in the scope; nil is all of
	// them, and its presence.
	ReleaseLeases(ctx context.Context, scope, holder string, partitions []int) error
}

// DispatchScope is the scope of the leases that dispatchers hold.
const DispatchScope = "dispatch"

var processHolder = sync.OnceValue(NewID)

// defaultLeaseTTL has a successor at work within 5 s of a death.
const defaultLeaseTTL = 4 * time.Second

// leaseholder keeps a fair share of the leases of one scope: as many as each of the
// holders that are present can have. What it has too many of it lets go once nobody
// works on it any more.
type leaseholder struct {
	store  LeaseStore
	scope  string
	holder string
	ttl    time.Duration
	now    func() time.Time
	// follows: another leaseholder of the same process acquires and releases; this one
	// only wants to know what it has.
	follows bool
	// gained is called when there are new leases; it must not block.
	gained func()
	// observed is told of each partition that was won or lost; it must not block.
	observed func(scope string, partition int, won bool)

	mu      sync.Mutex
	next    time.Time // when to ask the store again; zero: now
	held    map[int]Lease
	bases   map[int]int64     // to be recorded
	wanted  []int             // to be asked for; nil before the first answer: all
	free    map[int]time.Time // held by nobody, since when
	kept    time.Time         // until then it keeps what nobody else took
	leaving map[int]time.Time // too many, since when
	uses    map[int]int       // pieces of work under way, by partition
	working int               // pieces of work under way
	rested  chan struct{}     // closed when there are none; nil if nobody waits
	runs    int               // that have begun and not ended
	ending  bool              // it renews what it has, and takes nothing more
	ended   bool              // no work begins any more

	failure error // of the store, when it was last asked
	failed  time.Time
}

// refresh asks the store, if it is time to: before the leases run out, and when
// somebody else's do.
func (l *leaseholder) refresh(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.failure != nil {
		if since := l.now().Sub(l.failed); since >= 0 && since < l.ttl/40 {
			return l.failure // those who have waited for this answer do not ask one after the other
		}
	}
	if l.failure = l.ask(ctx); l.failure != nil {
		l.failed = l.now()
	}
	return l.failure
}

func (l *leaseholder) ask(ctx context.Context) error {
	if err := l.letGo(ctx); err != nil {
		return err
	}
	for range maxLeaseRounds {
		now := l.now()
		if !l.next.IsZero() && now.Before(l.next) && !now.Before(l.next.Add(-l.ttl)) {
			return nil
		}
		r := LeaseRequest{Scope: l.scope, Holder: l.holder, Now: now, Until: now.Add(l.ttl), Partitions: l.wanted, Bases: l.bases}
		if l.ending {
			if r.Partitions = slices.Sorted(maps.Keys(l.held)); len(r.Partitions) == 0 || l.follows {
				l.next = now.Add(l.ttl / 3)
				return nil
			}
		}
		if l.follows && l.held != nil { // the first to ask does so for both
			r.Partitions = []int{}
		}
		table, err := l.acquire(ctx, r)
		if err != nil {
			return err
		}
		l.learn(table, now)
	}
	return nil
}

// maxLeaseRounds bounds how often a holder asks at once, if others take what it
// wanted.
const maxLeaseRounds = 4

// answerWithin bounds how long a store is waited for.
const answerWithin = 5 * time.Second

// acquire waits for the answer also if ctx ends meanwhile: what is given up may still commit,
// and after the release. What comes later than a lease lives is of no use.
func (l *leaseholder) acquire(ctx context.Context, r LeaseRequest) (LeaseTable, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(l.ttl, answerWithin))
	defer cancel()
	return l.store.AcquireLeases(ctx, r)
}

// learn takes in what the store says, and plans the next request.
func (l *leaseholder) learn(t LeaseTable, now time.Time) {
	before := l.held
	l.held = make(map[int]Lease, len(t.Held))
	gained := false
	for _, lease := range t.Held {
		l.held[lease.Partition] = lease
		gained = gained || before[lease.Partition].Token != lease.Token
	}
	l.observe(before, l.held)
	if gained && l.gained != nil {
		l.gained()
	}
	l.next = now.Add(l.ttl / 3)
	if l.follows {
		l.next = now.Add(l.ttl / 6) // soon after the other
	}
	if l.follows || l.ending {
		return
	}
	taken := make(map[int]bool, len(t.Others))
	for _, lease := range t.Others {
		taken[lease.Partition] = true
		if lease.Until.Before(l.next) {
			l.next = lease.Until // then it is free, if its holder has died
		}
	}
	l.plan(l.share(t), taken, now)
}

// observe tells of what a holder has won and lost.
func (l *leaseholder) observe(before, now map[int]Lease) {
	for p, lease := range now {
		if before[p].Token != lease.Token {
			l.changed(p, true)
		}
	}
	for p := range before {
		if _, ok := now[p]; !ok {
			l.changed(p, false)
		}
	}
}

func (l *leaseholder) changed(partition int, won bool) {
	if l.observed != nil && !l.follows {
		l.observed(l.scope, partition, won)
	}
}

// share returns how many partitions are the holder's. If they cannot be shared out
// evenly, those who have one more are told apart by name.
func (l *leaseholder) share(t LeaseTable) int {
	holders := max(t.Holders, 1)
	share, rest := Partitions/holders, Partitions%holders
	before := map[string]int{} // of holders with a smaller name
	for _, lease := range t.Others {
		if lease.Holder < l.holder {
			before[lease.Holder]++
		}
	}
	for _, n := range before {
		if n > share {
			rest--
		}
	}
	if rest > 0 {
		share++
	}
	return share
}

// plan says which partitions to ask for, and which to leave to others.
func (l *leaseholder) plan(share int, taken map[int]bool, now time.Time) {
	l.wanted = []int{}
	if now.Before(l.kept) {
		share = Partitions
	}
	staying := 0
	for _, p := range l.preference() {
		switch _, ok := l.held[p]; {
		case !ok:
			delete(l.leaving, p)
			continue
		case staying < share:
			staying++
			delete(l.leaving, p)
		case l.leaving[p].IsZero():
			if l.leaving == nil {
				l.leaving = map[int]time.Time{}
			}
			l.leaving[p] = now
			l.next = now.Add(min(l.ttl/6, l.next.Sub(now)))
		}
		l.wanted = append(l.wanted, p)
	}
	l.takeFree(share-staying, taken, now)
	slices.Sort(l.wanted) // whoever locks several does so in one order
}

// takeFree asks for what nobody holds: n partitions, and those that nobody else took in a
// while. Somebody who is counted has died.
func (l *leaseholder) takeFree(n int, taken map[int]bool, now time.Time) {
	free := map[int]time.Time{}
	for _, p := range l.preference() {
		if _, ok := l.held[p]; ok || taken[p] {
			continue
		}
		free[p] = now
		if since, ok := l.free[p]; ok {
			free[p] = since
		}
		orphan := now.Sub(free[p]) >= l.ttl/8
		if n <= 0 && !orphan {
			l.next = earlier(l.next, free[p].Add(l.ttl/8))
			continue
		}
		if n--; n < 0 {
			l.kept = now.Add(l.ttl)
		}
		l.wanted = append(l.wanted, p)
		l.next = time.Time{} // at once
	}
	l.free = free
	if n > 0 && !l.next.IsZero() { // somebody is about to let go of them
		l.next = earlier(l.next, now.Add(l.ttl/40))
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// preference is all partitions in an order of the holder's own, so that those who ask
// at the same time ask for different ones.
func (l *leaseholder) preference() []int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(l.holder)) // never fails
	first := int(h.Sum32() % Partitions)
	all := make([]int, Partitions)
	for i := range all {
		all[i] = (first + i) % Partitions
	}
	return all
}

// doubt has the next refresh ask the store: a write found that a lease is not held.
func (l *leaseholder) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = time.Time{}
}

// live returns the leases to begin work under: they have not run out, and are not to
// be left to others.
func (l *leaseholder) live() []Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	var live []Lease
	now := l.now()
	for p := range Partitions {
		if lease, ok := l.held[p]; ok && lease.Until.After(now) && l.leaving[p].IsZero() {
			live = append(live, lease)
		}
	}
	return live
}

// keep refreshes in time until ctx ends.
func (l *leaseholder) keep(ctx context.Context, failed func(error)) {
	longest := max(l.ttl/6, time.Millisecond)
	timer := time.NewTimer(longest)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		pause := longest
		if err := l.refresh(ctx); err == nil {
			l.mu.Lock()
			pause = min(max(l.next.Sub(l.now()), time.Millisecond), longest)
			l.mu.Unlock()
		} else if ctx.Err() == nil {
			failed(err)
		}
		timer.Reset(pause)
	}
}

// record has the next request record the bases of some partitions, of those that have one.
func (l *leaseholder) record(partitions []int, bases map[int]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bases == nil {
		l.bases = map[int]int64{}
	}
	for _, p := range partitions {
		if base, ok := bases[p]; ok {
			l.bases[p] = base
		} else {
			delete(l.bases, p)
		}
	}
}
