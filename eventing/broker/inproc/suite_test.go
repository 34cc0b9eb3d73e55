package inproc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

// The suite opens and closes a pub/sub as it would a connection to a broker, and
// expects the messages to stay. So it gets connections: subscribers that end their own
// subscriptions only. That makes it a test of handing messages over, too.
func TestWatermillSuite(t *testing.T) {
	t.Parallel()
	for _, consumer := range []string{"", "suite"} {
		for _, window := range []int{1, 64} {
			t.Run(fmt.Sprintf("consumer %q, window %d", consumer, window), func(t *testing.T) {
				b := inproc.New(inproc.Config{Window: window, RedeliveryDelay: time.Millisecond, RedeliveryMax: time.Millisecond})
				t.Cleanup(func() { _ = b.Close() })
				features := tests.Features{
					ConsumerGroups:      true,
					ExactlyOnceDelivery: false, // what is not acked is delivered again
					GuaranteedOrder:     window == 1,
					// Subscriptions of a named consumer share its messages.
					GuaranteedOrderWithSingleSubscriber: consumer != "",
					Persistent:                          true,  // the messages outlive a connection, though not the broker
					RestartServiceCommand:               nil,   // there is no service
					RequireSingleInstance:               false, // connections share the broker
					// An acked message is gone, it is not kept for consumers that are new.
					NewSubscriberReceivesOldMessages: false,
					// Contexts derive from the subscription: the publisher's may end long before.
					ContextPreserved: false,
				}
				connect := func(_ *testing.T, consumer string) (message.Publisher, message.Subscriber) {
					return publishing{b}, &connection{broker: b, consumer: consumer, window: window}
				}
				tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) { return connect(t, consumer) }, connect)
			})
		}
	}
}

type publishing struct{ *inproc.Broker }

func (publishing) Close() error { return nil }

type connection struct {
	broker   *inproc.Broker
	consumer string
	window   int

	mu   sync.Mutex
	subs map[string][]context.CancelFunc
}

func (c *connection) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	if c.subs == nil {
		c.subs = map[string][]context.CancelFunc{}
	}
	c.subs[topic] = append(c.subs[topic], cancel)
	if c.consumer == "" {
		return c.broker.Subscribe(ctx, topic)
	}
	return c.broker.SubscribeConsumer(ctx, topic, c.consumer, c.window)
}

func (c *connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, cancels := range c.subs {
		for _, cancel := range cancels {
			cancel()
		}
		if err := c.broker.Publish(topic); err != nil { // nothing; on return the channels are closed
			return err
		}
	}
	return nil
}
