package routing_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bookings = `
routing: 1
consumers:
  mail: {retry: {max_attempts: 3, base: 1s}, timeout: 1h}
  ledger: {ordered: true, guarantee: exactly_once, retry: {max_attempts: 2, base: 1s}}
events:
  booked:
    critical: payload.seats > 9
    schemas:
      1: {type: object, required: [seats], properties: {seats: {type: integer}}}
      2: {type: object, required: [seats, guest], properties: {seats: {type: integer}, guest: {type: string}}}
  left: {}
matrix:
  booked: [mail, ledger]
  left: [ledger]
actions:
  booked:
    mail: [{when: payload.seats > 0, do: confirm, with: {channels: [post, phone]}}]
    ledger: [{do: enter, continue: true}, {do: count}]
  left:
    ledger: [{do: enter}]
modifiers:
  - {name: no_phone, when: '!guest.phone', remove: {channels: [phone]}}
lookups:
  guest: {key: payload.guest, schema: {type: object, properties: {phone: {type: boolean}}}, timeout: 1m, cache: 10m, on_error: retry}
`

func table(t *testing.T, text string) *routing.Table {
	t.Helper()
	table, err := routing.Parse("routes.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// guest adds what version 1 lacks.
var guest = routing.Upcaster{EventType: "booked", From: 1, Upcast: func(p json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(strings.Replace(string(p), "{", `{"guest":"walk-in",`, 1)), nil
}}

// inn is a process with a router of bookings.
type inn struct {
	*memstore.Store

	t      *testing.T
	app    *routing.Router
	outbox *eventing.Outbox[*memstore.Tx]
	lookup func(ctx context.Context, key string) (any, error)
	fail   atomic.Bool // in the ledger's second action
}

type booking struct {
	Seats int    `json:"seats"`
	Guest string `json:"guest"`
}

// open starts the process in a bubble; it ends with the test.
func open(t *testing.T, lookup func(ctx context.Context, key string) (any, error)) *inn {
	t.Helper()
	i := &inn{Store: memstore.New(), t: t, lookup: lookup}
	logger := slog.New(slog.DiscardHandler)
	broker := inproc.New(inproc.Config{})
	routes := table(t, bookings)
	i.outbox = eventing.NewOutbox(i.Store, eventing.OutboxConfig{Lane: routes.Lane})
	var err error
	i.app, err = routing.New(router.Config{Store: i.Store, Subscriber: broker, Logger: logger, Random: func() float64 { return 0 }}, routes, routing.Config{
		Lookups: map[string]routing.LookupFunc{"guest": lookup}, Upcasters: []routing.Upcaster{guest},
	})
	if err == nil {
		err = errors.Join(
			routing.Handle(i.app, "mail", "confirm", func(_ context.Context, e eventing.Event[booking], a routing.Action) error {
				return i.Do(func(tx *memstore.Tx) { tx.Append("mail", e.Payload.Guest+" by "+strings.Join(a.List("channels"), "+")) })
			}),
			routing.HandleTx(i.app, "ledger", "enter", func(_ context.Context, tx *memstore.Tx, e eventing.Event[json.RawMessage], _ routing.Action) error {
				tx.Append("ledger", "enter "+e.ID)
				return nil
			}),
			routing.HandleTx(i.app, "ledger", "count", func(_ context.Context, tx *memstore.Tx, e eventing.Event[booking], _ routing.Action) error {
				tx.Append("ledger", "count "+e.ID)
				if i.fail.Load() {
					return errors.New("the ledger is closed")
				}
				return nil
			}),
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := eventing.NewDispatcher(i.Store, broker, i.app, eventing.DispatcherConfig{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	consuming, stopConsuming := context.WithCancel(context.Background())
	dispatching, stopDispatching := context.WithCancel(context.Background())
	var consumers, dispatcher sync.WaitGroup
	dispatcher.Go(func() { _ = d.Run(dispatching) }) // logs its errors
	consumers.Go(func() {
		if err := i.app.Run(consuming); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		stopConsuming()
		consumers.Wait()
		_ = broker.Close() // always nil
		stopDispatching()
		dispatcher.Wait()
	})
	return i
}

// Do commits what fn does.
func (i *inn) Do(fn func(tx *memstore.Tx)) error {
	return i.InTx(context.Background(), func(tx *memstore.Tx) error { fn(tx); return nil })
}

func (i *inn) book(id string, version int, payload string) {
	i.t.Helper()
	e := eventing.New("room", "r", json.RawMessage(payload))
	e.ID, e.Type, e.SchemaVersion = id, "booked", version
	if err := i.outbox.InTx(i.t.Context(), func(tx *memstore.Tx) error { return i.outbox.Append(i.t.Context(), tx, e) }); err != nil {
		i.t.Fatal(err)
	}
}

func (i *inn) did(name string, want ...string) {
	i.t.Helper()
	if got := i.List(name); !slices.Equal(got, want) {
		i.t.Errorf("%s: %q; want %q", name, got, want)
	}
}

func phone(context.Context, string) (any, error) { return map[string]bool{"phone": true}, nil }

func TestTableRunsConsumers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		i := open(t, func(_ context.Context, key string) (any, error) {
			asked++
			return struct {
				Phone bool `json:"phone"`
			}{key == "ann"}, nil
		})
		i.book("1", 2, `{"seats":2,"guest":"ann"}`)
		synctest.Wait()
		i.book("2", 2, `{"seats":3,"guest":"bob"}`)
		synctest.Wait()
		i.book("3", 1, `{"seats":3}`)
		synctest.Wait()
		i.book("4", 2, `{"seats":0,"guest":"eve"}`) // no rule matches
		synctest.Wait()
		i.book("5", 2, `{"seats":1,"guest":"ann"}`) // from the cache
		synctest.Wait()
		i.did("mail", "ann by post+phone", "bob by post", "walk-in by post", "ann by post+phone")
		i.did("ledger", "enter 1", "count 1", "enter 2", "count 2", "enter 3", "count 3", "enter 4", "count 4", "enter 5", "count 5")
		if asked != 3 {
			t.Errorf("the lookup was made %d times; want 3", asked)
		}
		<-time.After(10 * time.Minute)
		i.book("6", 2, `{"seats":1,"guest":"ann"}`)
		synctest.Wait()
		if asked != 4 {
			t.Errorf("after the cache's time the lookup was made %d times; want 4", asked)
		}
	})
}

func TestActionsOfAnEventAreOneTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := open(t, phone)
		i.fail.Store(true)
		i.book("1", 2, `{"seats":2,"guest":"ann"}`)
		synctest.Wait()
		i.did("ledger")
		i.fail.Store(false)
		<-time.After(2 * time.Second)
		synctest.Wait()
		i.did("ledger", "enter 1", "count 1")
		i.did("mail", "ann by post+phone")
	})
}

func TestSlowLookupHoldsUpItsConsumerOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		hang.Store(true)
		i := open(t, func(ctx context.Context, _ string) (any, error) {
			if hang.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return map[string]bool{"phone": true}, nil
		})
		i.book("1", 2, `{"seats":2,"guest":"ann"}`)
		synctest.Wait() // no time has passed: the lookup hangs
		i.did("ledger", "enter 1", "count 1")
		i.did("mail")
		<-time.After(time.Minute) // its timeout
		synctest.Wait()
		hang.Store(false)
		<-time.After(2 * time.Second)
		synctest.Wait()
		i.did("mail", "ann by post+phone")
	})
}

func TestLookupThatStaysDownIsADeadLetter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := open(t, func(context.Context, string) (any, error) { return nil, errors.New("the register is down") })
		i.book("1", 2, `{"seats":2,"guest":"ann"}`)
		<-time.After(time.Minute)
		synctest.Wait()
		letters, err := eventing.NewDeadLetters(i.Store).List(t.Context(), eventing.DeadLetterFilter{})
		if err != nil || len(letters) != 1 {
			t.Fatalf("%d dead letters, %v", len(letters), err)
		}
		if l := letters[0]; l.Consumer != "mail" || l.AttemptCount != 3 || !strings.Contains(l.Message, "lookup guest: the register is down") {
			t.Errorf("the dead letter is %+v", l)
		}
		i.did("ledger", "enter 1", "count 1")
	})
}

func TestEventThatBreaksItsSchemaIsADeadLetterOfEachConsumer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := open(t, phone)
		i.book("1", 2, `{"seats":"two"}`)
		synctest.Wait()
		letters, err := eventing.NewDeadLetters(i.Store).List(t.Context(), eventing.DeadLetterFilter{})
		if err != nil || len(letters) != 2 {
			t.Fatalf("%d dead letters, %v", len(letters), err)
		}
		for _, l := range letters {
			if l.Reason != routing.ReasonSchemaViolation || l.AttemptCount != 1 || strings.Contains(l.Message, "two") {
				t.Errorf("the dead letter is %+v", l)
			}
		}
	})
}

// A consumer that no row of the matrix has runs without handlers. What another table has sent to it is a dead letter.
func TestConsumerThatGetsNoEventsNeedsNoHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(), inproc.New(inproc.Config{})
		const text = "routing: 1\nconsumers: {idle: {guarantee: exactly_once}}\nevents: {e: {}}\n"
		logger := slog.New(slog.DiscardHandler)
		app, err := routing.New(router.Config{Store: store, Subscriber: broker, Logger: logger}, table(t, text+"matrix: {e: []}\n"), routing.Config{})
		if err != nil {
			t.Fatal(err)
		}
		older := table(t, text+"matrix: {e: [idle]}\nactions: {e: {idle: [{do: note}]}}\n")
		d, err := eventing.NewDispatcher(store, broker, older, eventing.DispatcherConfig{Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = d.Run(ctx) }) // logs its errors
		running.Go(func() {
			if err := app.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
		e := eventing.New("a", "1", json.RawMessage(`{}`))
		e.Type = "e"
		if err := outbox.InTx(ctx, func(tx *memstore.Tx) error { return outbox.Append(ctx, tx, e) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		letters, err := eventing.NewDeadLetters(store).List(ctx, eventing.DeadLetterFilter{})
		if err != nil || len(letters) != 1 || letters[0].Consumer != "idle" || letters[0].Reason != routing.ReasonNotRouted {
			t.Errorf("the dead letters are %+v, %v", letters, err)
		}
		stop()
		running.Wait()
		_ = broker.Close() // always nil
	})
}

func TestHandlersSeeTheVersionOfTheTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(), inproc.New(inproc.Config{})
		routes := table(t, "routing: 1\nconsumers: {c: {}}\nevents: {e: {}}\nmatrix: {e: [c]}\nactions: {e: {c: [{do: note}]}}\n")
		logger := slog.New(slog.DiscardHandler)
		app, err := routing.New(router.Config{Store: store, Subscriber: broker, Logger: logger}, routes, routing.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := routing.HandleTx(app, "c", "note", func(ctx context.Context, tx *memstore.Tx, _ eventing.Event[json.RawMessage], _ routing.Action) error {
			attempt, _ := eventing.AttemptFromContext(ctx)
			tx.Append("versions", attempt.RoutingVersion)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		d, err := eventing.NewDispatcher(store, broker, app, eventing.DispatcherConfig{Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = d.Run(ctx) })   // logs its errors
		running.Go(func() { _ = app.Run(ctx) }) // would have no effect
		outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
		e := eventing.New("a", "1", json.RawMessage(`{}`))
		e.Type = "e"
		if err := outbox.InTx(ctx, func(tx *memstore.Tx) error { return outbox.Append(ctx, tx, e) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		running.Wait()
		_ = broker.Close() // always nil
		if got := store.List("versions"); !slices.Equal(got, []string{routes.Version()}) {
			t.Errorf("the handler saw versions %q; want %s", got, routes.Version())
		}
	})
}
