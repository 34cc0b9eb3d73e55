package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
)

// Consume gives a handler of a plain Watermill router its inbox, durable retries
// and dead letters. What is added after it runs at every attempt.
func ExampleConsume() {
	store, broker := memstore.New(), inproc.New(inproc.Config{})
	consumption, err := middleware.Consume(eventing.ConsumerConfig{
		Name: "billing", Transactional: true, Policy: eventing.Policy{Retry: eventing.RetryPolicy{Base: time.Millisecond}},
		Logger: slog.New(slog.DiscardHandler),
	}, store)
	if err != nil {
		fmt.Println(err)
		return
	}
	attempt, handled := 0, make(chan struct{})
	handle := func(m *message.Message) error {
		e, _ := eventing.EnvelopeFromContext(m.Context())
		tx, _ := eventing.TxFromContext[*memstore.Tx](m.Context())
		tx.Append("invoices", e.ID)
		if attempt++; attempt == 1 {
			return fmt.Errorf("attempt %d fails: its effect is rolled back", attempt)
		}
		close(handled)
		return nil
	}

	wm, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	wm.AddConsumerHandler("billing", "orders", broker, handle).
		AddMiddleware(consumption.Middleware, middleware.Timeout(10*time.Second))

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { _ = wm.Run(ctx) })
	running.Go(func() { _ = consumption.Run(ctx) }) // redelivers what has to be tried again

	m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
		Header:  eventing.Header{ID: "event-1", Type: "OrderPlaced", OccurredAt: time.Now(), SchemaVersion: 1},
		Payload: []byte(`{"number":"7"}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := broker.Publish("orders", m); err != nil {
		fmt.Println(err)
	}
	<-handled
	stop()
	running.Wait()
	fmt.Println(attempt, "attempts, invoices:", store.List("invoices"))
	// Output: 2 attempts, invoices: [event-1]
}

// The parts on a plain Watermill router with Watermill's own pub/sub, in the order in which they
// lose nothing. ConsumeStoreless is the same in one, without the inbox.
func Example_plainRouter() {
	quiet, broker := slog.New(slog.DiscardHandler), gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	letter, err1 := middleware.DeadLetter(middleware.DeadLetterConfig{Publisher: broker, Topic: "orders-poison", Logger: quiet})
	once, err2 := middleware.Idempotency(middleware.IdempotencyConfig{Store: memstore.New(), Consumer: "billing"})
	again, err3 := middleware.Retry(middleware.RetryConfig{Policy: eventing.RetryPolicy{MaxAttempts: 3, Base: time.Millisecond}, Logger: quiet})
	breaker, err4 := middleware.CircuitBreaker(eventing.BreakerPolicy{Failures: 10, OpenFor: time.Minute})
	schemas := middleware.NewSchemas(middleware.SchemasConfig{})
	err5 := schemas.Add("OrderPlaced", 1, []byte(`{"type": "object", "properties": {"number": {"type": "string"}}}`))
	wm, err6 := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		fmt.Println(err)
		return
	}

	attempts, handled := 0, make(chan struct{})
	handle := func(*message.Message) error {
		if attempts++; attempts < 3 {
			return errors.New("the bank is busy")
		}
		close(handled)
		return nil
	}
	wm.AddConsumerHandler("billing", "orders", broker, handle).AddMiddleware(
		middleware.Correlation, // its place does not matter
		letter,
		once,
		again,
		breaker,
		middleware.Timeout(10*time.Second),
		schemas.Middleware,
		middleware.Logging(quiet), // each attempt
		middleware.Recover,
	)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { _ = wm.Run(ctx) })
	for id, payload := range map[string]string{"event-1": `{"number":"7"}`, "event-2": `{"number":7}`} {
		m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
			Header: eventing.Header{ID: id, Type: "OrderPlaced", OccurredAt: time.Now(), SchemaVersion: 1}, Payload: []byte(payload),
		})
		if err == nil {
			err = broker.Publish("orders", m)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	poisoned, err := broker.Subscribe(ctx, "orders-poison")
	if err != nil {
		fmt.Println(err)
		return
	}
	m := <-poisoned
	m.Ack()
	<-handled
	fmt.Println("handled in attempt", attempts)
	fmt.Println("poisoned", m.Metadata.Get("event_id"), "because of", m.Metadata.Get(middleware.MetadataReasonCode))
	fmt.Println(m.Metadata.Get("reason_poisoned"))
	stop()
	running.Wait()
	_ = broker.Close()
	// Output:
	// handled in attempt 3
	// poisoned event-2 because of SCHEMA_VIOLATION
	// the payload does not satisfy the schema of OrderPlaced version 1: /number (type)
}

// A consumer without a store retries in the process, and then publishes to a poison topic.
func ExampleConsumeStoreless() {
	broker := inproc.New(inproc.Config{})
	composite, err := middleware.ConsumeStoreless(middleware.StorelessConfig{
		Name: "mail", Publisher: broker, PoisonTopic: "mail-poison", Logger: slog.New(slog.DiscardHandler),
		Policy: eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 3, Base: time.Millisecond}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	wm, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	wm.AddConsumerHandler("mail", "orders", broker, func(m *message.Message) error {
		e, _ := eventing.EnvelopeFromContext(m.Context())
		return fmt.Errorf("no mail server for %s", e.Type)
	}).AddMiddleware(composite)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	poisoned, err := broker.Subscribe(ctx, "mail-poison")
	if err != nil {
		fmt.Println(err)
		return
	}
	var running sync.WaitGroup
	running.Go(func() { _ = wm.Run(ctx) })
	m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
		Header: eventing.Header{ID: "event-1", Type: "OrderPlaced", OccurredAt: time.Now(), SchemaVersion: 1}, Payload: []byte(`{}`),
	})
	if err == nil {
		err = broker.Publish("orders", m)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	letter := <-poisoned
	letter.Ack()
	stop()
	running.Wait()
	_ = broker.Close()
	fmt.Println(letter.Metadata.Get(middleware.MetadataReasonCode)+":", letter.Metadata.Get("reason_poisoned"))
	// Output: RETRIES_EXHAUSTED: the last of 3 attempts failed: no mail server for OrderPlaced
}
