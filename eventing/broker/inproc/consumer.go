package inproc

// consumer is what one consumer of a topic has yet to ack, and the subscriptions that
// share it. The topic's lock guards it.
type consumer struct {
	topic *topic
	name  string // empty: it ends with its only subscription
	subs  []*subscription
	queue queue // not delivered, or back from a subscription that left
	// late are the deliveries of subscriptions that left, while nobody else has their
	// message, which is in the queue: an ack of theirs counts.
	late map[*entry]*delivery
}

// pump delivers as much as the windows allow.
func (c *consumer) pump() {
	for c.queue.len() > 0 {
		s := c.idlest()
		if s == nil {
			return
		}
		if e := c.take(); e != nil {
			s.deliver(e)
		}
	}
}

// idlest returns the subscription with the fewest messages out, or nil if no window
// has room.
func (c *consumer) idlest() (idlest *subscription) {
	for _, s := range c.subs {
		if len(s.inFlight) < s.window && (idlest == nil || len(s.inFlight) < len(idlest.inFlight)) {
			idlest = s
		}
	}
	return idlest
}

// take returns the oldest message that is to be delivered, or nil.
func (c *consumer) take() *entry {
	for c.queue.len() > 0 {
		e := c.queue.pop()
		d := c.late[e]
		if d == nil {
			return e
		}
		delete(c.late, e)
		close(d.gone)
		if !c.topic.countIfAcked(d) {
			return e
		}
	}
	return nil
}

// takeBack queues what a subscription has not acked, and counts what it has.
func (c *consumer) takeBack(inFlight []*delivery) {
	back := make([]*entry, 0, len(inFlight))
	for _, d := range inFlight {
		if c.topic.countIfAcked(d) {
			continue
		}
		if c.late == nil {
			c.late = map[*entry]*delivery{}
		}
		c.late[d.entry] = d
		back = append(back, d.entry)
	}
	c.queue.putBack(back)
}

// ackedLate counts the ack of a subscription that has left, unless somebody else has
// been given the message.
func (c *consumer) ackedLate(d *delivery) {
	if c.late[d.entry] == d {
		delete(c.late, d.entry)
		c.queue.remove(d.entry)
		c.topic.ack(d.entry)
	}
}
