package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// One timeout is for both; what the store takes in between is neither's.
func TestPrepareSharesTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout, preparing, storing = 10 * time.Second, 6 * time.Second, time.Minute
		store := memstore.New()
		var began, prepareEnds, handlerBegan, handlerEnds time.Time
		c, err := eventing.NewConsumer(store, func(ctx context.Context, _ eventing.Envelope) error {
			handlerBegan = time.Now()
			handlerEnds, _ = ctx.Deadline()
			return nil
		}, eventing.ConsumerConfig{
			Name: "billing", Transactional: true, Policy: eventing.Policy{Timeout: timeout},
			Prepare: func(ctx context.Context, _ eventing.Envelope) (any, error) {
				began = time.Now()
				prepareEnds, _ = ctx.Deadline()
				<-time.After(preparing)
				go func() {
					_ = store.InTx(context.Background(), func(*memstore.Tx) error {
						<-time.After(storing)
						return nil
					})
				}()
				synctest.Wait()
				return "prepared", nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Receive(context.Background(), parcelOf(t, "e1")); err != nil {
			t.Fatal(err)
		}
		if got := prepareEnds.Sub(began); got != timeout {
			t.Errorf("Prepare has %v, want %v", got, timeout)
		}
		if got := handlerBegan.Sub(began); got < storing {
			t.Errorf("the handler waits for its transaction, which it had after %v", got)
		}
		if got, want := handlerEnds.Sub(handlerBegan), timeout-preparing; got != want {
			t.Errorf("the handler has %v, want the %v that Prepare has left", got, want)
		}
	})
}

// A Prepare that overruns its time without noticing has failed; so has a handler to which
// it has left too little.
func TestPrepareTimesOut(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	for _, tt := range []struct {
		name               string
		preparing, handled time.Duration
		runs               int
	}{
		{"in Prepare", timeout + 1, 0, 0},
		{"in the handler", timeout - time.Second, time.Second + 1, 1},
		{"in neither", timeout - time.Second, time.Second - 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs, got := 0, eventing.Conclusion{}
				c, err := eventing.NewConsumer(memstore.New(), func(context.Context, eventing.Envelope) error {
					runs++
					<-time.After(tt.handled)
					return nil
				}, eventing.ConsumerConfig{
					Name: "billing", Logger: slog.New(slog.DiscardHandler), Policy: eventing.Policy{Timeout: timeout},
					Prepare: func(context.Context, eventing.Envelope) (any, error) {
						<-time.After(tt.preparing)
						return "late", nil
					},
					Observer: &eventing.Observer{Concluded: func(c eventing.Conclusion, _ time.Duration) { got = c }},
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Receive(context.Background(), parcelOf(t, "e1")); err != nil {
					t.Fatal(err)
				}
				want := eventing.Conclusion{State: eventing.StateRetrying, Reason: eventing.ReasonTimeout}
				if tt.name == "in neither" {
					want = eventing.Conclusion{}
				}
				if got.State != want.State || got.Reason != want.Reason || got.Attempts != 1 || runs != tt.runs {
					t.Errorf("the conclusion is %+v after %d runs", got, runs)
				}
			})
		})
	}
}

// Whatever Prepare meets when the worker stops is nobody's attempt.
func TestPrepareIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, err := eventing.NewConsumer(store, func(context.Context, eventing.Envelope) error { return nil }, eventing.ConsumerConfig{
			Name: "billing", Logger: slog.New(slog.DiscardHandler), ShutdownGrace: time.Second,
			Prepare: func(ctx context.Context, _ eventing.Envelope) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		received := make(chan error)
		go func() { received <- c.Receive(ctx, parcelOf(t, "e1")) }()
		synctest.Wait()
		stop()
		if err := <-received; !errors.Is(err, context.Canceled) {
			t.Errorf("the message is not acked; got %v", err)
		}
		stats, err := store.Stats(context.Background())
		if err != nil || stats.Inbox != 0 || len(stats.Deliveries) != 0 {
			t.Errorf("nothing is recorded: %+v, %v", stats, err)
		}
	})
}

// What fails in Prepare opens the breaker, as what fails in the handler does.
func TestPrepareAndBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c, err := eventing.NewConsumer(memstore.New(), func(context.Context, eventing.Envelope) error { return nil }, eventing.ConsumerConfig{
			Name: "billing", Logger: slog.New(slog.DiscardHandler),
			Policy: eventing.Policy{Concurrency: 1, Breaker: eventing.BreakerPolicy{Failures: 2, OpenFor: time.Hour}},
			Prepare: func(context.Context, eventing.Envelope) (any, error) {
				calls++
				return nil, errDown
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer receiving(t, c, 10)()
		<-time.After(time.Minute)
		synctest.Wait()
		if calls != 2 {
			t.Errorf("there are %d calls until the breaker opens, want 2", calls)
		}
	})
}

func TestBatchesAreNotPrepared(t *testing.T) {
	t.Parallel()
	_, err := eventing.NewBatchConsumer(memstore.New(), func(context.Context, []eventing.Envelope) error { return nil }, eventing.ConsumerConfig{
		Name: "billing", Prepare: func(context.Context, eventing.Envelope) (any, error) { return nil, nil },
	})
	if err == nil || !strings.Contains(err.Error(), "consumer billing: Prepare is for handlers of one event") {
		t.Errorf("it is refused: %v", err)
	}
}

func TestAttemptOutsideOfAConsumer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if a, ok := eventing.AttemptFromContext(ctx); ok || eventing.Prepared(ctx) != nil {
		t.Errorf("there is no attempt, and nothing prepared: %+v", a)
	}
	want := eventing.CurrentAttempt{Consumer: "billing", Number: 2}
	ctx = eventing.WithPrepared(eventing.WithAttempt(ctx, want), 7)
	if a, ok := eventing.AttemptFromContext(ctx); !ok || a != want || eventing.Prepared(ctx) != 7 {
		t.Errorf("a test of a handler can say what there is; got %+v, %v", a, eventing.Prepared(ctx))
	}
}

// An action knows the attempt, also of an event that is in the store as something that does not
// decode any more.
func TestAttemptOfAnAction(t *testing.T) {
	t.Parallel()
	ctx, store, noon := context.Background(), memstore.New(), time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var got eventing.CurrentAttempt
	c, err := eventing.NewConsumer(store, func(context.Context, eventing.Envelope) error { return nil }, eventing.ConsumerConfig{
		Name: "billing", Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
		Policy: eventing.Policy{OnExhausted: []string{eventing.ActionFallback}},
		Actions: map[string]eventing.Action{eventing.ActionFallback: func(ctx context.Context, _ any, _ eventing.Conclusion) error {
			got, _ = eventing.AttemptFromContext(ctx)
			return nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := eventing.Delivery{Consumer: "billing", EventID: "e1", EventType: "parcel", Payload: []byte("{"), Generation: 2, RoutingVersion: "v1"}
	if err := store.Fail(ctx, eventing.Failure{
		Run: eventing.Run{Delivery: d}, Now: noon, State: eventing.StateRetrying, DueAt: noon, Attempts: 3,
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.RedeliverOnce(ctx); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if want := (eventing.CurrentAttempt{Consumer: "billing", Number: 4, Generation: 2, RoutingVersion: "v1"}); got != want {
		t.Errorf("the action's attempt is %+v, want %+v", got, want)
	}
}

// A batch of one event is an attempt; the other calls for several are none.
func TestAttemptInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		c := batchConsumer(t, memstore.New(), eventing.BatchPolicy{Size: 2}, func(ctx context.Context, events []eventing.Envelope) error {
			a, ok := eventing.AttemptFromContext(ctx)
			calls = append(calls, fmt.Sprint(len(events), ok, a.Number))
			return errDown
		})
		defer receiving(t, c, 2)()
		synctest.Wait()
		if got := fmt.Sprint(calls); got != "[2 false 0 1 true 1 1 true 1]" {
			t.Errorf("the calls are %v", got)
		}
	})
}
