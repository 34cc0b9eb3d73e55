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
	"github.com/waybill-go/waybill/eventing/memstore"
)

// watched is a store that notes what dispatchers ask of it.
type watched struct {
	*memstore.Store
	claims, acquisitions atomic.Int64
	settle               func(ctx context.Context, r eventing.SettleRequest) error // before it does; nil: nothing

	mu   sync.Mutex
	acts []string
}

func (s *watched) note(act string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acts = append(s.acts, act)
}

func (s *watched) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acts)
}

// Sleep returns what is never woken: whoever appends is in another process.
func (s *watched) Sleep() (woken <-chan struct{}, stop func()) { return make(chan struct{}), func() {} }

func (s *watched) Claim(ctx context.Context, r eventing.ClaimRequest) (eventing.Claimed, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, r)
}

func (s *watched) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (eventing.LeaseTable, error) {
	s.acquisitions.Add(1)
	return s.Store.AcquireLeases(ctx, r)
}

func (s *watched) ReleaseLeases(ctx context.Context, scope, holder string, partitions []int) error {
	s.note("release")
	return s.Store.ReleaseLeases(ctx, scope, holder, partitions)
}

func (s *watched) Settle(ctx context.Context, r eventing.SettleRequest) (int, error) {
	if s.settle != nil {
		if err := s.settle(ctx, r); err != nil {
			return 0, err
		}
	}
	n, err := s.Store.Settle(ctx, r)
	s.note("settled")
	return n, err
}

// recorder is a broker that takes note of everything.
type recorder struct {
	mu     sync.Mutex
	ids    []string
	topics map[string][]string
	calls  int
	refuse map[string]bool
}

func newRecorder() *recorder {
	return &recorder{topics: map[string][]string{}, refuse: map[string]bool{}}
}

func (r *recorder) take(topics []string, msgs []*message.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if slices.ContainsFunc(msgs, func(m *message.Message) bool { return r.refuse[m.UUID] }) {
		return errors.New("too large")
	}
	for i, m := range msgs {
		r.ids = append(r.ids, m.UUID)
		r.topics[topics[i]] = append(r.topics[topics[i]], m.UUID)
	}
	return nil
}

func (r *recorder) Publish(topic string, msgs ...*message.Message) error {
	return r.take(slices.Repeat([]string{topic}, len(msgs)), msgs)
}

func (r *recorder) Close() error { return nil }

// published returns how often each event was, on all topics.
func (r *recorder) published() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for _, id := range r.ids {
		n[id]++
	}
	return n
}

// ledgerAndMail routes everything to an ordered consumer and one that is not.
type ledgerAndMail struct{ ordered }

func (l ledgerAndMail) Route(eventType string) ([]eventing.Route, bool) {
	routes, known := l.ordered.Route(eventType)
	return append(routes, eventing.Route{Consumer: "mail", Topic: "mail"}), known
}

func newDispatcher(t *testing.T, store eventing.DispatchStore, pub message.Publisher, cfg eventing.DispatcherConfig) *eventing.Dispatcher {
	t.Helper()
	cfg.Logger, cfg.Holder = slog.New(slog.DiscardHandler), "first"
	d, err := eventing.NewDispatcher(store, pub, ledgerAndMail{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// runs has a dispatcher run until stop.
func runs(t *testing.T, store eventing.DispatchStore, pub message.Publisher, cfg eventing.DispatcherConfig) (stop func()) {
	t.Helper()
	d := newDispatcher(t, store, pub, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// fill appends n events of each key, and wakes nobody. An event of key "k" is "k/0001".
func fill(t *testing.T, store *memstore.Store, n int, keys ...string) {
	t.Helper()
	outbox := eventing.NewOutbox[*memstore.Tx](store, eventing.OutboxConfig{})
	var events []eventing.Appendable
	for i := range n {
		for _, key := range keys {
			e := eventing.New("", "", parcel{i})
			e.ID, e.OrderingKey = fmt.Sprintf("%s/%04d", key, i), key
			events = append(events, e)
		}
	}
	ctx := context.Background()
	if err := store.InTx(ctx, func(tx *memstore.Tx) error { return outbox.Append(ctx, tx, events...) }); err != nil {
		t.Fatal(err)
	}
}

func pending(t *testing.T, store *memstore.Store) int64 {
	t.Helper()
	stats, err := store.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return stats.Outbox["pending"]
}

// keyIn returns an ordering key of a partition.
func keyIn(partition int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("p%d-%d", partition, i); eventing.PartitionOf(key, "") == partition {
			return key
		}
	}
}

// TestWorkersKeepTheOrder has a backlog for several workers.
func TestWorkersKeepTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		for k := range 100 {
			keys = append(keys, fmt.Sprintf("k%d", k))
		}
		store, broker := &watched{Store: memstore.New()}, newRecorder()
		fill(t, store.Store, 30, keys...)
		stop := runs(t, store, broker, eventing.DispatcherConfig{Concurrency: 4, BatchSize: 200})
		for began := time.Now(); pending(t, store.Store) > 0 && time.Since(began) < time.Minute; {
			<-time.After(10 * time.Millisecond)
		}
		stop()
		if n := pending(t, store.Store); n != 0 {
			t.Errorf("everything is settled, but %d", n)
		}
		for id, n := range broker.published() {
			if n != 2 {
				t.Errorf("each topic has an event once; %s was published %d times", id, n)
			}
		}
		for topic, ids := range broker.topics {
			last := map[string]string{}
			for _, id := range ids {
				key := id[:len(id)-len("/0000")]
				if id < last[key] && topic != "mail" {
					t.Fatalf("the events of a key are published in their order; %s comes after %s", id, last[key])
				}
				last[key] = id
			}
		}
		if n := len(broker.topics["mail"]); n != 3000 {
			t.Errorf("everything is published, not %d", n)
		}
	})
}

// TestAnIdleDispatcherPolls counts what it asks.
func TestAnIdleDispatcherPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memstore.New()}
		stop := runs(t, store, newRecorder(), eventing.DispatcherConfig{})
		defer stop()
		<-time.After(10 * time.Second)
		claims, acquisitions := store.claims.Load(), store.acquisitions.Load()
		const seconds = 30
		<-time.After(seconds * time.Second)
		claims, acquisitions = store.claims.Load()-claims, store.acquisitions.Load()-acquisitions
		if claims > seconds+1 || claims < seconds-1 {
			t.Errorf("while nothing happens, it looks each second; %d looks in %d s", claims, seconds)
		}
		if acquisitions > seconds {
			t.Errorf("and the leases are renewed every third of their life, not %d times in %d s", acquisitions, seconds)
		}
	})
}

// TestAPollIsForAllWorkers appends in every partition, as another process would.
func TestAPollIsForAllWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, broker := &watched{Store: memstore.New()}, newRecorder()
		stop := runs(t, store, broker, eventing.DispatcherConfig{Concurrency: 4})
		defer stop()
		for p := range 8 {
			<-time.After(7 * time.Second)
			key := keyIn(p)
			fill(t, store.Store, 1, key)
			<-time.After(time.Second + time.Millisecond)
			if broker.published()[key+"/0000"] == 0 {
				t.Errorf("what was appended elsewhere is found with the next poll, whoever has the partition: %d", p)
			}
		}
	})
}

// TestAFailedSettlementIsMadeUpFor has the database fail in the background.
func TestAFailedSettlementIsMadeUpFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, broker := &watched{Store: memstore.New()}, newRecorder()
		var calls atomic.Int64
		store.settle = func(context.Context, eventing.SettleRequest) error {
			if n := calls.Add(1); n == 2 || n == 3 {
				return errors.New("the connection is gone")
			}
			return nil
		}
		fill(t, store.Store, 200, keyIn(3), keyIn(4))
		stop := runs(t, store, broker, eventing.DispatcherConfig{BatchSize: 100, Concurrency: 1})
		for began := time.Now(); pending(t, store.Store) > 0 && time.Since(began) < time.Minute; {
			<-time.After(10 * time.Millisecond)
		}
		stop()
		if n := pending(t, store.Store); n != 0 {
			t.Fatalf("everything is settled in the end, but %d", n)
		}
		again := 0
		for id, n := range broker.published() {
			if n < 2 {
				t.Errorf("nothing is lost; %s was published %d times", id, n)
			} else if n > 2 {
				again++
			}
		}
		if again == 0 || again > 300 {
			t.Errorf("what was not settled is published again, and no more than that; %d events were", again)
		}
	})
}

// TestAStopSettlesWhatIsOut stops a dispatcher while it settles.
func TestAStopSettlesWhatIsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, broker := &watched{Store: memstore.New()}, newRecorder()
		settling := make(chan struct{}, 10)
		store.settle = func(ctx context.Context, _ eventing.SettleRequest) error {
			store.note("settling")
			settling <- struct{}{}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second): // the database takes its time
				return nil
			}
		}
		fill(t, store.Store, 500, keyIn(3))
		stop := runs(t, store, broker, eventing.DispatcherConfig{BatchSize: 100})
		<-settling
		stop()
		acts := slices.Compact(store.noted())
		if want := []string{"settling", "settled", "release"}; !slices.Equal(acts[max(0, len(acts)-3):], want) {
			t.Errorf("a dispatcher that stops waits for its settlement, and gives its leases back then: %v", acts)
		}
		if out := len(broker.published()); out == 500 || pending(t, store.Store) != int64(500-out) {
			t.Errorf("what it has published is settled: %d events are out, and %d pending", out, pending(t, store.Store))
		}
	})
}

// TestAStopDoesNotWaitForEver stops a dispatcher whose database does not answer.
func TestAStopDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, settling := &watched{Store: memstore.New()}, make(chan struct{}, 10)
		store.settle = func(ctx context.Context, _ eventing.SettleRequest) error {
			settling <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		fill(t, store.Store, 1, keyIn(3))
		stop := runs(t, store, newRecorder(), eventing.DispatcherConfig{})
		<-settling
		began := time.Now()
		stop()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it gives up after some seconds, not %v", took)
		}
	})
}
