package middleware_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
)

func idempotency(t *testing.T, store eventing.ConsumerStore, consumer string) message.HandlerMiddleware {
	t.Helper()
	mw, err := middleware.Idempotency(middleware.IdempotencyConfig{Store: store, Consumer: consumer})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	var runs int
	var fails error
	deliver := func(consumer, eventID string) error {
		_, err := call(idempotency(t, store, consumer), message.Metadata{"event_id": eventID}, func(*message.Message) ([]*message.Message, error) {
			runs++
			return nil, fails
		})
		return err
	}
	for _, step := range []struct {
		name, consumer, eventID string
		fails                   error
		runs                    int
	}{
		{"a failure is not remembered", "billing", "e1", errBusy, 1},
		{"it runs again, and succeeds", "billing", "e1", nil, 2},
		{"a duplicate does not run", "billing", "e1", nil, 2},
		{"for another consumer it is new", "mail", "e1", nil, 3},
		{"another event is new", "billing", "e2", nil, 4},
		{"without an event ID, the message's is it", "billing", "", nil, 5},
		{"and is known again", "billing", "m1", nil, 5},
	} {
		fails = step.fails
		if err := deliver(step.consumer, step.eventID); !errors.Is(err, step.fails) || runs != step.runs {
			t.Errorf("%s: %d runs, want %d: %v", step.name, runs, step.runs, err)
		}
	}
	s, err := store.Stats(t.Context())
	if err != nil || s.Inbox != 4 || len(s.Deliveries) != 0 {
		t.Errorf("the store has inbox rows and nothing else: %+v, %v", s, err)
	}
}

// A twin that was faster has done the work; both are acked.
func TestIdempotencyOfConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	var inner error
	_, err := call(idempotency(t, store, "billing"), nil, func(*message.Message) ([]*message.Message, error) {
		_, inner = call(idempotency(t, store, "billing"), nil, produce())
		return nil, nil
	})
	if err != nil || inner != nil {
		t.Errorf("both succeed: %v, %v", err, inner)
	}
}

func TestIdempotencyRefusesProducedMessages(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	if produced, err := call(idempotency(t, store, "billing"), nil, produce("p1")); !eventing.IsPermanent(err) || produced != nil {
		t.Errorf("got %v, %v", produced, err)
	}
	if s, err := store.Stats(t.Context()); err != nil || s.Inbox != 0 {
		t.Errorf("nothing is remembered: %+v, %v", s, err)
	}
}

// An ID that no store can hold never will be held by one.
func TestIdempotencyRefusesIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{strings.Repeat("x", 256), "\xff"} {
		_, err := call(idempotency(t, memstore.New(), "billing"), message.Metadata{"event_id": id}, produce())
		if !eventing.IsPermanent(err) || reason(t, err) != eventing.ReasonEnvelopeMalformed {
			t.Errorf("%.10q: %v", id, err)
		}
	}
}

// When all is stopping while the store is down, the event is delivered again: the error says
// that it may run twice.
func TestIdempotencyStopsRemembering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		m := message.NewMessage("m1", nil)
		m.SetContext(ctx)
		w := &world{ConsumerStore: memstore.New(), began: time.Now(), scenario: scenario{recordDown: time.Hour}}
		if _, err := idempotency(t, w, "billing")(produce())(m); !errors.Is(err, errStoreDown) || !strings.Contains(err.Error(), "may run again") {
			t.Error(err)
		}
	})
}

// A shutdown that comes while the handler succeeds does not keep the success from being
// remembered.
func TestIdempotencyRemembersAtShutdown(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	store, m := memstore.New(), message.NewMessage("m1", nil)
	m.SetContext(ctx)
	if _, err := idempotency(t, store, "billing")(func(*message.Message) ([]*message.Message, error) { stop(); return nil, nil })(m); err != nil {
		t.Error(err)
	}
	if s, err := store.Stats(t.Context()); err != nil || s.Inbox != 1 {
		t.Errorf("the inbox has %+v: %v", s, err)
	}
}

func TestIdempotencyRefusesAConfigThatCannotHold(t *testing.T) {
	t.Parallel()
	for _, cfg := range []middleware.IdempotencyConfig{
		{Consumer: "billing"}, {Store: memstore.New()}, {Store: memstore.New(), Consumer: "a,b"}, {Store: memstore.New(), Consumer: "billing", Retention: -1},
	} {
		if _, err := middleware.Idempotency(cfg); err == nil {
			t.Errorf("%+v must be refused", cfg)
		}
	}
}
