package router_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
)

// batching registers a consumer of batches that notes in one effect what a call handled.
func batching(p *process, policy eventing.Policy, fail func(number string) error) error {
	if err := p.router.AddConsumer(router.Consumer{
		Name: "billing", Policy: policy, Batch: eventing.BatchPolicy{Size: 4, Linger: time.Second},
	}); err != nil {
		return err
	}
	return router.HandleBatchTx(p.router, "billing", func(_ context.Context, tx *memstore.Tx, events []eventing.Event[orderPlaced]) error {
		var numbers []string
		for _, e := range events {
			if err := fail(e.Payload.Number); err != nil {
				return err
			}
			numbers = append(numbers, e.Payload.Number)
		}
		slices.Sort(numbers)
		effect(tx, strings.Join(numbers, "+"))
		return nil
	})
}

func fine(string) error { return nil }

func TestBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error { return batching(p, eventing.Policy{}, fine) })
		defer p.stop()
		p.append(order("1", "e1"), order("2", "e2"), order("3", "e3"), order("4", "e4"))
		synctest.Wait()
		p.did("a batch that is full does not wait", "1+2+3+4")
		p.append(order("5", "e5"), order("6", "e6"))
		synctest.Wait()
		p.did("one that is not does", "1+2+3+4")
		after(time.Second)
		synctest.Wait()
		p.did("for as long as it is told", "1+2+3+4", "5+6")
		if s := p.stats(); s.Outbox["sent"] != 6 || s.Inbox != 6 {
			t.Errorf("each event is settled and in the inbox: %+v", s)
		}
	})
}

func TestBatchOrdered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error { return batching(p, eventing.Policy{Ordered: true}, fine) })
		defer p.stop()
		for i := range 3 {
			p.append(order("1", fmt.Sprintf("a%d", i)), order("2", fmt.Sprintf("b%d", i)))
		}
		after(time.Minute)
		p.did("several keys share a call, one key does not", "1+2", "1+2", "1+2")
	})
}

func TestBatchBadEventFallsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error {
			return batching(p, eventing.Policy{}, func(number string) error {
				if number == "3" {
					return eventing.Permanent(errors.New("no such order"))
				}
				return nil
			})
		})
		defer p.stop()
		p.append(order("1", "e1"), order("2", "e2"), order("3", "e3"), order("4", "e4"))
		after(time.Minute)
		if d := p.letter(); d.EventID != "e3" || d.AttemptCount != 1 {
			t.Errorf("the bad event is a dead letter after one attempt: %+v", d)
		}
		if s := p.stats(); s.Inbox != 3 || s.Outbox["sent"] != 3 || s.Outbox["failed"] != 1 {
			t.Errorf("the others are processed: %+v", s)
		}
	})
}

// Types of one consumer share a transaction, and a payload that does not decode falls out.
func TestBatchOfSeveralTypes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error {
			if err := batching(p, eventing.Policy{}, fine); err != nil {
				return err
			}
			return router.HandleBatchTx(p.router, "billing", func(_ context.Context, tx *memstore.Tx, events []eventing.Envelope) error {
				for _, e := range events {
					effect(tx, e.Type)
				}
				return nil
			}, router.On("*"))
		})
		defer p.stop()
		p.append(order("1", "e1"), eventing.New("order", "1", orderCancelled{"late"}), order("2", "e2"))
		after(time.Minute)
		got := p.List("effects")
		slices.Sort(got)
		if len(got) != 2 || got[0] != "1+2" || p.stats().Inbox != 3 {
			t.Errorf("each handler gets its types, together: %v", got)
		}
		bad := eventing.Envelope{Header: eventing.Header{ID: "bad", Type: eventing.TypeOf[orderPlaced]()}, Payload: []byte(`7`)}
		p.append(bad, order("3", "e3"), order("4", "e4"))
		after(time.Minute)
		if d := p.letter(); d.EventID != "bad" || d.Reason != eventing.ReasonPayloadMalformed || p.stats().Inbox != 5 {
			t.Errorf("what does not decode is a dead letter: %+v", d)
		}
	})
}

// A middleware is for one event: what it refuses, or keeps for itself, is not for all.
func TestBatchMiddleware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		guard := func(h message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				e, _ := eventing.EnvelopeFromContext(m.Context())
				seen = append(seen, e.ID)
				switch e.ID {
				case "refused":
					return nil, eventing.Permanent(errors.New("not for us"))
				case "kept":
					return nil, nil
				}
				return h(m)
			}
		}
		p := launch(t, options{middleware: []message.HandlerMiddleware{guard}}, func(p *process) error {
			return batching(p, eventing.Policy{}, fine)
		})
		defer p.stop()
		p.append(order("1", "e1"), order("2", "refused"), order("3", "kept"), order("4", "e4"))
		after(time.Minute)
		if d := p.letter(); d.EventID != "refused" {
			t.Errorf("the middleware refuses one: %+v", d)
		}
		got := strings.Join(p.List("effects"), "+")
		if !strings.Contains(got, "1") || !strings.Contains(got, "4") || strings.ContainsAny(got, "23") || p.stats().Inbox != 3 {
			t.Errorf("the others are handled all the same: %s, %+v", got, p.stats())
		}
		if !slices.Contains(seen, "e1") || !slices.Contains(seen, "e4") {
			t.Errorf("the middleware sees each event: %v", seen)
		}
	})
}

func TestBatchRegistration(t *testing.T) {
	t.Parallel()
	all := func(context.Context, *memstore.Tx, []eventing.Event[orderPlaced]) error { return nil }
	one := func(context.Context, *memstore.Tx, eventing.Event[orderCancelled]) error { return nil }
	r, err := router.New(router.Config{Store: memstore.New(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := router.HandleBatchTx(r, "billing", all); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a handler of one event beside one of batches": router.HandleTx(r, "billing", one),
		"the same type twice":                          router.HandleBatchTx(r, "billing", all),
		"a transaction of another store":               router.HandleBatchTx(r, "mail", func(context.Context, string, []eventing.Event[orderPlaced]) error { return nil }),
	} {
		if err == nil {
			t.Errorf("%s is an error", what)
		}
	}
	if _, routed := r.Route(eventing.TypeOf[orderPlaced]()); !routed {
		t.Error("the type is routed")
	}
}
