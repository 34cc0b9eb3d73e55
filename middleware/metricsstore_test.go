package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

// asked is a store that counts how often it is asked.
type asked struct {
	n      atomic.Int64
	answer func(context.Context) (eventing.Backlog, error)
}

func (a *asked) Backlog(ctx context.Context, _ time.Time) (eventing.Backlog, error) {
	a.n.Add(1)
	return a.answer(ctx)
}

func collect(t *testing.T, s eventing.BacklogStore, cfg middleware.StoreCollectorConfig) *prometheus.Registry {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	c, err := middleware.NewStoreCollector(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	return r
}

const (
	scrapeErrors = "waybill_store_scrape_errors_total{}"
	outboxLag    = "waybill_outbox_lag_seconds{}"
)

// Scrapes, however many, ask once in a while; ages grow meanwhile.
func TestStoreCollectorKeepsWhatItHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		since := time.Now()
		s := &asked{answer: func(ctx context.Context) (eventing.Backlog, error) {
			select {
			case <-time.After(time.Second):
				return eventing.Backlog{Due: 1, OldestDue: since}, nil
			case <-ctx.Done():
				return eventing.Backlog{}, ctx.Err()
			}
		}}
		r := collect(t, s, middleware.StoreCollectorConfig{})
		var scrapes sync.WaitGroup
		for range 10 {
			scrapes.Go(func() {
				if got := series(t, r); got[outboxLag] != 1 {
					t.Errorf("a scrape that finds the question asked waits for the answer: %v", got)
				}
			})
		}
		scrapes.Wait()
		<-time.After(14 * time.Second)
		if got := series(t, r); got[outboxLag] != 15 || s.n.Load() != 1 {
			t.Errorf("what was heard is kept for 15 s: asked %d times, %v", s.n.Load(), got)
		}
		<-time.After(2 * time.Second)
		if series(t, r); s.n.Load() != 2 {
			t.Errorf("and then asked for again: asked %d times", s.n.Load())
		}
	})
}

// A store that does not answer holds up a scrape for no longer than the timeout, is not asked more
// often for it, and what it said before is not told as if it were new.
func TestStoreCollectorOfAStoreThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, hang := make(chan struct{}), false
		s := &asked{answer: func(context.Context) (eventing.Backlog, error) {
			if hang {
				<-release // whatever its context says
				return eventing.Backlog{}, errors.New("late")
			}
			return eventing.Backlog{DeadLetters: map[string]int64{"": 3}}, nil
		}}
		r := collect(t, s, middleware.StoreCollectorConfig{Timeout: 2 * time.Second})
		if got := series(t, r)["dlq_size{subscriber=(dispatch)}"]; got != 3 {
			t.Errorf("what could not be dispatched has a label: %v", got)
		}
		hang = true
		<-time.After(time.Minute)
		for range 3 {
			began := time.Now()
			got := series(t, r)
			if _, told := got[outboxLag]; told || time.Since(began) != 2*time.Second || s.n.Load() != 2 {
				t.Errorf("after %v, asked %d times: %v", time.Since(began), s.n.Load(), got)
			}
		}
		close(release)
		synctest.Wait()
		if got := series(t, r); got[scrapeErrors] != 1 {
			t.Errorf("it is an error in the end: %v", got)
		}
	})
}

func TestStoreCollectorOfAStoreThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failing := errors.New("the database is out of reach")
		s := &asked{answer: func(context.Context) (eventing.Backlog, error) {
			if failing == nil {
				panic("a driver's")
			}
			return eventing.Backlog{Due: 7}, failing
		}}
		r := collect(t, s, middleware.StoreCollectorConfig{})
		for range 3 {
			if got := series(t, r); len(got) != 1 || got[scrapeErrors] != 1 || s.n.Load() != 1 {
				t.Errorf("a failure is told, and kept as long: asked %d times, %v", s.n.Load(), got)
			}
		}
		failing = nil
		<-time.After(time.Minute)
		if got := series(t, r); got[scrapeErrors] != 2 {
			t.Errorf("a panic is a failure: %v", got)
		}
	})
}

// Consumers are bounded, and who has nothing any more is at 0, not gone.
func TestStoreCollectorBoundsConsumers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		consumers := 10
		s := &asked{answer: func(context.Context) (eventing.Backlog, error) {
			b := eventing.Backlog{DeadLetters: map[string]int64{}, Deliveries: map[string]eventing.WaitingDeliveries{}}
			for i := range consumers {
				name := fmt.Sprint("c", i)
				b.DeadLetters[name] = 2
				b.Deliveries[name] = eventing.WaitingDeliveries{Retrying: 3, Parked: 4, ParkedKeys: 1}
			}
			return b, nil
		}}
		r := collect(t, s, middleware.StoreCollectorConfig{MaxConsumers: 4})
		before := series(t, r)
		if got := before["dlq_size{subscriber=other}"]; got != 12 || before["waybill_parked_deliveries{subscriber=other}"] != 24 {
			t.Errorf("6 of 10 consumers are other: %v", before)
		}
		consumers = 0
		<-time.After(time.Minute)
		after := series(t, r)
		if len(after) != len(before) || after["dlq_size{subscriber=other}"] != 0 {
			t.Errorf("%d series, then %d: %v", len(before), len(after), after)
		}
	})
}

func TestStoreCollectorRefuses(t *testing.T) {
	t.Parallel()
	if _, err := middleware.NewStoreCollector(nil, middleware.StoreCollectorConfig{}); err == nil {
		t.Error("a store is needed")
	}
	if _, err := middleware.NewStoreCollector(&asked{}, middleware.StoreCollectorConfig{Timeout: -1}); err == nil {
		t.Error("a timeout is not negative")
	}
}
