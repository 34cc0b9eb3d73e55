package inproc_test

import (
	"context"
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
	for name, window := range map[string]int{"window 1": 1, "window 64": 64} {
		t.Run(name, func(t *testing.T) {
			b := inproc.New(inproc.Config{Window: window, RedeliveryDelay: time.Millisecond, RedeliveryMax: time.Millisecond})
			t.Cleanup(func() { _ = b.Close() })
			features := tests.Features{
				ConsumerGroups:        false, // subscriptions have no names, each gets every message
				ExactlyOnceDelivery:   false, // what is not acked is delivered again
				GuaranteedOrder:       window == 1,
				Persistent:            true,  // the messages outlive a connection, though not the broker
				RestartServiceCommand: nil,   // there is no service
				RequireSingleInstance: false, // connections share the broker
				// An acked message is gone, it is not kept for later subscriptions.
				NewSubscriberReceivesOldMessages: false,
				// Contexts derive from the subscription: the publisher's may end long before.
				ContextPreserved: false,
			}
			tests.TestPubSub(t, features, func(*testing.T) (message.Publisher, message.Subscriber) {
				return publishing{b}, &connection{broker: b}
			}, nil)
		})
	}
}

type publishing struct{ *inproc.Broker }

func (publishing) Close() error { return nil }

type connection struct {
	broker *inproc.Broker

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
	return c.broker.Subscribe(ctx, topic)
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
