package router_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
)

var jan1 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// registerBilling has one consumer note the numbers of orders.
func registerBilling(p *process) error {
	return router.HandleTx(p.router, "billing", func(_ context.Context, tx *memstore.Tx, e eventing.Event[orderPlaced]) error {
		effect(tx, e.Payload.Number)
		return nil
	})
}

func TestRoute(t *testing.T) {
	t.Parallel()
	r, err := router.New(router.Config{Store: memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	envelope := func(context.Context, eventing.Envelope) error { return nil }
	for _, err := range []error{
		r.AddConsumer(router.Consumer{Name: "ledger", Policy: eventing.Policy{Ordered: true}, Topic: "books", Codec: eventing.PayloadCodec{}}),
		router.Handle(r, "ledger", envelope, router.On("order.placed")),
		router.Handle(r, "audit", envelope, router.On("*")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ledger := eventing.Route{Consumer: "ledger", Topic: "books", Ordered: true, Codec: eventing.PayloadCodec{}}
	audit := eventing.Route{Consumer: "audit", Topic: "audit"}
	if got, routed := r.Route("order.placed"); !routed || !reflect.DeepEqual(got, []eventing.Route{ledger, audit}) {
		t.Errorf("an event goes to each consumer that has a handler for it, in the order of registration: %+v", got)
	}
	if got, routed := r.Route("order.sent"); !routed || !reflect.DeepEqual(got, []eventing.Route{audit}) {
		t.Errorf("a star is for every type: %+v", got)
	}
	if got, known := r.Consumer("ledger"); !known || !reflect.DeepEqual(got, ledger) {
		t.Errorf("a consumer is found by its name: %+v", got)
	}
	if _, known := r.Consumer("nobody"); known {
		t.Error("nobody is no consumer")
	}
}

func TestNoRoute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, registerBilling)
		defer p.stop()
		e := order("7", "e1")
		e.Type = "order.forgotten"
		p.append(e)
		synctest.Wait()
		if d := p.letter(); d.Reason != eventing.ReasonNoRoute || d.Stage != eventing.StageDispatch || d.Consumer != "" || d.EventID != "e1" {
			t.Errorf("an event that nobody has declared anything about is a dead letter of no consumer: %+v", d)
		}
		if n := p.stats().Outbox["failed"]; n != 1 {
			t.Errorf("and its row has failed: %v", p.stats().Outbox)
		}
	})
}

func TestIgnore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error {
			p.router.Ignore("order.viewed")
			return registerBilling(p)
		})
		defer p.stop()
		p.append(eventing.Envelope{Header: eventing.Header{Type: "order.viewed"}, Payload: json.RawMessage(`{}`)})
		synctest.Wait()
		p.did("what is ignored goes nowhere")
		if s := p.stats(); s.Outbox["sent"] != 1 || len(s.DeadLetters) != 0 || s.Inbox != 0 {
			t.Errorf("and is settled: %+v", s)
		}
	})
}

// Consumers that share a topic have an event each for itself: a failure of one is
// nothing to the other.
func TestConsumersShareATopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error {
			for _, name := range []string{"billing", "mail"} {
				if err := p.router.AddConsumer(router.Consumer{Name: name, Topic: "orders"}); err != nil {
					return err
				}
			}
			if err := registerBilling(p); err != nil {
				return err
			}
			return router.HandleTx(p.router, "mail", func(context.Context, *memstore.Tx, eventing.Event[orderPlaced]) error {
				return eventing.Permanent(errBusy)
			})
		})
		defer p.stop()
		p.append(order("7", "e1")) // perhaps before the second has subscribed
		synctest.Wait()
		p.did("the one that can handles it once", "7")
		if d := p.letter(); d.Consumer != "mail" || d.Reason != eventing.ReasonRejected {
			t.Errorf("for the other it is a dead letter: %+v", d)
		}
		if s := p.stats(); s.Outbox["failed"] != 1 {
			t.Errorf("and the row says so: %+v", s)
		}
	})
}
