package inproc

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Publish hands messages over without waiting for consumers. It returns [ErrClosed]
// after Close; on an error it has taken none. The messages belong to the
// broker afterwards: do not change them.
func (b *Broker) Publish(topic string, msgs ...*message.Message) error {
	return b.PublishWithCompletion(topic, nil, msgs...)
}

// PublishWithCompletion is Publish for publishers that have to know what became
// of their messages. If it returns nil, done is called exactly once for each of msgs, with
// the very pointer:
//   - with nil once every subscription that the topic had when the message was
//     published has acked it; without any, the first that comes;
//   - with [ErrAbandoned] once one of them has ended without acking it and the others are through;
//   - with [ErrClosed] if the broker closes before.
//
// done may be called from any goroutine, also before PublishWithCompletion returns, and
// for several messages at a time. The broker holds no lock meanwhile: done may publish. It must
// not block, since the subscription waits for it, nor call Close. After a crash
// it is not called: what it has not been called for has to be published again.
func (b *Broker) PublishWithCompletion(topic string, done func(msg *message.Message, err error), msgs ...*message.Message) error {
	for i, m := range msgs {
		if m == nil {
			return fmt.Errorf("inproc: message %d of %d is nil: publish without it", i+1, len(msgs))
		}
	}
	t := b.topic(topic)
	if t == nil {
		return ErrClosed
	}
	return t.publish(done, msgs)
}

func (t *topic) publish(done func(*message.Message, error), msgs []*message.Message) error {
	entries := make([]entry, len(msgs)) // one allocation; report lets go of the messages one by one
	var ended outcomes
	defer func() { ended.report() }() // runs after the unlock

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	ended = t.reap()
	for i, m := range msgs {
		t.seq++
		e := &entries[i]
		*e = entry{msg: m, done: done, seq: t.seq, waiting: max(1, len(t.subs))}
		if len(t.subs) == 0 {
			t.retained = append(t.retained, e)
		}
		for _, s := range t.subs {
			s.queue.push(e)
		}
	}
	for _, s := range t.subs {
		s.pump()
	}
	return nil
}

// entry is a published message on its way to the last ack. The lock of the topic
// guards it until waiting is 0; then it belongs to whoever reports it.
type entry struct {
	msg       *message.Message // nil once reported
	done      func(*message.Message, error)
	seq       uint64
	waiting   int  // subscriptions that have yet to ack it; 1 while it is retained
	acked     bool // by at least one
	abandoned bool // by a subscription that left, while another had it too
}

// ack counts one subscription's ack, and says whether it was the last one.
func (e *entry) ack() bool {
	e.acked = true
	e.waiting--
	return e.waiting == 0
}

// outcome is what to report once nobody is waited for.
func (e *entry) outcome() error {
	if e.abandoned {
		return ErrAbandoned
	}
	return nil
}

// report tells the publisher. No lock may be held.
func (e *entry) report(err error) {
	msg, done := e.msg, e.done
	e.msg, e.done = nil, nil
	if done != nil {
		done(msg, err)
	}
}

// outcomes are entries that nobody is waited for any more, to be reported after unlocking.
type outcomes []*entry

func (o outcomes) report() {
	for _, e := range o {
		e.report(e.outcome())
	}
}
