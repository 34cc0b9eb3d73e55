package inproc

import (
	"slices"
	"sync"
)

// topic is where a published message meets the consumers.
type topic struct {
	name   string
	broker *Broker

	mu     sync.Mutex
	closed bool
	seq    uint64 // of the last message published
	// consumers, the oldest first; there always is one. If nobody has subscribed, or all
	// who have were nameless and have left, it is one without a name or
	// subscriptions, which keeps the messages for whoever comes.
	consumers []*consumer
	finished  *entry // those to be reported once the lock is released, linked by next
	last      *entry // of finished
}

func newTopic(b *Broker, name string) *topic {
	t := &topic{name: name, broker: b}
	t.consumers = []*consumer{{topic: t}}
	return t
}

// unlock releases the lock, and then reports what has been finished under it.
func (t *topic) unlock() {
	e := t.finished
	t.finished, t.last = nil, nil
	t.mu.Unlock()
	for e != nil {
		next := e.next
		e.next = nil // its batch stays in memory while another message of it is waited for
		e.report(e.outcome())
		e = next
	}
}

// ack counts one consumer's ack.
func (t *topic) ack(e *entry) {
	e.acked = true
	t.release(e)
}

// countIfAcked counts an ack that the delivery's watcher may not have seen.
func (t *topic) countIfAcked(d *delivery) bool {
	acked := isAcked(d.msg)
	if acked {
		t.ack(d.entry)
	}
	return acked
}

// release makes one consumer fewer that the entry waits for.
func (t *topic) release(e *entry) {
	e.waiting--
	switch {
	case e.waiting > 0:
		return
	case t.last == nil:
		t.finished = e
	default:
		t.last.next = e
	}
	t.last = e
}

// consumer returns the one with the name, made if need be. A nameless one is always new.
func (t *topic) consumer(name string) *consumer {
	if name != "" {
		if i := slices.IndexFunc(t.consumers, func(c *consumer) bool { return c.name == name }); i >= 0 {
			return t.consumers[i]
		}
	}
	if first := t.consumers[0]; first.name == "" && len(first.subs) == 0 {
		first.name = name
		return first
	}
	c := &consumer{topic: t, name: name}
	t.consumers = append(t.consumers, c)
	return c
}

// reap lets the subscriptions leave whose context is done, so that a caller who cancels one
// and goes on finds it gone, whether or not its end has been noticed.
func (t *topic) reap() {
	for _, c := range slices.Backward(t.consumers) {
		for _, s := range slices.Backward(c.subs) {
			if s.ctx.Err() != nil {
				t.leave(s)
			}
		}
	}
}

// pump delivers as much as the windows allow.
func (t *topic) pump() {
	for _, c := range t.consumers {
		c.pump()
	}
}
