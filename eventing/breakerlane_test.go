package eventing_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// receiving hands a consumer n messages at once, and returns what ends that.
func receiving(t *testing.T, c *eventing.Consumer, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		m := parcelOf(t, fmt.Sprintf("e%03d", i))
		all.Go(func() {
			if err := c.Receive(ctx, m); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

func parcelOf(t *testing.T, id string) *message.Message {
	t.Helper()
	m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
		Header:  eventing.Header{ID: id, Type: "parcel", OccurredAt: time.Now(), CorrelationID: "c", SchemaVersion: 1},
		Payload: []byte(`{}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What has arrived and waits for a slot when the breaker opens waits for the breaker, too.
func TestBreakerStopsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		c, err := eventing.NewConsumer(memstore.New(), func(context.Context, eventing.Envelope) error {
			calls.Add(1)
			<-time.After(time.Second)
			return errDown
		}, eventing.ConsumerConfig{Name: "billing", Logger: slog.New(slog.DiscardHandler), Policy: eventing.Policy{
			Concurrency: 1, Breaker: eventing.BreakerPolicy{Failures: 3, OpenFor: time.Hour},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer receiving(t, c, 100)()
		<-time.After(30 * time.Minute)
		if n := calls.Load(); n != 3 {
			t.Errorf("%d handlers were called, want 3", n)
		}
	})
}

// A batch that fails as a whole opens the breaker after as many events alone as it takes, and
// no more is called.
func TestBreakerAndBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		var calls, after, opened atomic.Int64
		began, up := time.Now(), atomic.Bool{}
		store := memstore.New()
		c, err := eventing.NewBatchConsumer(store, func(ctx context.Context, _ []eventing.Envelope) error {
			calls.Add(1)
			if up.Load() {
				return nil
			}
			if opened.Load() > 0 {
				after.Add(1)
			}
			<-ctx.Done() // it hangs
			return ctx.Err()
		}, eventing.ConsumerConfig{
			Name: "billing", Batch: eventing.BatchPolicy{Size: 64}, Logger: slog.New(slog.DiscardHandler),
			Observer: &eventing.Observer{Breaker: func(_ string, s eventing.BreakerState) {
				if s == eventing.BreakerOpen {
					opened.CompareAndSwap(0, int64(time.Since(began)))
				}
			}},
			Policy: eventing.Policy{Concurrency: 1, Timeout: timeout, Breaker: eventing.BreakerPolicy{Failures: 2, OpenFor: 24 * time.Hour}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer receiving(t, c, 64)()
		<-time.After(6 * time.Hour)
		if got := time.Duration(opened.Load()); got > 5*timeout || after.Load() > 0 {
			t.Errorf("it opened after %v and %d calls, of which %d after that", got, calls.Load(), after.Load())
		}
		up.Store(true)
		<-time.After(24 * time.Hour)
		if s, err := store.Stats(t.Context()); err != nil || s.Inbox+s.Deliveries["retrying"] != 64 || s.Inbox < 62 {
			t.Errorf("afterwards all are dealt with: %+v, %v", s, err)
		}
	})
}

// An attempt that has to wait for something else does not keep the breaker half open.
func TestBreakerIsNotHeldByWhoCannotTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, down := memstore.New(), atomic.Bool{}
		down.Store(true)
		newConsumer := func(holder string) *eventing.Consumer {
			c, err := eventing.NewConsumer(store, func(context.Context, eventing.Envelope) error {
				if down.Load() {
					return errDown
				}
				return nil
			}, eventing.ConsumerConfig{Name: "billing", Holder: holder, Logger: slog.New(slog.DiscardHandler), Policy: eventing.Policy{
				Ordered: true, Breaker: eventing.BreakerPolicy{Failures: 1, OpenFor: time.Minute},
			}})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a, b := newConsumer("a"), newConsumer("b")
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		for _, c := range []*eventing.Consumer{a, b} {
			running.Go(func() { _ = c.Run(ctx) })
		}
		<-time.After(time.Minute)
		leases, err := a.Leases(ctx)
		if err != nil || len(leases) == 0 {
			t.Fatal(leases, err)
		}
		held := map[int]bool{}
		for _, l := range leases {
			held[l.Partition] = true
		}
		var mine, theirs []string
		for i := range 200 {
			if id := fmt.Sprintf("e%03d", i); held[eventing.PartitionOf("", id)] {
				mine = append(mine, id)
			} else {
				theirs = append(theirs, id)
			}
		}
		if err := a.Receive(ctx, parcelOf(t, mine[0])); err != nil { // it fails, and opens the breaker
			t.Fatal(err)
		}
		running.Go(func() { _ = a.Receive(ctx, parcelOf(t, theirs[0])) })
		<-time.After(2 * time.Minute)
		down.Store(false)
		handled := make(chan error, 1)
		running.Go(func() { handled <- a.Receive(ctx, parcelOf(t, mine[1])) })
		select {
		case err := <-handled:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Hour):
			t.Error("an event of an own partition waits for one of another's")
		}
	})
}
