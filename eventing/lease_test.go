package eventing_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventingtest"
	"github.com/waybill-go/waybill/eventing/memstore"
)

const leaseTTL = 6 * time.Second

// office is some holders of the leases of one store, on a clock that is moved by hand.
type office struct {
	t       rapid.TB
	store   *memstore.Store
	clock   *eventingtest.Clock
	joined  int
	holders []*eventing.Leaseholder
	ghosts  []*eventing.Leaseholder // of holders that died, or were paused
}

func newOffice(t rapid.TB) *office {
	return &office{t: t, store: memstore.New(), clock: eventingtest.NewClock()}
}

func (o *office) join() *eventing.Leaseholder {
	// Names in an order other than that of joining.
	l := eventing.NewLeaseholder(o.store, fmt.Sprintf("holder-%02d", o.joined*7%100), leaseTTL, o.clock.Now)
	o.joined++
	o.holders = append(o.holders, l)
	return l
}

func (o *office) refresh(l *eventing.Leaseholder) {
	o.t.Helper()
	if err := l.Refresh(context.Background()); err != nil {
		o.t.Fatal(err)
	}
}

// exclusive checks that nobody begins work on what another may work on.
func (o *office) exclusive() {
	o.t.Helper()
	held := map[int]bool{}
	for _, l := range slices.Concat(o.holders, o.ghosts) {
		for _, p := range l.Live() {
			if held[p] {
				o.t.Fatalf("partition %d has two holders", p)
			}
			held[p] = true
		}
	}
}

// work has everybody refresh as often as they do in real life.
func (o *office) work(d time.Duration) {
	o.t.Helper()
	for ; d > 0; d -= leaseTTL / 6 {
		for _, l := range o.holders {
			o.refresh(l)
			o.exclusive()
		}
		o.clock.Advance(leaseTTL / 6)
		o.exclusive()
	}
}

// shares returns how many each holds, the fewest first.
func (o *office) shares() []int {
	var shares []int
	for _, l := range o.holders {
		shares = append(shares, len(l.Live()))
	}
	slices.Sort(shares)
	return shares
}

func (o *office) fair(when string) {
	o.t.Helper()
	shares, total := o.shares(), 0
	for _, n := range shares {
		total += n
	}
	if total != eventing.Partitions || shares[len(shares)-1]-shares[0] > 1 {
		o.t.Fatalf("%s: the shares differ by one at most, and are all there is; got %v", when, shares)
	}
}

// TestLeasesThroughChurn has holders come, go and die in any order.
func TestLeasesThroughChurn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := newOffice(t)
		o.join()
		someone := func() int { return rapid.IntRange(0, len(o.holders)-1).Draw(t, "who") }
		uses := map[*eventing.Leaseholder][]int{}
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			switch rapid.SampledFrom([]string{"time", "refresh", "refresh", "all refresh", "join", "leave", "die", "begin", "end"}).Draw(t, "what") {
			case "time":
				o.clock.Advance(time.Duration(rapid.Int64Range(1, int64(leaseTTL/2)).Draw(t, "time")))
			case "refresh":
				o.refresh(o.holders[someone()])
			case "all refresh":
				o.work(leaseTTL / 6)
			case "join":
				if len(o.holders) < 8 {
					o.refresh(o.join())
				}
			case "leave", "die":
				if i := someone(); len(o.holders) > 1 {
					l := o.holders[i]
					o.holders = slices.Delete(o.holders, i, i+1)
					if rapid.Bool().Draw(t, "politely") {
						if err := l.Release(context.Background()); err != nil {
							t.Fatal(err)
						}
					}
					o.ghosts = append(o.ghosts, l)
				}
			case "begin":
				l := o.holders[someone()]
				for _, p := range l.Live() {
					l.Use(p, 1)
					uses[l] = append(uses[l], p)
				}
			case "end":
				l := o.holders[someone()]
				for _, p := range uses[l] {
					l.Use(p, -1)
				}
				delete(uses, l)
			}
			o.exclusive()
		}
		o.work(4 * leaseTTL)
		o.fair("after a while without changes")
		before := o.shares()
		o.work(leaseTTL)
		if after := o.shares(); !slices.Equal(before, after) {
			t.Fatalf("then they stay as they are: %v, then %v", before, after)
		}
	})
}

func TestLeasesAreSharedFairly(t *testing.T) {
	t.Parallel()
	for n := 1; n <= eventing.Partitions; n++ {
		o := newOffice(t)
		for range n {
			o.join()
		}
		o.work(3 * leaseTTL)
		o.fair(fmt.Sprintf("with %d holders", n))
	}
}

func TestMoreHoldersThanPartitions(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for range eventing.Partitions + 3 {
		o.join()
	}
	o.work(3 * leaseTTL)
	o.fair("with more holders than partitions")
	o.holders = o.holders[4:] // some die
	o.work(3 * leaseTTL)
	o.fair("those that stood by take over")
}

// TestLeasesAreLetGoWhenNobodyWorks has a newcomer wait for work that is under way.
func TestLeasesAreLetGoWhenNobodyWorks(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	first := o.join()
	o.refresh(first)
	if n := len(first.Live()); n != eventing.Partitions {
		t.Fatalf("the first holder has all, not %d", n)
	}
	for p := range eventing.Partitions {
		first.Use(p, 1)
	}
	second := o.join()
	o.work(2 * leaseTTL / 3)
	if a, b := len(first.Live()), len(second.Live()); a != eventing.Partitions/2 || b != 0 {
		t.Errorf("no work begins on what is to be left, and while it is worked on, nobody else gets it; they have %d and %d", a, b)
	}
	mine, leaving := first.Live(), 0
	for slices.Contains(mine, leaving) {
		leaving++
	}
	first.Use(leaving, -1)
	o.work(leaseTTL / 2)
	if n := len(second.Live()); n != 1 {
		t.Errorf("what nobody works on any more is handed on, and that only: %d", n)
	}
	o.work(leaseTTL)
	o.fair("work that goes on for longer than a lease lives does not keep it")
}

func TestLeasesOfOneThatDiedAreTakenWhenTheyExpire(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	first := o.join()
	o.refresh(first)
	o.holders, o.ghosts = nil, []*eventing.Leaseholder{first}
	second := o.join()
	o.work(leaseTTL)
	if n := len(second.Live()); n != 0 {
		t.Errorf("until a lease expires, it is its holder's; another has %d", n)
	}
	o.refresh(second)
	if n := len(second.Live()); n != eventing.Partitions {
		t.Errorf("as soon as it has, another has it; it has %d", n)
	}
}

// TestLeasesAreKept has holders refresh by themselves, on a real clock.
func TestLeasesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		ctx, cancel := context.WithCancel(context.Background())
		var work sync.WaitGroup
		start := func(name string) (*eventing.Leaseholder, func()) {
			l := eventing.NewLeaseholder(store, name, leaseTTL, time.Now)
			ctx, end := context.WithCancel(ctx)
			work.Go(func() { l.Keep(ctx) })
			return l, end
		}
		first, _ := start("first")
		<-time.After(leaseTTL)
		second, die := start("second")
		<-time.After(leaseTTL)
		if a, b := len(first.Live()), len(second.Live()); a != 16 || b != 16 {
			t.Errorf("within a lease's life a newcomer has its share; they have %d and %d", a, b)
		}
		<-time.After(10 * leaseTTL)
		if a, b := len(first.Live()), len(second.Live()); a != 16 || b != 16 {
			t.Errorf("they keep what they have; they have %d and %d", a, b)
		}
		die()
		died := time.Now()
		for len(first.Live()) < eventing.Partitions && time.Since(died) < time.Minute {
			<-time.After(100 * time.Millisecond)
		}
		if took := time.Since(died); took > leaseTTL+leaseTTL/3 {
			t.Errorf("what a dead one had is taken over soon after it expires, not %v after the death", took)
		}
		cancel()
		work.Wait()
	})
}
