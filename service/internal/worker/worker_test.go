package worker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/eventingtest"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/shipments"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
	"github.com/waybill-go/waybill/service/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit)) }

// system is a worker with all that it needs, on a clock of the test's.
type system struct {
	*testing.T
	store  *store.Store
	ledger *ledger.Ledger
	intake *intake.Intake
	clock  *eventingtest.Clock
	batch  int
}

// gateway's policy: 5 attempts, 1 s, doubled, up to 20 % more.
var policy = eventing.Policy{Retry: eventing.RetryPolicy{
	MaxAttempts: 5, Base: time.Second, Multiplier: 2, Jitter: 0.2, JitterBasis: eventing.JitterOfDelay,
}}

// newSystem makes one whose worker has up to batch events in a transaction.
func newSystem(t *testing.T, batch int) *system {
	t.Helper()
	s := storetest.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "waybill.db"))
	l := ledger.New(s, 30*24*time.Hour)
	return &system{
		T: t, store: s, ledger: l, batch: batch, clock: eventingtest.NewClock(),
		intake: intake.New(intake.Config{Store: l.Receiver()}),
	}
}

// start runs dispatcher and worker until the returned function is called.
func (s *system) start() (stop func()) {
	s.Helper()
	quiet := slog.New(slog.DiscardHandler)
	broker := inproc.New(inproc.Config{})
	r, err := router.New(router.Config{
		Store: s.store.Events, Subscriber: broker, PollInterval: 2 * time.Millisecond, Logger: quiet,
		Now: s.clock.Now, Random: func() float64 { return 0.5 },
	})
	if err != nil {
		s.Fatal(err)
	}
	b := backend.OnSQL(s.store, backend.Config{ProcessedTTL: 30 * 24 * time.Hour})
	if err := b.Register(r, policy, backend.Worker{Batch: s.batch, Logger: quiet, Now: s.clock.Now}); err != nil {
		s.Fatal(err)
	}
	d, err := eventing.NewDispatcher(s.store.Events, broker, r, eventing.DispatcherConfig{
		PollInterval: 2 * time.Millisecond, Logger: quiet, Now: s.clock.Now,
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			s.Error(err)
		}
	})
	running.Go(func() { _ = d.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
		if err := broker.Close(); err != nil {
			s.Error(err)
		}
	}
}

func (s *system) accept(id, status string) {
	s.Helper()
	payload, err := json.Marshal(map[string]string{"shipmentId": "shp_1", "status": status})
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.intake.Accept(s.Context(), courier.Event{
		EventID: id, EventType: "shipment.status.updated", OccurredAt: s.clock.Now(), Source: "courier-x", IdempotencyKey: "courier-x:" + id,
		TraceID: "trace", Payload: payload, ReceivedAt: s.clock.Now(),
	}, courier.Payload{ShipmentID: "shp_1", Status: status}, "hash of "+id); err != nil {
		s.Fatal(err)
	}
}

// until waits until the ledger says so of an event.
func (s *system) until(id string, status courier.Status, attempts int) (event courier.EventStatus) {
	s.Helper()
	testkit.Eventually(s, 20*time.Second, func() error {
		events, _, err := s.ledger.Events(s.Context(), id, "")
		if err != nil {
			s.Fatal(err)
		}
		if len(events) != 1 || events[0].Status != status || events[0].AttemptCount != attempts {
			return fmt.Errorf("%s is not %s after %d attempts: %+v", id, status, attempts, events)
		}
		event = events[0]
		return nil
	})
	return event
}

func (s *system) exec(statement string) {
	s.Helper()
	if err := s.store.Events.InTx(s.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(s.Context(), statement)
		return err
	}); err != nil {
		s.Fatal(err)
	}
}

const (
	breakDown = `CREATE TRIGGER broken BEFORE INSERT ON shipment_events BEGIN SELECT RAISE(ABORT, 'the disk is on holiday'); END`
	mend      = `DROP TRIGGER broken`
)

// An event whose handler fails three times is tried again after 1.1, 2.2 and 4.4 s
// (the formula's delays with half of the jitter), also across a restart, and its
// ledger row says that it took four attempts.
func TestTransientFailuresAreRetriedByTheFormula(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 100} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			retriedByTheFormula(newSystem(t, batch))
		})
	}
}

func retriedByTheFormula(s *system) {
	s.exec(breakDown)
	stop := s.start()
	s.accept("evt_1", "picked_up")
	for i, delay := range []time.Duration{1100 * time.Millisecond, 2200 * time.Millisecond, 4400 * time.Millisecond} {
		e := s.until("evt_1", courier.StatusFailed, i+1)
		if e.LastErrorCode == nil || *e.LastErrorCode != string(eventing.ReasonHandlerError) || e.LastErrorMessage == nil {
			s.Errorf("after attempt %d: got %v, want a code and a message", i+1, e.LastErrorCode)
		}
		if i == 1 { // a restart forgets nothing
			stop()
			stop = s.start()
		}
		if i == 2 {
			s.exec(mend)
		}
		s.notBefore(delay, i+1)
	}
	e := s.until("evt_1", courier.StatusProcessed, 4)
	if e.Outcome != courier.OutcomeApplied {
		s.Errorf("got outcome %q, want applied", e.Outcome)
	}
	stop()
}

// notBefore advances the clock to just before the retry, sees that nothing runs, and
// then up to it.
func (s *system) notBefore(delay time.Duration, attempts int) {
	s.Helper()
	s.clock.Advance(delay - time.Millisecond)
	for range 10 { // ten looks of the worker's
		if events, _, err := s.ledger.Events(s.Context(), "evt_1", ""); err != nil || events[0].AttemptCount != attempts {
			s.Fatalf("before its time: got %+v, %v, want %d attempts", events, err, attempts)
		}
		<-time.After(3 * time.Millisecond)
	}
	s.clock.Advance(time.Millisecond)
}

// A status that no shipment can take on is given up after one attempt, and the
// events of the same shipment go on.
func TestAPermanentErrorMakesOneAttempt(t *testing.T) {
	t.Parallel()
	s := newSystem(t, 1)
	defer s.start()()
	s.accept("evt_1", "what?!")
	e := s.until("evt_1", courier.StatusDeadLettered, 1)
	if *e.LastErrorCode != string(worker.ReasonInvalidStatus) {
		t.Errorf("got code %s, want %s", *e.LastErrorCode, worker.ReasonInvalidStatus)
	}
	s.accept("evt_2", "delivered")
	s.until("evt_2", courier.StatusProcessed, 1)
	got, err := shipments.New(s.store).Get(t.Context(), "shp_1")
	if err != nil || got.CurrentState != "delivered" {
		t.Errorf("got %+v, %v, want delivered", got, err)
	}
}

// Of a batch, the event that fails is the only one that does.
func TestAPoisonousEventHurtsNoNeighbour(t *testing.T) {
	t.Parallel()
	s := newSystem(t, 100)
	for i := range 40 {
		status := "in_transit"
		if i == 17 {
			status = "what?!"
		}
		s.accept(fmt.Sprintf("evt_%d", i), status)
	}
	defer s.start()()
	for i := range 40 {
		want := courier.StatusProcessed
		if i == 17 {
			want = courier.StatusDeadLettered
		}
		s.until(fmt.Sprintf("evt_%d", i), want, 1)
	}
}

// Whatever has been forgotten elsewhere: what the ledger has as processed is not applied again, and stays so.
func TestTheLedgerKeepsWhatIsProcessed(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 100} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, batch)
			defer s.start()()
			s.accept("evt_1", "picked_up")
			s.accept("evt_2", "delivered")
			s.until("evt_1", courier.StatusProcessed, 1)
			s.until("evt_2", courier.StatusProcessed, 1)
			count := func(query string) (n int) {
				if err := s.store.Read.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			wait := func(what, query string) {
				testkit.Eventually(t, 20*time.Second, func() error {
					if n := count(query); n != 2 {
						return fmt.Errorf("%d of 2 are %s", n, what)
					}
					return nil
				})
			}
			wait("sent", `SELECT count(*) FROM event_outbox WHERE status = 'sent'`)
			s.exec(`DELETE FROM processed_events; UPDATE event_outbox SET status = 'pending'`)
			s.store.Events.Wake()
			wait("concluded again", `SELECT count(*) FROM processed_events`)
			if n := count(`SELECT count(*) FROM shipment_events`); n != 2 {
				t.Errorf("2 events were applied %d times", n)
			}
		})
	}
}
