package eventing_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// takeAll has another holder ask for all partitions of a scope, and returns how many it gets.
func takeAll(t *testing.T, store eventing.LeaseStore, scope string) int {
	t.Helper()
	table, err := store.AcquireLeases(context.Background(), eventing.LeaseRequest{
		Scope: scope, Holder: "another", Now: time.Now(), Until: time.Now().Add(time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(table.Held)
}

// A consumer that is stopped keeps its leases until its handlers have concluded, and what
// comes to it afterwards takes none.
func TestLeasesEndWithTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, entered, finish := memstore.New(), make(chan string), make(chan struct{})
		c, err := eventing.NewConsumer(store, func(ctx context.Context, e eventing.Envelope) error {
			entered <- e.ID
			select {
			case <-finish:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, eventing.ConsumerConfig{
			Name: "billing", LeaseTTL: leaseTTL, ShutdownGrace: 3 * leaseTTL, Logger: slog.New(slog.DiscardHandler),
			Policy: eventing.Policy{Ordered: true, Timeout: time.Hour},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended, received := make(chan error, 1), make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		go func() { received <- c.Receive(ctx, messageOf(t, "e1")) }()
		<-entered
		cancel()
		for range 5 {
			<-time.After(leaseTTL / 2)
			if n := takeAll(t, store, "consumer/billing"); n > 0 {
				t.Fatalf("while a handler runs, another holder gets %d partitions", n)
			}
		}
		close(finish)
		if err := <-received; err != nil {
			t.Errorf("the handler's success was not recorded: %v", err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := c.Receive(ctx, messageOf(t, "e2")); err == nil {
			t.Error("a consumer that has ended accepts a message")
		}
		if n := takeAll(t, store, "consumer/billing"); n != eventing.Partitions {
			t.Errorf("after the end another holder gets %d partitions, want all", n)
		}

		ctx, cancel = context.WithCancel(t.Context())
		go func() { ended <- c.Run(ctx) }()
		<-time.After(leaseTTL)
		go func() { received <- c.Receive(ctx, messageOf(t, "e2")) }()
		if id := <-entered; id != "e2" {
			t.Errorf("run again, it handles %s", id)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// remote is a store that commits what it was asked for though nobody waits for the answer.
type remote struct{ *memstore.Store }

func (r remote) AcquireLeases(ctx context.Context, request eventing.LeaseRequest) (table eventing.LeaseTable, err error) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		<-time.After(time.Second)
		table, err = r.Store.AcquireLeases(context.WithoutCancel(ctx), request)
	}()
	select {
	case <-answered:
		return table, err
	case <-ctx.Done():
		return eventing.LeaseTable{}, ctx.Err()
	}
}

// A holder that is stopped while it asks for leases does not leave them behind.
func TestReleaseComesAfterWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := remote{memstore.New()}
		l := eventing.NewLeaseholder(store, "first", leaseTTL, time.Now)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_ = l.Refresh(ctx) // it may fail
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		<-time.After(2 * time.Second)
		if n := takeAll(t, store, "s"); n != eventing.Partitions {
			t.Errorf("another holder gets %d partitions, want all", n)
		}
	})
}

// troubled is a store that takes its time to decide about arrivals, and that does not answer
// any more once hangs is closed.
type troubled struct {
	*memstore.Store
	arriving time.Duration
	hangs    chan struct{}
}

func (s troubled) Arrive(ctx context.Context, d eventing.Delivery, l *eventing.Lease, now time.Time) (eventing.Decision, eventing.Run, error) {
	<-time.After(s.arriving)
	return s.Store.Arrive(ctx, d, l, now)
}

func (s troubled) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (eventing.LeaseTable, error) {
	if err := s.hang(ctx); err != nil {
		return eventing.LeaseTable{}, err
	}
	return s.Store.AcquireLeases(ctx, r)
}

func (s troubled) ReleaseLeases(ctx context.Context, scope, holder string, partitions []int) error {
	if err := s.hang(ctx); err != nil {
		return err
	}
	return s.Store.ReleaseLeases(ctx, scope, holder, partitions)
}

func (s troubled) hang(ctx context.Context) error {
	select {
	case <-s.hangs:
		<-ctx.Done()
	default:
	}
	return ctx.Err()
}

// orderly returns an ordered consumer of a store.
func orderly(t *testing.T, store eventing.ConsumerStore, handle func(context.Context, eventing.Envelope) error) *eventing.Consumer {
	t.Helper()
	c, err := eventing.NewConsumer(store, handle, eventing.ConsumerConfig{
		Name: "billing", LeaseTTL: leaseTTL, Logger: slog.New(slog.DiscardHandler), Policy: eventing.Policy{Ordered: true, Concurrency: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// However many wait for an answer of a store that hangs, a stop does not take longer.
func TestStopWhileTheStoreHangs(t *testing.T) {
	t.Parallel() // not in a bubble: there, who waits for a lock holds the time
	store := troubled{Store: memstore.New(), hangs: make(chan struct{})}
	c := orderly(t, store, func(context.Context, eventing.Envelope) error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for leases := 0; leases < eventing.Partitions; {
		held, err := c.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		leases = len(held)
	}
	close(store.hangs)
	var received sync.WaitGroup
	for i := range 30 {
		received.Go(func() { _ = c.Receive(ctx, messageOf(t, fmt.Sprint("e", i))) })
	}
	<-time.After(leaseTTL / 2) // they have to ask
	cancel()
	stopped := time.Now()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	received.Wait()
	if took := time.Since(stopped); took > 17*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// A handler that has not begun when the leases are given back does not begin any more.
func TestNoHandlerBeginsWithoutALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := troubled{Store: memstore.New(), arriving: time.Second}
		var taken []int
		c := orderly(t, store, func(context.Context, eventing.Envelope) error {
			<-time.After(time.Second)
			taken = append(taken, takeAll(t, store, "consumer/billing"))
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended, received := make(chan error, 1), make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		go func() { received <- c.Receive(ctx, messageOf(t, "e1")) }()
		<-time.After(500 * time.Millisecond)
		cancel()
		if err := <-received; err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !slices.Equal(taken, []int{0}) {
			t.Errorf("while the handler runs, another holder gets %d partitions, want none", taken)
		}
	})
}

// Of a consumer that runs twice at once, the run that is left keeps the leases.
func TestTheLastRunGivesTheLeasesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := orderly(t, store, func(context.Context, eventing.Envelope) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		first, stopFirst := context.WithCancel(ctx)
		var runs sync.WaitGroup
		runs.Go(func() { _ = c.Run(ctx) })
		runs.Go(func() { _ = c.Run(first) })
		<-time.After(leaseTTL)
		stopFirst()
		<-time.After(2 * leaseTTL)
		if n := takeAll(t, store, "consumer/billing"); n > 0 {
			t.Errorf("while one runs, another holder gets %d partitions", n)
		}
		if err := c.Receive(ctx, messageOf(t, "e1")); err != nil {
			t.Error(err)
		}
		cancel()
		runs.Wait()
		if n := takeAll(t, store, "consumer/billing"); n != eventing.Partitions {
			t.Errorf("after the end another holder gets %d partitions, want all", n)
		}
	})
}
