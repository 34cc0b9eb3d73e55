package inproc

import "slices"

// leave ends a subscription, once, and leaves what it has not acked to the consumer. The
// package comment has the rules. The topic is locked; whoever calls it pumps.
func (t *topic) leave(s *subscription) {
	if s.left {
		return
	}
	s.left = true
	s.shut()
	if t.closed { // conclude sees to the rest
		for _, d := range s.inFlight {
			close(d.gone)
		}
		return
	}
	c := s.consumer
	c.subs = slices.DeleteFunc(c.subs, func(other *subscription) bool { return other == s })
	c.takeBack(s.inFlight)
	s.inFlight = nil
	if c.name == "" && len(t.consumers) > 1 {
		t.dissolve(c)
	}
}

// shut takes back what has not been read, and closes the channel.
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

// dissolve removes a nameless consumer that has lost its subscription, while there are
// others.
func (t *topic) dissolve(c *consumer) {
	t.consumers = slices.DeleteFunc(t.consumers, func(other *consumer) bool { return other == c })
	for _, d := range c.late {
		close(d.gone)
	}
	c.late = nil
	var orphans []*entry
	for _, e := range c.queue.rest() {
		if e.waiting == 1 && !e.acked {
			orphans = append(orphans, e)
			continue
		}
		e.abandoned = true
		t.release(e)
	}
	c.queue = queue{}
	t.consumers[0].queue.putBack(orphans)
}
