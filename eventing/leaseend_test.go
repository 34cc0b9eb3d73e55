package eventing_test

import (
	"context"
	"log/slog"
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
