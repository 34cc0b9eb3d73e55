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
	place  int // in sub.inFlight
	entry  *entry
	msg    *message.Message
	cancel context.CancelFunc
	gone   chan struct{} // closed when an ack counts no more
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
	broker := d.sub.consumer.topic.broker
	defer broker.goroutines.Done()
	delay := broker.cfg.RedeliveryDelay
	for {
		select {
		case <-d.msg.Acked():
			if !d.acked() {
				return
			}
			delay = broker.cfg.RedeliveryDelay
		case <-d.msg.Nacked():
			if !d.nacked(delay) {
				return
			}
			delay = min(2*delay, broker.cfg.RedeliveryMax)
		case <-d.gone: // its context was cancelled before
			return
		}
	}
}

// acked counts the ack and gives the place to the next message. It returns false
// if there is none.
func (d *delivery) acked() bool {
	s := d.sub
	t := s.consumer.topic
	d.cancel()
	t.mu.Lock()
	defer t.unlock()
	switch {
	case t.closed: // conclude counts it
		return false
	case s.left:
		s.consumer.ackedLate(d)
		return false
	}
	t.ack(d.entry)
	if e := s.consumer.take(); e != nil {
		d.deliver(e)
		return true
	}
	d.vacate()
	return false
}

// nacked waits and delivers the message again. It returns false if the
// subscription ends before; the message is then back with the consumer.
func (d *delivery) nacked(delay time.Duration) bool {
	s := d.sub
	t := s.consumer.topic
	d.cancel()
	t.broker.cfg.Logger.Debug("Message nacked", watermill.LogFields{
		"topic": t.name, "consumer": s.name, "message_uuid": d.msg.UUID, "redelivery_in": delay,
	})
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		return false
	}
	t.mu.Lock()
	defer t.unlock()
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
}

func isAcked(m *message.Message) bool {
	select {
	case <-m.Acked():
		return true
	default:
		return false
	}
}
