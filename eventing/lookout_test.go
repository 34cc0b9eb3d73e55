package eventing

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// field is what there is to find in each partition, for a lookout to look at.
type field struct {
	rows map[int]int
	seq  int64
}

func allOf(n int) []int {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	return p
}

// pass has the lookout ask for rows and learn from what it gets.
func (f *field) pass(t rapid.TB, l *lookout, partitions []int) (asked, got map[int]int, unasked bool) {
	t.Helper()
	r, unasked := l.ask(partitions, l.batch, nil, false)
	asked, got = map[int]int{}, map[int]int{}
	var c Claimed
	total := 0
	for _, p := range r.Partitions {
		if p.Limit < 0 {
			t.Fatalf("nobody can be asked for %d rows", p.Limit)
		}
		asked[p.Partition] = p.Limit
		total += p.Limit
		n := min(p.Limit, f.rows[p.Partition])
		f.rows[p.Partition] -= n
		got[p.Partition] = n
		for range n {
			f.seq++
			c.Rows = append(c.Rows, OutboxRow{Seq: f.seq, Partition: p.Partition})
		}
	}
	if total > l.batch {
		t.Fatalf("a batch has %d rows at most, not %d", l.batch, total)
	}
	l.take(r, c, 0)
	return asked, got, unasked
}

// ask makes a request of the reach that is due; unasked says that there was not enough
// for all.
func (l *lookout) ask(partitions []int, total int, flying map[int][]int64, bounded bool) (r ClaimRequest, unasked bool) {
	r, asked := l.request(partitions, l.everything(), total, flying, bounded)
	return r, asked > 0 && asked < len(partitions)
}

// take learns from what was found, at what cost.
func (l *lookout) take(r ClaimRequest, c Claimed, cost time.Duration) (more, again bool) {
	more, again = l.learn(r, c)
	l.looked(r.Partitions[0].After == 0, cost)
	return more, again
}

func (l *lookout) sum() (n int) {
	for _, limit := range l.limits {
		n += limit
	}
	return n
}

func TestLookoutSharesABatchEvenly(t *testing.T) {
	t.Parallel()
	f, l, total := field{rows: map[int]int{}}, newLookout(1000), map[int]int{}
	for p := range Partitions {
		f.rows[p] = 1_000_000
	}
	const passes = 64
	for range passes {
		_, got, _ := f.pass(t, l, allOf(Partitions))
		for p, n := range got {
			total[p] += n
		}
	}
	least, most := slices.Min(slices.Collect(maps.Values(total))), slices.Max(slices.Collect(maps.Values(total)))
	if least*2 < most || least*Partitions < passes*1000/2 {
		t.Errorf("where all have a backlog, all get much the same, and batches are full; got from %d to %d rows in %d passes", least, most, passes)
	}
}

func TestLookoutFollowsTheHotPartition(t *testing.T) {
	t.Parallel()
	f, l := field{rows: map[int]int{}}, newLookout(1000)
	for _, hot := range []int{5, 17} {
		f.rows[hot] = 1_000_000
		passes := 0
		for got := map[int]int{}; got[hot] < MaxPartitionClaim; passes++ {
			if passes > 12 {
				t.Fatalf("a partition that has all the rows gets as much as it may before long; after %d passes, %d has %d", passes, hot, got[hot])
			}
			_, got, _ = f.pass(t, l, allOf(Partitions))
		}
		f.rows[hot] = 0
	}
	for range 12 {
		f.pass(t, l, allOf(Partitions))
	}
	if most := slices.Max(slices.Collect(maps.Values(l.limits))); most > 1000/Partitions {
		t.Errorf("where there is nothing any more, little is asked for, not %d rows", most)
	}
}

func TestLookoutBoundsItsLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, Partitions).Draw(t, "partitions")
		l := newLookout(rapid.IntRange(1, 2000).Draw(t, "batch"))
		f := field{rows: map[int]int{}}
		partitions := allOf(n)
		unseen := map[int]int{} // passes since it was asked
		for range rapid.IntRange(1, 60).Draw(t, "passes") {
			for range rapid.IntRange(0, 4).Draw(t, "arrivals") {
				f.rows[rapid.IntRange(0, n-1).Draw(t, "partition")] += rapid.IntRange(0, 5000).Draw(t, "rows")
			}
			asked, _, unasked := f.pass(t, l, partitions)
			without := 0
			for _, p := range partitions {
				unseen[p]++
				if asked[p] > 0 {
					unseen[p] = 0
				} else {
					without++
				}
			}
			if len(asked) != n || unasked != (without > 0 && without < n) {
				t.Fatalf("all are asked for critical rows, and it says whether some are asked for these only: %v, %v", unasked, asked)
			}
			for p, passes := range unseen {
				if passes > Partitions {
					t.Fatalf("everyone's turn comes: partition %d was not asked in %d passes", p, passes)
				}
			}
			// Each may have a quarter of its even share, and one row, whatever the others have.
			if bound := l.batch + l.batch/4 + n; l.sum() > bound {
				t.Fatalf("the limits of %d partitions are %d in all, more than %d for batches of %d", n, l.sum(), bound, l.batch)
			}
		}
	})
}

func TestLookoutLeavesRoomForWhatFlies(t *testing.T) {
	t.Parallel()
	l := newLookout(800)
	flying := map[int][]int64{0: make([]int64, 100), 1: make([]int64, 99), 2: make([]int64, 101)}
	got := map[int]int{}
	r, unasked := l.ask(allOf(4), 800-300, flying, true)
	for _, p := range r.Partitions {
		got[p.Partition] = p.Limit
		if len(p.Exclude) != len(flying[p.Partition]) {
			t.Errorf("what is in flight is left out; of partition %d, %d rows are", p.Partition, len(p.Exclude))
		}
	}
	if want := map[int]int{0: 0, 1: 1, 2: 0, 3: 100}; !maps.Equal(got, want) || unasked {
		t.Errorf("an eighth of the batch may be in flight of one partition; asked for %v, not %v", got, want)
	}
	if _, unasked = l.ask(allOf(4), 0, nil, true); unasked {
		t.Error("where there is no room at all, there is no need to ask again")
	}
}

// TestLookoutLooksBackAsItCanAfford counts the time that looks at everything take.
func TestLookoutLooksBackAsItCanAfford(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLookout(100)
		l.base[0] = 10
		const whole, minute = 200 * time.Millisecond, time.Minute
		var spent time.Duration
		for began := time.Now(); time.Since(began) < minute; {
			r, _ := l.ask(allOf(1), 100, nil, false)
			cost := time.Millisecond
			if r.Partitions[0].After == 0 {
				cost = whole
				spent += cost
			}
			<-time.After(cost)
			l.take(r, Claimed{}, cost)
		}
		if spent > minute/costFactor+whole || spent < minute/costFactor/2 {
			t.Errorf("looks at everything take a twentieth of the time, no more and not much less: %v", spent)
		}
	})
}

func TestLookoutMindsWhatIsAheadFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLookout(1)
		l.base[0] = 10
		look := func() bool {
			r, _ := l.ask(allOf(1), 1, nil, false)
			l.take(r, Claimed{Rows: []OutboxRow{{Seq: 11}}}, 0)
			return r.Partitions[0].After == 0
		}
		looks := 0
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			if look() {
				looks++
			}
			<-time.After(time.Millisecond)
		}
		if looks > 21 {
			t.Errorf("while there is a backlog, it looks at everything every half second, not %d times in 10 s", looks)
		}
		r, _ := l.ask(allOf(1), 1, nil, false)
		l.take(r, Claimed{}, 0)
		if !look() {
			t.Error("without one, a look that costs nothing is at everything")
		}
	})
}

func TestLookoutWaitsUntilItCanLookAtEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLookout(100)
		look := func(cost time.Duration) {
			r, _ := l.ask(allOf(1), 100, nil, false)
			l.take(r, Claimed{}, cost)
		}
		look(10 * time.Millisecond)
		if got := l.wait(time.Second); got != time.Second {
			t.Errorf("after a look at everything, the pause is as it is, not %v", got)
		}
		l.base[0] = 10
		look(time.Millisecond)
		if got := l.wait(time.Second); got != 200*time.Millisecond {
			t.Errorf("after another, it ends when one at everything is affordable, not after %v", got)
		}
		if got := l.wait(50 * time.Millisecond); got != 50*time.Millisecond {
			t.Errorf("a shorter pause stays as it is, not %v", got)
		}
		<-time.After(time.Second)
		if got := l.wait(time.Second); got != time.Millisecond {
			t.Errorf("when that is affordable now, it is soon, not after %v", got)
		}
	})
}

func TestLookoutLooksAgainWhereItIsUnsure(t *testing.T) {
	t.Parallel()
	l := newLookout(100)
	l.whole, l.base[0] = time.Now().Add(time.Hour), 10
	r, _ := l.ask(allOf(1), 100, nil, false)
	if r.Partitions[0].After != 10 {
		t.Fatalf("a look begins at the base, not at %d", r.Partitions[0].After)
	}
	if _, again := l.take(r, Claimed{Unsure: true}, 0); !again {
		t.Error("where rows may turn up behind the base, a look from there is not enough")
	}
	r, _ = l.ask(allOf(1), 100, nil, false)
	if r.Partitions[0].After != 0 {
		t.Errorf("the next one is at everything, not after %d", r.Partitions[0].After)
	}
	if _, again := l.take(r, Claimed{Unsure: true}, 0); again {
		t.Error("and that one is")
	}
}

func TestLookoutGoesOnWhereTheLastHolderWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLookout(100)
		after := func(cost time.Duration) int64 {
			r, _ := l.ask(allOf(1), 100, nil, false)
			l.take(r, Claimed{}, cost)
			return r.Partitions[0].After
		}
		l.takeOver(Lease{Token: 1, Base: 10})
		if got := after(time.Millisecond); got != 10 {
			t.Errorf("the first look begins at the base of the last holder, not at %d", got)
		}
		<-time.After(costFactor * firstCost)
		if got := after(time.Millisecond); got != 0 {
			t.Errorf("before long there is one at everything, not from %d", got)
		}
		l.takeOver(Lease{Token: 2, Base: 30})
		l.takeOver(Lease{Token: 2, Base: 40})
		if got := after(time.Millisecond); got != 30 {
			t.Errorf("a base is taken over once with a lease, not %d", got)
		}
		l.takeOver(Lease{Token: 3, Base: 20})
		if got := after(time.Millisecond); got != 30 {
			t.Errorf("and not if the own one is further: %d", got)
		}
	})
}

func TestLookoutLeavesABaseThatMisleads(t *testing.T) {
	t.Parallel()
	l := newLookout(100)
	l.takeOver(Lease{Token: 1, Base: 10})
	l.whole = time.Time{}
	r, _ := l.ask(allOf(1), 100, nil, false)
	l.take(r, Claimed{Rows: []OutboxRow{{Seq: 9}}}, time.Hour)
	l.whole = time.Now()
	if r, _ = l.ask(allOf(1), 100, nil, false); r.Partitions[0].After != 0 {
		t.Errorf("where a row was found up to the base, looks do not begin there, at %d", r.Partitions[0].After)
	}
}
