package router_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
)

func TestHandlersAreTyped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error {
			if err := router.HandleTx(p.router, "billing", func(_ context.Context, tx *memstore.Tx, e eventing.Event[orderPlaced]) error {
				effect(tx, "placed "+e.Payload.Number+" about "+e.AggregateType)
				return nil
			}); err != nil {
				return err
			}
			return router.HandleTx(p.router, "billing", func(_ context.Context, tx *memstore.Tx, e eventing.Event[orderCancelled]) error {
				effect(tx, "cancelled: "+e.Payload.Reason)
				return nil
			})
		})
		defer p.stop()
		p.append(eventing.New("order", "7", orderPlaced{"7"}))
		synctest.Wait()
		p.append(eventing.New("order", "7", orderCancelled{"too late"}))
		synctest.Wait()
		p.did("each type of event goes to its handler, decoded", "placed 7 about order", "cancelled: too late")
	})
}

func TestOnNamesTypes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		does := func(what string) func(context.Context, *memstore.Tx, eventing.Envelope) error {
			return func(_ context.Context, tx *memstore.Tx, e eventing.Envelope) error {
				effect(tx, what+" "+e.Type)
				return nil
			}
		}
		p := launch(t, options{}, func(p *process) error {
			if err := router.HandleTx(p.router, "audit", does("named"), router.On("order.paid", "order.sent")); err != nil {
				return err
			}
			return router.HandleTx(p.router, "audit", does("any"), router.On("*"))
		})
		defer p.stop()
		for _, eventType := range []string{"order.paid", "order.lost", "order.sent"} {
			p.append(eventing.Envelope{Header: eventing.Header{Type: eventType}, Payload: json.RawMessage(`{}`)})
			synctest.Wait()
		}
		p.did("a name goes before the star", "named order.paid", "any order.lost", "named order.sent")
	})
}

// Handlers outside of a transaction are concluded all the same.
func TestHandleWithoutTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		p := launch(t, options{}, func(p *process) error {
			return router.Handle(p.router, "mail", func(ctx context.Context, e eventing.Event[orderPlaced]) error {
				if _, ok := eventing.TxFromContext[*memstore.Tx](ctx); ok {
					t.Error("a handler of Handle runs in no transaction")
				}
				got = append(got, e.Payload.Number+" "+eventing.CausationID(ctx))
				return nil
			})
		})
		defer p.stop()
		p.append(order("7", "e1"))
		synctest.Wait()
		if len(got) != 1 || got[0] != "7 e1" {
			t.Errorf("the handler got %v", got)
		}
		if n := p.stats().Inbox; n != 1 {
			t.Errorf("what it has handled is in the inbox; there are %d rows", n)
		}
	})
}

func TestRegistrationFails(t *testing.T) {
	t.Parallel()
	placed := func(context.Context, *memstore.Tx, eventing.Event[orderPlaced]) error { return nil }
	for name, c := range map[string]struct {
		register func(r *router.Router) error
		says     string
	}{
		"a transaction of another store": {func(r *router.Router) error {
			return router.HandleTx(r, "billing", func(context.Context, *sql.Tx, eventing.Event[orderPlaced]) error { return nil })
		}, "no transactions of type *sql.Tx"},
		"some handlers transactional and some not": {func(r *router.Router) error {
			if err := router.HandleTx(r, "billing", placed); err != nil {
				return err
			}
			return router.Handle(r, "billing", func(context.Context, eventing.Event[orderCancelled]) error { return nil })
		}, "all be transactional, or none"},
		"two handlers for one type": {func(r *router.Router) error {
			if err := router.HandleTx(r, "billing", placed); err != nil {
				return err
			}
			return router.HandleTx(r, "billing", placed)
		}, "a handler for orderPlaced already"},
		"two handlers for all types": {func(r *router.Router) error {
			if err := router.HandleTx(r, "billing", placed, router.On("*")); err != nil {
				return err
			}
			return router.HandleTx(r, "billing", placed, router.On("*"))
		}, "a handler for * already"},
		"a payload type without a name": {func(r *router.Router) error {
			return router.Handle(r, "billing", func(context.Context, eventing.Envelope) error { return nil })
		}, "router.On"},
		"a consumer without a name": {func(r *router.Router) error { return router.HandleTx(r, "", placed) }, "a name has 1 to 255 bytes"},
		"a consumer declared twice": {func(r *router.Router) error {
			if err := r.AddConsumer(router.Consumer{Name: "billing"}); err != nil {
				return err
			}
			return r.AddConsumer(router.Consumer{Name: "billing"})
		}, "declared twice"},
		"a policy that cannot hold": {func(r *router.Router) error {
			return r.AddConsumer(router.Consumer{Name: "billing", Policy: eventing.Policy{InboxRetention: 1}})
		}, "InboxRetention"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := router.New(router.Config{Store: memstore.New()})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.register(r); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error must say %q: %v", c.says, err)
			}
		})
	}
}

// What a handler's type cannot hold is the event's fault, not the moment's.
func TestPayloadThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, registerBilling)
		defer p.stop()
		p.append(eventing.Envelope{Header: eventing.Header{Type: "orderPlaced"}, Payload: json.RawMessage(`{"Number":7}`)})
		synctest.Wait()
		p.did("a payload that does not decode reaches no handler")
		if d := p.letter(); d.Reason != eventing.ReasonPayloadMalformed || d.Stage != eventing.StageDecode || d.AttemptCount != 1 {
			t.Errorf("it is a dead letter after one attempt: %+v", d)
		}
	})
}

// A message for a consumer may be of a type that only another version of the program
// has a handler for.
func TestNoHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, registerBilling)
		defer p.stop()
		e := order("7", "e1")
		m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
			Header:  eventing.Header{ID: e.ID, Type: "order.archived", OccurredAt: jan1, SchemaVersion: 1},
			Payload: json.RawMessage(`{}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.broker.Publish("billing", m); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := p.letter(); d.Reason != eventing.ReasonNoHandler || d.Consumer != "billing" || d.EventID != "e1" {
			t.Errorf("a type without a handler is a dead letter of the consumer: %+v", d)
		}
	})
}

func TestMessageThatIsNoEnvelope(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, registerBilling)
		defer p.stop()
		if err := p.broker.Publish("billing", message.NewMessage("m1", []byte("hello"))); err != nil {
			t.Fatal(err)
		}
		p.append(order("7", "e1"))
		synctest.Wait()
		p.did("it stops nobody", "7")
		if d := p.letter(); d.Reason != eventing.ReasonEnvelopeMalformed || d.Stage != eventing.StageDecode || !eventing.IsUndecodable(d.EventID) {
			t.Errorf("it is a dead letter of stage decode: %+v", d)
		}
	})
}
