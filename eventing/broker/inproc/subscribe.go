package inproc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// maxWindow bounds the buffer that a subscription allocates.
const maxWindow = 1 << 16

// Subscribe returns a channel of the topic's messages, as SubscribeConsumer does, with
// the window of the [Config], for a consumer of its own, which has no name and
// ends with the subscription.
func (b *Broker) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return b.subscribe(ctx, topic, "", b.cfg.Window, false)
}

// SubscribeConsumer returns a channel of the topic's messages, which it shares with the
// consumer's other subscriptions: those that the consumer has not acked, the oldest first, and
// those published from now on. Each has to be acked or nacked; at most window of them,
// from 1 to 65,536, are out at a time. With a window of 1 and no other subscription of the
// consumer they come in strict order. The channel is closed when ctx is done or the
// broker closes. It returns [ErrClosed] after Close.
//
// From the first call on, the topic keeps for the consumer what it has not acked, until
// Close, whether it is subscribed or not.
func (b *Broker) SubscribeConsumer(ctx context.Context, topic, consumer string, window int) (<-chan *message.Message, error) {
	if consumer == "" {
		return nil, errNoName
	}
	return b.subscribe(ctx, topic, consumer, window, false)
}

// SubscribePartition subscribes for a consumer that has leased the topic: one message at
// a time, in the order of publishing, those first that a former holder of the lease had in hand.
// It ends the consumer's other subscriptions to the topic, whose channels are closed;
// an ack of theirs counts until its message has been delivered here, and then
// no more. So a message that somebody still handles may be handled again: the
// lease has to be checked where the effects are committed.
func (b *Broker) SubscribePartition(ctx context.Context, topic, consumer string) (<-chan *message.Message, error) {
	if consumer == "" {
		return nil, errNoName
	}
	return b.subscribe(ctx, topic, consumer, 1, true)
}

var errNoName = errors.New("inproc: the consumer has no name: give it one, or call Subscribe")

func (b *Broker) subscribe(ctx context.Context, topic, consumer string, window int, alone bool) (<-chan *message.Message, error) {
	if window < 1 || window > maxWindow {
		return nil, fmt.Errorf("inproc: subscribe to %s: window is %d: choose one from 1 to %d", topic, window, maxWindow)
	}
	t := b.topic(topic)
	if t == nil {
		return nil, ErrClosed
	}
	s := &subscription{name: consumer, window: window, out: make(chan *message.Message, window)}
	s.ctx, s.cancel = context.WithCancel(ctx) // before the lock: it calls the user's context
	others, err := t.subscribe(s, alone)
	if err != nil {
		s.cancel()
		return nil, err
	}
	for _, other := range others {
		other.cancel()
	}
	return s.out, nil
}

// subscribe returns the subscriptions that have ended for it, to be cancelled.
func (t *topic) subscribe(s *subscription, alone bool) (others []*subscription, err error) {
	t.mu.Lock()
	defer t.unlock()
	if t.closed {
		return nil, ErrClosed
	}
	t.reap()
	s.consumer = t.consumer(s.name)
	if alone {
		others = slices.Clone(s.consumer.subs)
		for _, other := range others {
			t.leave(other)
		}
	}
	s.consumer.subs = append(s.consumer.subs, s)
	t.broker.goroutines.Add(1)
	context.AfterFunc(s.ctx, s.end)
	t.pump()
	return others, nil
}

// subscription is one of a consumer's views of the topic. The topic's lock guards what
// follows cancel.
type subscription struct {
	name     string // of the consumer; what a nameless one leaves may get a name later
	consumer *consumer
	window   int
	out      chan *message.Message // has room for the window: a send never blocks
	ctx      context.Context
	cancel   context.CancelFunc

	left     bool
	inFlight []*delivery // delivered and not acked, or waiting to be delivered again
}

// deliver fills one more place of the window. Its watcher goes on with the next message by
// itself, and exits when there is none.
func (s *subscription) deliver(e *entry) {
	d := &delivery{sub: s, place: len(s.inFlight), gone: make(chan struct{})}
	s.inFlight = append(s.inFlight, d)
	d.deliver(e)
	s.consumer.topic.broker.goroutines.Add(1)
	go d.watch()
}

// end runs once the context is done.
func (s *subscription) end() {
	t := s.consumer.topic
	defer t.broker.goroutines.Done()
	t.mu.Lock()
	t.leave(s)
	if !t.closed {
		t.pump()
	}
	t.unlock()
	t.broker.cfg.Logger.Info("Subscription ended", watermill.LogFields{"topic": t.name, "consumer": s.name})
}
