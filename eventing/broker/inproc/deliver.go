package inproc

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// delivery is one place in the window of a subscription, and what occupies it.
// Its watcher alone changes msg and cancel, and it does so under the topic's lock.
type delivery struct {
	sub    *subscription
	place  int    // in sub.inFlight
	entry  *entry // nil when its message has been given to somebody else
	msg    *message.Message
	cancel context.CancelFunc
}

// deliver sends a copy of the entry's message. The topic is locked.
func (d *delivery) deliver(e *entry) {
	d.entry, d.msg = e, e.msg.Copy()
	var ctx context.Context
	ctx, d.cancel = context.WithCancel(d.sub.ctx)
	d.msg.SetContext(ctx)
	d.sub.out <- d.msg
}

// watch waits for acks and nacks of the messages that occupy the place, until
// there is no next one.
func (d *delivery) watch() {
	defer d.sub.topic.broker.goroutines.Done()
	cfg := d.sub.topic.broker.cfg
	delay := cfg.RedeliveryDelay
	for {
		select {
		case <-d.msg.Acked():
			if !d.acked() {
				return
			}
			delay = cfg.RedeliveryDelay
		case <-d.msg.Nacked():
			if !d.nacked(delay) {
				return
			}
			delay = min(2*delay, cfg.RedeliveryMax)
		case <-d.sub.gone: // its context was cancelled before
			return
		}
	}
}

// acked counts the ack and gives the place to the next message. It returns false
// if there is none.
func (d *delivery) acked() bool {
	s, t := d.sub, d.sub.topic
	d.cancel()
	t.mu.Lock()
	e := d.entry
	if e == nil { // too late
		t.mu.Unlock()
		return false
	}
	finished := e.ack()
	if s.left && !t.closed {
		t.forget(e)
	}
	next := !s.left && !t.closed && s.queue.len() > 0
	if next {
		d.deliver(s.queue.pop())
	} else {
		d.vacate()
	}
	t.mu.Unlock()
	if finished {
		e.report(e.outcome())
	}
	return next
}

// nacked waits and delivers the message again. It returns false if the
// subscription ends before; the message is then where leave put it.
func (d *delivery) nacked(delay time.Duration) bool {
	s, t := d.sub, d.sub.topic
	d.cancel()
	t.broker.cfg.Logger.Debug("Message nacked", watermill.LogFields{
		"topic": t.name, "message_uuid": d.msg.UUID, "redelivery_in": delay,
	})
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.left || t.closed {
		return false
	}
	d.deliver(d.entry)
	return true
}

// vacate takes the place out of the window. The topic is locked.
func (d *delivery) vacate() {
	s, last := d.sub, len(d.sub.inFlight)-1
	s.inFlight[d.place] = s.inFlight[last]
	s.inFlight[d.place].place = d.place
	s.inFlight[last] = nil
	s.inFlight = s.inFlight[:last]
	d.entry = nil
}

func isAcked(m *message.Message) bool {
	select {
	case <-m.Acked():
		return true
	default:
		return false
	}
}
