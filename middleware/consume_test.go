package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
)

// plain is a Watermill router of one's own, with one consumer behind Consume.
type plain struct {
	t      *testing.T
	store  *memstore.Store
	broker *inproc.Broker
	stop   func()
}

func runPlain(t *testing.T, cfg eventing.ConsumerConfig, h message.HandlerFunc, around ...message.HandlerMiddleware) *plain {
	t.Helper()
	p := &plain{t: t, store: memstore.New(), broker: inproc.New(inproc.Config{})}
	cfg.Name, cfg.Logger, cfg.Random = "billing", slog.New(slog.DiscardHandler), func() float64 { return 0 }
	consumption, err := middleware.Consume(cfg, p.store)
	if err != nil {
		t.Fatal(err)
	}
	r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	handler := r.AddHandler("billing", "orders", p.broker, "out", p.broker, h)
	handler.AddMiddleware(append([]message.HandlerMiddleware{consumption.Middleware}, around...)...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{r.Run, consumption.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("Run returns nil when it is stopped, got %v", err)
			}
		})
	}
	p.stop = func() { cancel(); running.Wait() }
	synctest.Wait()
	return p
}

// publish sends an event past any outbox.
func (p *plain) publish(id string) {
	p.t.Helper()
	m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
		Header:  eventing.Header{ID: id, Type: "OrderPlaced", OccurredAt: time.Now(), CorrelationID: "c", SchemaVersion: 1},
		Payload: []byte(`{"Number":"7"}`),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.broker.Publish("orders", m); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plain) letters() []eventing.DeadLetter {
	p.t.Helper()
	letters, err := eventing.NewDeadLetters(p.store).List(context.Background(), eventing.DeadLetterFilter{})
	if err != nil {
		p.t.Fatal(err)
	}
	return letters
}

func TestConsumeOnAPlainRouter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts, broken := 0, map[string]bool{"e2": true}
		p := runPlain(t, eventing.ConsumerConfig{Transactional: true}, func(m *message.Message) ([]*message.Message, error) {
			tx, ok := eventing.TxFromContext[*memstore.Tx](m.Context())
			e, known := eventing.EnvelopeFromContext(m.Context())
			if !ok || !known || e.ID != m.UUID || eventing.CorrelationID(m.Context()) != "c" || eventing.CausationID(m.Context()) != e.ID {
				t.Errorf("the handler runs in its transaction and in its event's context: %v, %+v", ok, e)
			}
			tx.Append("effects", m.UUID+" "+string(e.Payload))
			attempts++
			if broken[m.UUID] {
				delete(broken, m.UUID)
				return nil, errBusy
			}
			return nil, nil
		})
		defer p.stop()
		for _, id := range []string{"e1", "e2", "e1"} {
			p.publish(id)
		}
		synctest.Wait()
		<-time.After(time.Minute)
		if got, want := p.store.List("effects"), []string{`e1 {"Number":"7"}`, `e2 {"Number":"7"}`}; !slices.Equal(got, want) {
			t.Errorf("each event has its effect once: %q, want %q", got, want)
		}
		if attempts != 3 {
			t.Errorf("a duplicate does not run, a failure runs again: %d attempts", attempts)
		}
	})
}

// What a handler does to its message concludes nothing, and the next attempt has it as it
// came.
func TestHandlersMessageIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		p := runPlain(t, eventing.ConsumerConfig{}, func(m *message.Message) ([]*message.Message, error) {
			e, _ := eventing.EnvelopeFromContext(m.Context())
			decoded, err := eventing.DecodeEnvelope(m.Payload)
			if err != nil || !bytes.Equal(decoded.Payload, e.Payload) || m.UUID != e.ID || m.Metadata.Get("correlation_id") != "c" {
				t.Errorf("attempt %d: the message is %s %v: %v", attempts, m.Payload, m.Metadata, err)
			}
			clear(m.Payload)
			clear(m.Metadata)
			if attempts++; attempts == 1 {
				m.Ack()
				return nil, errBusy
			}
			return nil, nil
		})
		defer p.stop()
		p.publish("e1")
		<-time.After(time.Minute)
		if s, err := p.store.Stats(t.Context()); err != nil || s.Inbox != 1 || attempts != 2 {
			t.Errorf("after %d attempts, the inbox has %d rows: %v", attempts, s.Inbox, err)
		}
	})
}

func TestConsumeRefusesProducedMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := runPlain(t, eventing.ConsumerConfig{}, produce("p1"))
		defer p.stop()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		published, err := p.broker.Subscribe(ctx, "out")
		if err != nil {
			t.Fatal(err)
		}
		p.publish("e1")
		synctest.Wait()
		select {
		case m := <-published:
			t.Errorf("what a handler produces is not published: %s", m.UUID)
		default:
		}
		letters := p.letters()
		if len(letters) != 1 || letters[0].Reason != eventing.ReasonRejected || letters[0].AttemptCount != 1 {
			t.Errorf("its event is a dead letter that says so: %+v", letters)
		}
	})
}

// What is added after Consume runs at each attempt, redeliveries included.
func TestConsumeWithOtherMiddleware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		p := runPlain(t, eventing.ConsumerConfig{Policy: eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 3}}},
			func(m *message.Message) ([]*message.Message, error) {
				if attempts++; attempts == 1 {
					panic("boom")
				}
				<-m.Context().Done()
				return nil, m.Context().Err()
			}, middleware.Recover, middleware.Timeout(time.Second))
		defer p.stop()
		p.publish("e1")
		<-time.After(time.Hour)
		letters := p.letters()
		if len(letters) != 1 || letters[0].Reason != eventing.ReasonTimeoutExhausted {
			t.Fatalf("the last of its attempts ran out of time: %+v", letters)
		}
		var codes []eventing.ReasonCode
		for _, a := range letters[0].History {
			codes = append(codes, a.ErrorCode)
		}
		if want := []eventing.ReasonCode{eventing.ReasonPanic, eventing.ReasonTimeout, eventing.ReasonTimeout}; !slices.Equal(codes, want) {
			t.Errorf("each attempt is told: %v, want %v", codes, want)
		}
	})
}

// A failure of the hook is no attempt: it is rolled back with all else, and the
// message is not lost.
func TestConsumeWithAHookThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures := 2
		p := runPlain(t, eventing.ConsumerConfig{Transactional: true, OnConclude: func(context.Context, any, eventing.Conclusion) error {
			if failures--; failures >= 0 {
				return errBusy
			}
			return nil
		}}, func(m *message.Message) ([]*message.Message, error) {
			tx, _ := eventing.TxFromContext[*memstore.Tx](m.Context())
			tx.Append("effects", m.UUID)
			return nil, nil
		})
		defer p.stop()
		p.publish("e1")
		<-time.After(time.Minute)
		if got := p.store.List("effects"); !slices.Equal(got, []string{"e1"}) || len(p.letters()) != 0 {
			t.Errorf("in the end it is processed, with one effect: %v, %+v", got, p.letters())
		}
	})
}

func TestConsumeRefusesAConfigThatCannotHold(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]eventing.ConsumerConfig{
		"no name":   {},
		"no policy": {Name: "billing", Policy: eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: -1}}},
		"an inbox that forgets before the last retry": {Name: "billing", Policy: eventing.Policy{InboxRetention: time.Minute}},
	} {
		if _, err := middleware.Consume(cfg, memstore.New()); err == nil {
			t.Errorf("%s must be refused", name)
		}
	}
}

// Redelivery waits for the handler to be there, and ends without one.
func TestConsumptionRunsWithoutHandler(t *testing.T) {
	t.Parallel()
	c, err := middleware.Consume(eventing.ConsumerConfig{Name: "billing"}, memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The replay of bytes that did not decode is known by another ID than it has in them: at
// every attempt.
func TestHandlersMessageOfAReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		p := runPlain(t, eventing.ConsumerConfig{}, func(m *message.Message) ([]*message.Message, error) {
			e, err := eventing.EnvelopeCodec{}.Unmarshal(m)
			if err != nil {
				return nil, err
			}
			if seen = append(seen, e.ID+" of "+m.Metadata.Get("tenant_id")); len(seen) == 1 {
				return nil, errBusy
			}
			return nil, nil
		})
		defer p.stop()
		const id = "undecodable-00112233445566778899aabbccddeeff"
		m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
			Header:  eventing.Header{ID: "e1", Type: "OrderPlaced", OccurredAt: time.Now(), CorrelationID: "c", SchemaVersion: 1, TenantID: "acme"},
			Payload: []byte(`{}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Metadata.Set("event_id", id)
		m.Metadata.Set("tenant_id", "another")
		if err := p.broker.Publish("orders", m); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		if want := []string{id + " of acme", id + " of acme"}; !slices.Equal(seen, want) {
			t.Errorf("the handler saw %q, want %q", seen, want)
		}
	})
}
