package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// parcelMessage is an event as a broker has it.
func parcelMessage(t *testing.T, id string) *message.Message {
	t.Helper()
	e := eventing.Envelope{Payload: []byte(`{"Number":1}`)}
	e.ID, e.Type, e.OccurredAt, e.SchemaVersion, e.CorrelationID = id, "parcel", time.Now(), 1, "c-"+id
	m, err := eventing.EnvelopeCodec{}.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func batchConsumer(t *testing.T, store eventing.ConsumerStore, batch eventing.BatchPolicy, handle eventing.BatchHandlerFunc) *eventing.Consumer {
	t.Helper()
	c, err := eventing.NewBatchConsumer(store, handle, eventing.ConsumerConfig{
		Name: "billing", Batch: batch, ShutdownGrace: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBatchPolicy(t *testing.T) {
	t.Parallel()
	handle := func(context.Context, []eventing.Envelope) error { return nil }
	for _, size := range []int{-1, 1001} {
		if _, err := eventing.NewBatchConsumer(memstore.New(), handle, eventing.ConsumerConfig{Name: "billing", Batch: eventing.BatchPolicy{Size: size}}); err == nil {
			t.Errorf("a size of %d is refused", size)
		}
	}
	one := func(context.Context, eventing.Envelope) error { return nil }
	if _, err := eventing.NewConsumer(memstore.New(), one, eventing.ConsumerConfig{Name: "billing", Batch: eventing.BatchPolicy{Size: 7}}); err == nil {
		t.Error("a consumer of one event at a time does not pass over its Batch")
	}
	for size, want := range map[int]int{0: 900, 1: 9, 1000: 9000} {
		if got := batchConsumer(t, memstore.New(), eventing.BatchPolicy{Size: size}, handle).Window(); got != want {
			t.Errorf("a size of %d has a window of %d, not %d", size, got, want)
		}
	}
	c, err := eventing.NewBatchConsumer(memstore.New(), handle, eventing.ConsumerConfig{
		Name: "billing", Batch: eventing.BatchPolicy{Size: 300}, Policy: eventing.Policy{Concurrency: 100},
	})
	if err != nil || c.Window() != 9900 {
		t.Errorf("brokers have at most 10,000 out: whole batches of that, not %d, %v", c.Window(), err)
	}
	c, err = eventing.NewBatchConsumer(memstore.New(), handle, eventing.ConsumerConfig{
		Name: "billing", Batch: eventing.BatchPolicy{Size: 1000}, Policy: eventing.Policy{Concurrency: 10},
	})
	if err != nil || c.Window() != 10_000 {
		t.Errorf("a window of %d, %v", c.Window(), err)
	}
}

// shaky is a store that is not there for some calls.
type shaky struct {
	*memstore.Store

	mu   sync.Mutex
	fail int
}

func (s *shaky) down() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == 0 {
		return nil
	}
	s.fail--
	return eventing.ErrUnavailable
}

func (s *shaky) Untouched(ctx context.Context, ds []eventing.Delivery) ([]bool, error) {
	if err := s.down(); err != nil {
		return nil, err
	}
	return s.Store.Untouched(ctx, ds)
}

func (s *shaky) SucceedAll(ctx context.Context, b eventing.BatchSuccess) error {
	if err := s.down(); err != nil {
		return err
	}
	return s.Store.SucceedAll(ctx, b)
}

func TestBatchOutlastsTheStore(t *testing.T) {
	t.Parallel()
	for failures := range 4 { // of the look and of the conclusion in turn
		synctest.Test(t, func(t *testing.T) {
			store := &shaky{Store: memstore.New(), fail: failures}
			c := batchConsumer(t, store, eventing.BatchPolicy{Size: 4, Linger: time.Minute}, func(ctx context.Context, events []eventing.Envelope) error {
				tx, _ := eventing.TxFromContext[*memstore.Tx](ctx)
				for _, e := range events {
					tx.Append("effects", e.ID)
				}
				return nil
			})
			var all sync.WaitGroup
			for i := range 4 {
				m := parcelMessage(t, fmt.Sprint("e", i))
				all.Go(func() {
					if err := c.Receive(context.Background(), m); err != nil {
						t.Errorf("it waits for the store, and then concludes: %v", err)
					}
				})
			}
			all.Wait()
			got := store.List("effects")
			slices.Sort(got)
			stats, err := store.Stats(context.Background())
			if !slices.Equal(got, []string{"e0", "e1", "e2", "e3"}) || err != nil || stats.Inbox != 4 || len(stats.Deliveries) != 0 {
				t.Errorf("after %d failures each event has its effect once, and no attempt failed: %v, %+v, %v", failures, got, stats, err)
			}
		})
	}
}

// Whoever gathers a batch may have to go: another of those that wait goes on.
func TestBatchOutlastsItsLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		c := batchConsumer(t, memstore.New(), eventing.BatchPolicy{Size: 3, Linger: time.Hour}, func(_ context.Context, events []eventing.Envelope) error {
			sizes = append(sizes, len(events))
			return nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		receive := func(ctx context.Context, id string, want error) {
			m := parcelMessage(t, id)
			all.Go(func() {
				if err := c.Receive(ctx, m); !errors.Is(err, want) {
					t.Errorf("%s: got %v, want %v", id, err, want)
				}
			})
			synctest.Wait()
		}
		receive(ctx, "leader", context.Canceled)
		receive(context.Background(), "e1", nil)
		cancel()
		<-time.After(time.Minute) // longer than the grace
		receive(context.Background(), "e2", nil)
		if len(sizes) != 0 {
			t.Errorf("two are no full batch: %v", sizes)
		}
		receive(context.Background(), "e3", nil)
		all.Wait()
		if !slices.Equal(sizes, []int{3}) {
			t.Errorf("those that stayed are one batch: %v", sizes)
		}
	})
}

// What a batch handler appends has the cause that it names, and no other.
func TestBatchCausation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
		c := batchConsumer(t, store, eventing.BatchPolicy{Size: 2, Linger: time.Minute}, func(ctx context.Context, events []eventing.Envelope) error {
			if len(events) != 2 || eventing.CorrelationID(ctx) != "" || eventing.CausationID(ctx) != "" {
				return eventing.Permanent(errors.New("the context of a batch is that of none of its events"))
			}
			tx, _ := eventing.TxFromContext[*memstore.Tx](ctx)
			for _, e := range events {
				if err := outbox.Append(eventing.WithEnvelope(ctx, e), tx, eventing.New("", "", parcel{1})); err != nil {
					return err
				}
			}
			return nil
		})
		var all sync.WaitGroup
		for _, id := range []string{"e1", "e2"} {
			m := parcelMessage(t, id)
			all.Go(func() {
				if err := c.Receive(context.Background(), m); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		claims := make([]eventing.PartitionClaim, eventing.Partitions)
		for p := range claims {
			claims[p] = eventing.PartitionClaim{Partition: p, Limit: 10}
		}
		claimed, err := store.Claim(context.Background(), eventing.ClaimRequest{Partitions: claims, Now: time.Now().Add(time.Hour)})
		if err != nil || len(claimed.Rows) != 2 {
			t.Fatalf("two events are appended: %+v, %v", claimed.Rows, err)
		}
		causes := map[string]string{}
		for _, row := range claimed.Rows {
			e, err := eventing.DecodeEnvelope(row.Payload)
			if err != nil {
				t.Fatal(err)
			}
			causes[e.CausationID] = e.CorrelationID
		}
		if causes["e1"] != "c-e1" || causes["e2"] != "c-e2" {
			t.Errorf("each is caused by its own: %v", causes)
		}
	})
}
