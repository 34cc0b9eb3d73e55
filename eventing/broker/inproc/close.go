package inproc

import "github.com/ThreeDotsLabs/watermill"

// Close ends all subscriptions and closes their channels, waits for the
// broker's goroutines, and reports every message that is not acked with [ErrClosed].
// It does not wait for handlers: an ack that comes before that report counts, one that comes after it
// is lost, and the message has to be published again. It always returns nil; further calls do
// nothing, but wait for the first. Do not call it from a done function.
//
// Watermill's router closes the subscribers it was given before its handlers are through: to let
// them finish, end the subscriptions by their context, and close the broker after the router.
func (b *Broker) Close() error {
	b.closing.Do(b.close)
	return nil
}

func (b *Broker) close() {
	b.mu.Lock()
	b.closed = true
	topics := b.topics
	b.mu.Unlock()

	for _, t := range topics {
		t.close()
	}
	b.goroutines.Wait()

	unacked := 0
	for _, t := range topics {
		unacked += t.conclude()
	}
	b.cfg.Logger.Info("Broker closed", watermill.LogFields{"unacked": unacked})
}

// close refuses what is new and stops what runs. Everything stays where it is, for conclude.
func (t *topic) close() {
	t.mu.Lock()
	t.closed = true
	var subs []*subscription
	for _, c := range t.consumers {
		subs = append(subs, c.subs...)
		for _, d := range c.late {
			close(d.gone)
		}
	}
	t.mu.Unlock()
	for _, s := range subs {
		s.cancel()
	}
}

// conclude reports what is left when nothing runs any more, and returns how many
// messages were not acked. It holds no lock meanwhile: done may call the broker.
func (t *topic) conclude() (unacked int) {
	t.mu.Lock()
	var left []*entry
	for _, c := range t.consumers {
		left = append(left, c.queue.rest()...)
		for _, d := range c.late {
			t.countIfAcked(d)
		}
		for _, s := range c.subs {
			for _, d := range s.inFlight {
				left = append(left, d.entry)
				t.countIfAcked(d)
			}
		}
	}
	t.unlock()
	for _, e := range left {
		if e.msg == nil { // reported: acked after all, or left by another consumer too
			continue
		}
		unacked++
		e.report(ErrClosed)
	}
	return unacked
}
