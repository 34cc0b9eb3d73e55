package eventing_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parcel is the payload of these tests.
type parcel struct{ Number int }

// system is a dispatcher, a consumer and a broker between them that hands messages over
// directly, all running in the bubble of a test.
type system struct {
	t        *testing.T
	store    *memstore.Store
	outbox   *eventing.Outbox[*memstore.Tx]
	consumer *eventing.Consumer
	handled  chan string
	stop     func()

	mu    sync.Mutex
	fails func(e eventing.Envelope) error
	down  bool
	asked int
}

func (s *system) Route(string) ([]eventing.Route, bool) {
	return []eventing.Route{{Consumer: "billing", Topic: "parcels"}}, true
}

func (s *system) Consumer(string) (eventing.Route, bool) {
	return eventing.Route{Consumer: "billing", Topic: "parcels"}, true
}

func (s *system) Publish(_ string, msgs ...*message.Message) error {
	s.mu.Lock()
	s.asked++
	down := s.down
	s.mu.Unlock()
	if down {
		return errors.New("the broker is down")
	}
	for _, m := range msgs {
		if err := s.consumer.Receive(m.Context(), m); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) Close() error { return nil }

func (s *system) handle(_ context.Context, e eventing.Envelope) error {
	s.mu.Lock()
	fails := s.fails
	s.mu.Unlock()
	if fails != nil {
		if err := fails(e); err != nil {
			return err
		}
	}
	s.handled <- e.ID
	return nil
}

func start(t *testing.T, configure func(s *system, d *eventing.DispatcherConfig, c *eventing.ConsumerConfig)) *system {
	t.Helper()
	s := &system{t: t, store: memstore.New(), handled: make(chan string, 100)}
	s.outbox = eventing.NewOutbox[*memstore.Tx](s.store, eventing.OutboxConfig{})
	logger := slog.New(slog.DiscardHandler)
	d := eventing.DispatcherConfig{Logger: logger, Holder: "first"}
	c := eventing.ConsumerConfig{Name: "billing", Transactional: true, Logger: logger, Holder: "first", Policy: eventing.Policy{
		Retry: eventing.RetryPolicy{Base: time.Hour},
	}}
	if configure != nil {
		configure(s, &d, &c)
	}
	var err error
	if s.consumer, err = eventing.NewConsumer(s.store, s.handle, c); err != nil {
		t.Fatal(err)
	}
	dispatcher, err := eventing.NewDispatcher(s.store, s, s, d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var engines sync.WaitGroup
	for _, run := range []func(context.Context) error{dispatcher.Run, s.consumer.Run} {
		engines.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("Run returns nil when it is stopped, got %v", err)
			}
		})
	}
	s.stop = func() { cancel(); engines.Wait() }
	return s
}

func (s *system) append(id string) {
	s.t.Helper()
	e := eventing.New("", "", parcel{1})
	e.ID = id
	ctx := context.Background()
	if err := s.outbox.InTx(ctx, func(tx *memstore.Tx) error { return s.outbox.Append(ctx, tx, e) }); err != nil {
		s.t.Fatal(err)
	}
}

func TestRunIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(_ *system, d *eventing.DispatcherConfig, _ *eventing.ConsumerConfig) { d.PollInterval = time.Hour })
		defer s.stop()
		synctest.Wait()
		began := time.Now()
		s.append("e1")
		if id := <-s.handled; id != "e1" || time.Since(began) != 0 {
			t.Errorf("a commit wakes the dispatcher; %s came after %v", id, time.Since(began))
		}
	})
}

func TestRunRetriesWhenDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures := 0
		s := start(t, func(s *system, _ *eventing.DispatcherConfig, c *eventing.ConsumerConfig) {
			c.PollInterval = 24 * time.Hour
			s.fails = func(eventing.Envelope) error {
				if failures++; failures < 3 {
					return errors.New("busy")
				}
				return nil
			}
		})
		defer s.stop()
		began := time.Now()
		s.append("e1")
		<-s.handled
		if took := time.Since(began); took != 3*time.Hour {
			t.Errorf("retries after one and two more hours, on time whatever the poll interval; it took %v", took)
		}
	})
}

func TestRunBacksOffFromABrokerThatIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *system, _ *eventing.DispatcherConfig, _ *eventing.ConsumerConfig) { s.down = true })
		defer s.stop()
		s.append("e1")
		<-time.After(10 * time.Minute)
		s.mu.Lock()
		asked := s.asked
		s.down = false
		s.mu.Unlock()
		if asked < 60 || asked > 400 {
			t.Errorf("a broker that is down is asked with growing waits of at most some seconds, not %d times in ten minutes", asked)
		}
		back := time.Now()
		<-s.handled
		if took := time.Since(back); took > 10*time.Second {
			t.Errorf("when it is back, it is found within seconds, not after %v", took)
		}
	})
}

func TestRunGivesLeasesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(_ *system, _ *eventing.DispatcherConfig, c *eventing.ConsumerConfig) { c.Policy.Ordered = true })
		s.append("e1")
		<-s.handled
		<-time.After(time.Minute) // it renews for longer than a lease lives
		request := func(scope string) int {
			t.Helper()
			table, err := s.store.AcquireLeases(context.Background(),
				eventing.LeaseRequest{Scope: scope, Holder: "second", Now: time.Now(), Until: time.Now().Add(time.Second)})
			if err != nil {
				t.Fatal(err)
			}
			return len(table.Held)
		}
		if n := request(eventing.DispatchScope) + request("consumer/billing"); n != 0 {
			t.Errorf("who runs keeps its leases; another got %d", n)
		}
		s.stop()
		for _, scope := range []string{eventing.DispatchScope, "consumer/billing"} {
			if n := request(scope); n != eventing.Partitions {
				t.Errorf("who stops gives its leases of %s back at once; another got %d", scope, n)
			}
		}
	})
}

func TestRunWaitsForRunningHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts, running := 0, make(chan struct{})
		s := start(t, func(s *system, _ *eventing.DispatcherConfig, c *eventing.ConsumerConfig) {
			c.ShutdownGrace = 10 * time.Second
			s.fails = func(eventing.Envelope) error {
				if attempts++; attempts == 1 {
					return errors.New("busy")
				}
				close(running)
				<-time.After(5 * time.Second)
				return nil
			}
		})
		s.append("e1")
		<-running
		s.stop()
		select {
		case <-s.handled:
		default:
			t.Error("a handler that is running has its grace to conclude")
		}
		stats, err := s.store.Stats(context.Background())
		if err != nil || stats.Inbox != 1 || len(stats.Deliveries) != 0 {
			t.Errorf("and its conclusion is recorded: %+v, %v", stats, err)
		}
	})
}

func TestPrunerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, nil)
		s.append("e1")
		<-s.handled
		synctest.Wait()
		s.stop()
		p, err := eventing.NewPruner(s.store, eventing.PrunerConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Hour)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
		stats, err := s.store.Stats(context.Background())
		if err != nil || stats.Outbox["sent"] != 0 || stats.Inbox != 1 {
			t.Errorf("a day later the outbox row is gone and the inbox row is not: %+v, %v", stats, err)
		}
	})
}
