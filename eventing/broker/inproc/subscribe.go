package inproc

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// maxWindow bounds the buffer that a subscription allocates.
const maxWindow = 1 << 16

// Subscribe is SubscribeWindow with the window of the [Config].
func (b *Broker) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return b.SubscribeWindow(ctx, topic, b.cfg.Window)
}

// SubscribeWindow returns a channel of the topic's messages: those the topic has retained, and
// those published from now on. Each has to be acked or nacked; at most
// window of them, from 1 (strict order) to 65,536, are out at a time. The channel is closed when
// ctx is done or the broker closes. It returns [ErrClosed] after Close.
func (b *Broker) SubscribeWindow(ctx context.Context, topic string, window int) (<-chan *message.Message, error) {
	if window < 1 || window > maxWindow {
		return nil, fmt.Errorf("inproc: subscribe to %s: window is %d: choose one from 1 to %d", topic, window, maxWindow)
	}
	t := b.topic(topic)
	if t == nil {
		return nil, ErrClosed
	}
	s := &subscription{
		topic:  t,
		window: window,
		out:    make(chan *message.Message, window),
		gone:   make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(ctx) // before the lock: it calls the user's context
	if err := t.subscribe(s); err != nil {
		s.cancel()
		return nil, err
	}
	return s.out, nil
}

func (t *topic) subscribe(s *subscription) error {
	var ended outcomes
	defer func() { ended.report() }() // runs after the unlock

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	ended = append(t.reap(), t.takeOver()...)
	s.queue.items, t.retained = t.retained, nil
	t.subs = append(t.subs, s)
	t.broker.goroutines.Add(1)
	context.AfterFunc(s.ctx, s.end)
	s.pump()
	return nil
}

// subscription is one consumer's view of a topic. The topic's lock guards what
// follows ctx.
type subscription struct {
	topic  *topic
	window int
	out    chan *message.Message // has room for the window: a send never blocks
	gone   chan struct{}         // closed when acks of its deliveries count no more
	ctx    context.Context
	cancel context.CancelFunc

	left     bool
	queue    queue       // not yet delivered
	inFlight []*delivery // delivered and not acked, or waiting to be delivered again
}

// pump delivers as much as the window allows. A watcher per place of the window
// goes on with the next message by itself, and exits when there is none.
func (s *subscription) pump() {
	for len(s.inFlight) < s.window && s.queue.len() > 0 {
		d := &delivery{sub: s, place: len(s.inFlight)}
		s.inFlight = append(s.inFlight, d)
		d.deliver(s.queue.pop())
		s.topic.broker.goroutines.Add(1)
		go d.watch()
	}
}

// end runs once the context is done.
func (s *subscription) end() {
	t := s.topic
	defer t.broker.goroutines.Done()
	t.mu.Lock()
	ended := t.leave(s)
	t.mu.Unlock()
	ended.report()
	t.broker.cfg.Logger.Info("Subscription ended", watermill.LogFields{"topic": t.name})
}
