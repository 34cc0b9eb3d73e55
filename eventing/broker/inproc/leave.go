package inproc

import (
	"cmp"
	"slices"
)

// reap lets the subscriptions leave whose context is done, so that a caller who cancels one
// and goes on finds it gone, whether or not its end has been noticed. The topic is locked.
func (t *topic) reap() (ended outcomes) {
	for i := len(t.subs) - 1; i >= 0; i-- {
		if s := t.subs[i]; s.ctx.Err() != nil {
			ended = append(ended, t.leave(s)...)
		}
	}
	return ended
}

// leave ends a subscription, once, and passes on what it has not acked. The
// package comment has the rules. The topic is locked.
func (t *topic) leave(s *subscription) (ended outcomes) {
	if s.left {
		return nil
	}
	s.left = true
	t.subs = slices.DeleteFunc(t.subs, func(other *subscription) bool { return other == s })
	s.shut()
	if t.closed { // conclude sees to the rest
		close(s.gone)
		return nil
	}
	ended = s.settle()
	left := s.unacked()
	s.queue = queue{}
	if len(t.subs) == 0 {
		t.retained, t.last = left, s
		return ended
	}
	s.release()
	return append(ended, t.passOn(left)...)
}

// shut takes back what the consumer has not read, and closes the channel.
func (s *subscription) shut() {
	for {
		select {
		case <-s.out:
		default:
			close(s.out)
			return
		}
	}
}

// settle counts the acks that have come and that the watchers have not seen yet.
func (s *subscription) settle() (ended outcomes) {
	for i := len(s.inFlight) - 1; i >= 0; i-- { // vacate fills the hole from the end
		d := s.inFlight[i]
		if !isAcked(d.msg) {
			continue
		}
		if d.entry.ack() {
			ended = append(ended, d.entry)
		}
		d.vacate()
	}
	return ended
}

// unacked lists what the subscription has not acked, in order of publishing.
func (s *subscription) unacked() []*entry {
	left := make([]*entry, 0, len(s.inFlight)+s.queue.len())
	for _, d := range s.inFlight {
		left = append(left, d.entry)
	}
	left = append(left, s.queue.rest()...)
	slices.SortFunc(left, bySeq)
	return left
}

// release makes acks of the subscription's deliveries count no more.
func (s *subscription) release() {
	for _, d := range s.inFlight {
		d.entry = nil
	}
	s.inFlight = nil
	close(s.gone)
}

// passOn deals with what a subscription has left while there are others.
func (t *topic) passOn(left []*entry) (ended outcomes) {
	var orphans []*entry
	for _, e := range left {
		switch {
		case e.waiting > 1 || e.acked:
			e.abandoned = true
			e.waiting--
			if e.waiting == 0 {
				ended = append(ended, e)
			}
		default:
			orphans = append(orphans, e)
		}
	}
	if len(orphans) > 0 {
		// Only the oldest subscription can have been alone with a message, or have
		// inherited one; so its heir has not, and all that it has is younger.
		heir := t.subs[0]
		heir.queue.prepend(orphans)
		heir.pump()
	}
	return ended
}

// takeOver ends the wait for late acks of the subscription that filled retained, which
// is about to be given to another. The topic is locked.
func (t *topic) takeOver() (ended outcomes) {
	if t.last == nil {
		return nil
	}
	ended = t.last.settle()
	for _, e := range ended {
		t.forget(e)
	}
	t.last.release()
	t.last = nil
	return ended
}

// forget takes an entry out of retained.
func (t *topic) forget(e *entry) {
	if i, found := slices.BinarySearchFunc(t.retained, e, bySeq); found {
		t.retained = slices.Delete(t.retained, i, i+1)
	}
}

func bySeq(a, b *entry) int { return cmp.Compare(a.seq, b.seq) }
