package middleware_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

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
