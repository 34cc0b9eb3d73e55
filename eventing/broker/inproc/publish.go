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
//   - with nil once every consumer that the topic had when the message was
//     published has acked it; without any, the first that comes;
//   - with [ErrAbandoned] once one of them, which had no name, has ended without acking it
//     and the others are through;
//   - with [ErrClosed] if the broker closes before.
//
// done may be called from any goroutine, also before PublishWithCompletion returns, and
// for several messages at a time. The broker holds no lock meanwhile: done may publish. It must
// not block, since a subscription waits for it, nor call Close. After a crash
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
	t.mu.Lock()
	defer t.unlock()
	if t.closed {
		return ErrClosed
	}
	t.reap()
	for i, m := range msgs {
		t.seq++
		e := &entries[i]
		*e = entry{msg: m, done: done, seq: t.seq, waiting: len(t.consumers)}
		for _, c := range t.consumers {
			c.queue.push(e)
		}
	}
	t.pump()
	return nil
}

// entry is a published message on its way to the last ack. The lock of the topic
// guards it until waiting is 0; then it belongs to whoever reports it.
type entry struct {
	msg       *message.Message // nil once reported
	done      func(*message.Message, error)
	seq       uint64
	waiting   int    // consumers that have yet to ack it
	acked     bool   // by at least one
	abandoned bool   // by a nameless consumer, while another had it too
	next      *entry // to be reported
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
