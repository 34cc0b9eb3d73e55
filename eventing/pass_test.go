package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventingtest"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// reached is a store that notes from where each look was, and up to where nothing is
// pending as far as its dispatcher knows, in partition 0.
type reached struct {
	*watched
	after []int64
	base  int64
	dead  atomic.Bool // its dispatcher: it does not get at the leases any more
}

func (s *reached) Claim(ctx context.Context, r eventing.ClaimRequest) (eventing.Claimed, error) {
	for _, p := range r.Partitions {
		if p.Partition == 0 {
			s.after = append(s.after, p.After)
		}
	}
	return s.watched.Claim(ctx, r)
}

func (s *reached) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (eventing.LeaseTable, error) {
	if s.dead.Load() {
		return eventing.LeaseTable{}, errors.New("dead")
	}
	s.base = r.Bases[0]
	return s.watched.AcquireLeases(ctx, r)
}

func (s *reached) ReleaseLeases(ctx context.Context, scope, holder string, partitions []int) error {
	if s.dead.Load() {
		return errors.New("dead")
	}
	return s.watched.ReleaseLeases(ctx, scope, holder, partitions)
}

func TestADispatcherBeginsWhereTheLastOneWas(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"stopped": false, "dead": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := memstore.New()
				first, second := &reached{watched: &watched{Store: memory}}, &reached{watched: &watched{Store: memory}}
				stop := runs(t, first, newRecorder(), eventing.DispatcherConfig{})
				for i := range 40 {
					fill(t, memory, 1, fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("c", i))
					<-time.After(500 * time.Millisecond)
				}
				first.dead.Store(dies)
				stop()
				stop = runs(t, second, newRecorder(), eventing.DispatcherConfig{})
				<-time.After(time.Minute)
				stop()
				if len(second.after) == 0 {
					t.Fatal("the next dispatcher looks")
				}
				if next := second.after[0]; next == 0 || next != first.base {
					t.Errorf("the next dispatcher's first look begins at the base of the last one, %d, not at %d", first.base, next)
				}
				if !slices.Contains(second.after, 0) {
					t.Error("there is one at everything before long")
				}
			})
		})
	}
}

// unadoptable is a store whose hand-written rows cannot be adopted.
type unadoptable struct {
	*watched
	tries atomic.Int64
}

func (s *unadoptable) Claim(ctx context.Context, r eventing.ClaimRequest) (eventing.Claimed, error) {
	c, err := s.watched.Claim(ctx, r)
	c.Unadopted = r.Unadopted
	return c, err
}

func (s *unadoptable) Adopt(context.Context, eventing.AdoptRequest) (int, error) {
	s.tries.Add(1)
	return 0, errors.New("permission denied")
}

func TestAnAdoptionThatFailsIsTriedNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, broker := &unadoptable{watched: &watched{Store: memstore.New()}}, newRecorder()
		stop := runs(t, store, broker, eventing.DispatcherConfig{BatchSize: 10, PollInterval: 10 * time.Second})
		defer stop()
		fill(t, store.Store, 1000, "k")
		<-time.After(time.Minute)
		if n := store.tries.Load(); n < 5 || n > 7 {
			t.Errorf("an adoption that fails is tried again with each poll, not %d times a minute", n)
		}
		if n := pending(t, store.Store); n != 0 {
			t.Errorf("other rows need not wait for it; %d do", n)
		}
	})
}

// slow is a store of which a look at everything takes long.
type slow struct{ *watched }

func (s slow) Claim(ctx context.Context, r eventing.ClaimRequest) (eventing.Claimed, error) {
	if slices.ContainsFunc(r.Partitions, func(p eventing.PartitionClaim) bool { return p.After == 0 && p.Partition == 5 }) {
		<-time.After(time.Second)
	}
	return s.watched.Claim(ctx, r)
}

// TestWhatDoesNotGoOutIsFoundAgain has a topic fail for a while, alone or with all others.
func TestWhatDoesNotGoOutIsFoundAgain(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]bool{"alone": true, "with all others": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, broker := slow{&watched{Store: memstore.New()}}, newRecorder()
				d, err := eventing.NewDispatcher(store, broker, ordered{}, eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- d.Run(ctx) }()
				keys, other := keysOfOnePartition(200), keyIn(6)
				for i := range 100 { // has the front move
					fill(t, store.Store, 1, keys[i], fmt.Sprint(other, i))
					<-time.After(100 * time.Millisecond)
				}
				broker.mu.Lock()
				broker.refuse[keys[150]+"/0000"] = true
				broker.mu.Unlock()
				fill(t, store.Store, 1, keys[150])
				for i := range 20 {
					if others {
						fill(t, store.Store, 1, fmt.Sprint(other, 1000+i))
					}
					<-time.After(100 * time.Millisecond)
				}
				broker.mu.Lock()
				clear(broker.refuse)
				broker.mu.Unlock()
				<-time.After(6 * time.Second)
				if broker.published()[keys[150]+"/0000"] == 0 {
					t.Error("what a broker does not take is tried again soon")
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAStopTakesNothing is of a dispatcher that has lost its leases, but knows bases.
func TestAStopTakesNothing(t *testing.T) {
	t.Parallel()
	store, clock := memstore.New(), eventingtest.NewClock()
	l := eventing.NewLeaseholder(store, "a", leaseTTL, clock.Now)
	l.Record([]int{1, 2}, map[int]int64{1: 10, 2: 20})
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	table, err := store.AcquireLeases(t.Context(), eventing.LeaseRequest{Scope: "s", Holder: "b", Now: clock.Now(), Until: clock.Now().Add(leaseTTL)})
	if err != nil || table.Held[1].Token != 1 || table.Held[1].Base != 0 {
		t.Errorf("nobody had the lease before: %+v, %v", table.Held[1], err)
	}
}

// TestOnePassIsOverEachPartition has the pass before it take long.
func TestOnePassIsOverEachPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := newDispatcher(t, store, &dawdler{recorder: newRecorder()}, eventing.DispatcherConfig{})
		fill(t, store, 1, "slow")
		once := func() int {
			n, err := d.DispatchOnce(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		once()
		var keys []string
		for p := range eventing.Partitions {
			keys = append(keys, keyIn(p))
		}
		fill(t, store, 1, keys...)
		if n := once(); n != eventing.Partitions {
			t.Errorf("one pass takes a row of each of %d partitions, not %d rows", eventing.Partitions, n)
		}
	})
}

// dawdler takes a second for its first message.
type dawdler struct {
	*recorder
	once sync.Once
}

func (d *dawdler) Publish(topic string, msgs ...*message.Message) error {
	d.once.Do(func() { <-time.After(time.Second) })
	return d.recorder.Publish(topic, msgs...)
}
