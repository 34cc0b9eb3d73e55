package middleware

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// Consumption is the [Consume] middleware of one consumer.
type Consumption struct {
	*eventing.Consumer

	codec eventing.Codec
	ready chan struct{}
	once  sync.Once
	h     message.HandlerFunc
}

// Consume returns the composite middleware of one consumer, over its store. Add
// its Middleware to the consumer's handlers and let its Run run beside the
// router: it redelivers, from the store, what has to be tried again.
//
// The handler gets its event as a message whose context is the handler's (see
// [eventing.HandlerFunc]); it must not produce messages, but append events in
// its transaction: see [eventing.TxFromContext].
func Consume(cfg eventing.ConsumerConfig, store eventing.ConsumerStore) (*Consumption, error) {
	c := &Consumption{ready: make(chan struct{})}
	engine, err := eventing.NewConsumer(store, c.handle, cfg)
	if err != nil {
		return nil, err
	}
	c.Consumer, c.codec = engine, engine.Codec()
	return c, nil
}

// Middleware implements Watermill's HandlerMiddleware. All handlers that it is
// added to must do the same: redeliveries go to the first.
func (c *Consumption) Middleware(h message.HandlerFunc) message.HandlerFunc {
	c.once.Do(func() {
		c.h = h
		close(c.ready)
	})
	return func(m *message.Message) ([]*message.Message, error) {
		return nil, c.Receive(context.WithValue(m.Context(), receivedKey{}, m), m)
	}
}

// Run redelivers until ctx ends; see [eventing.Consumer.Run].
func (c *Consumption) Run(ctx context.Context) error {
	select {
	case <-c.ready:
		return c.Consumer.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// receivedKey is that of the message of the broker in the handler's context.
type receivedKey struct{}

// message is the one for the handler, never the broker's own: whatever is done with it
// concludes nothing. What is redelivered from the store is made into one again.
func (c *Consumption) message(ctx context.Context, e eventing.Envelope) (*message.Message, error) {
	received, ok := ctx.Value(receivedKey{}).(*message.Message)
	if !ok || received.Metadata.Get("event_id") != e.ID || eventing.IsUndecodable(e.ID) {
		return c.codec.Marshal(e)
	}
	m := message.NewMessage(received.UUID, slices.Clone(received.Payload))
	m.Metadata = maps.Clone(received.Metadata)
	return m, nil
}

var errProduced = errors.New("the handler returned messages to publish, which a crash could lose: append events to an outbox in its transaction")

func (c *Consumption) handle(ctx context.Context, e eventing.Envelope) error {
	m, err := c.message(ctx, e)
	if err != nil {
		return eventing.PermanentWithReason(eventing.ReasonEnvelopeMalformed, err)
	}
	m.SetContext(ctx)
	produced, err := c.h(m)
	if err == nil && len(produced) > 0 {
		return eventing.Permanent(errProduced)
	}
	return err
}
