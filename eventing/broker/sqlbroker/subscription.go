package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
)

// subscription delivers messages of a topic to one consumer group. What it knows of them is
// its queue; what the server knows is the group's position, which follows the first
// messages of the queue that are acked, and never passes one that is not.
type subscription struct {
	s             *Subscriber
	topic, group  string
	window, limit int
	leased        bool // nobody else is to have the topic: no lock is needed
	logger        *slog.Logger
	ctx           context.Context
	cancel        context.CancelFunc
	out           chan *message.Message
	woken         chan struct{}
	concluded     chan conclusion
	gone          chan struct{} // closed when nobody waits for conclusions any more

	// Under s.mu:
	key     int64 // of the advisory lock
	wants   bool  // to be live: the tables are there
	live    bool  // may read and deliver: the lock is the session's
	drained bool  // has nothing more to read after readTo, as far as is known
	readTo  position

	// Of run's goroutine:
	prepared   bool
	synced     bool // the queue begins after the position that the server has
	queue      []*entry
	next       int      // first entry of the queue that was never delivered
	inHand     int      // messages that are out, also of former queues, or nacked
	most       int      // that are read at a time
	nacked     int      // of the queue, those that wait to be delivered again
	kept, done position // that the server has; up to which all is acked
	flushAt    time.Time
	retryAt    time.Time // after an error
	pause      backoff.BackOff
}

// entry is a message of the queue.
type entry struct {
	row
	acked  bool
	nacks  int
	due    time.Time // when to deliver it again; zero: not nacked
	malady error     // why it is no message
}

// conclusion is an ack or a nack.
type conclusion struct {
	*entry
	acked bool
}

// flushAfter is how long an ack may wait for others, so that the server is told of many at
// a time.
const flushAfter = 50 * time.Millisecond

func newSubscription(ctx context.Context, s *Subscriber, topic, group string, window int, leased bool) *subscription {
	t := &subscription{
		s: s, topic: topic, group: group, window: window, limit: max(window, s.cfg.Batch), leased: leased, most: firstRead,
		logger: s.cfg.Logger.With("topic", topic, "group", group),
		out:    make(chan *message.Message), woken: make(chan struct{}, 1),
		concluded: make(chan conclusion), gone: make(chan struct{}),
		pause: backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
			backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0)),
	}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

func (t *subscription) wake() {
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

// golive is called with s.mu held.
func (t *subscription) golive() {
	t.live, t.drained = true, false
	t.wake()
}

// run delivers until the subscription's context or the subscriber ends.
func (t *subscription) run() {
	stop := context.AfterFunc(t.s.ctx, t.cancel)
	defer stop()
	var ready *entry // the one that m is of, which nobody has taken yet
	var m *message.Message
	drop := func() {}
	for t.ctx.Err() == nil {
		now := time.Now()
		t.settle(now)
		var out chan<- *message.Message
		if e := t.deliverable(now); e != nil {
			if e != ready {
				drop()
				ready = e
				m, drop = e.message(t.ctx)
			}
			out = t.out
		}
		timer := t.timer(now)
		select {
		case out <- m:
			go t.await(ready, m, drop)
			t.delivered(ready)
			ready, drop = nil, func() {}
		case c := <-t.concluded:
			t.conclude(c)
		case <-t.woken:
		case <-timer.C:
		case <-t.ctx.Done():
		}
		timer.Stop()
	}
	drop()
	t.end()
}

func (t *subscription) delivered(e *entry) {
	if e.due.IsZero() {
		t.next++
		t.inHand++
		return
	}
	e.due = time.Time{}
	t.nacked--
}

// await waits for what becomes of a message.
func (t *subscription) await(e *entry, m *message.Message, done context.CancelFunc) {
	defer done()
	c := conclusion{entry: e}
	select {
	case <-m.Acked():
		c.acked = true
	case <-m.Nacked():
	case <-t.gone:
		return
	}
	select {
	case t.concluded <- c:
	case <-t.gone:
	}
}

func (t *subscription) conclude(c conclusion) {
	switch {
	case c.acked:
		t.inHand--
		c.entry.acked = true
		t.advance()
	case t.has(c.entry): // it keeps its place in the window
		c.nacks++
		t.nacked++
		delay := t.s.cfg.NackDelay
		for i := 1; i < c.nacks && delay < maxNackFactor*t.s.cfg.NackDelay; i++ {
			delay *= 2
		}
		c.due = time.Now().Add(min(delay, maxNackFactor*t.s.cfg.NackDelay))
	default:
		t.inHand-- // of a queue that was given up: it comes again with the new one
	}
}

// advance moves what is done past the first entries that are acked.
func (t *subscription) advance() {
	for len(t.queue) > 0 && t.queue[0].acked {
		t.done = t.queue[0].position
		t.queue[0] = nil
		t.queue = t.queue[1:]
		t.next--
		if t.flushAt.IsZero() {
			t.flushAt = time.Now().Add(flushAfter)
		}
	}
}

func (t *subscription) has(e *entry) bool {
	for _, other := range t.queue[:t.next] {
		if other == e {
			return true
		}
	}
	return false
}

// isLive reports whether messages may be delivered now. If not, others may have been
// delivered meanwhile, to another subscriber, so that the queue has to be looked after.
func (t *subscription) isLive() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if !t.live {
		t.synced = false
	}
	return t.live
}

// deliverable returns what to deliver next, or nil.
func (t *subscription) deliverable(now time.Time) *entry {
	if !t.isLive() || !t.synced {
		return nil
	}
	for _, e := range t.waiting() {
		if !e.due.IsZero() && !e.due.After(now) {
			return e
		}
	}
	if t.next < len(t.queue) && t.inHand < t.window && t.queue[t.next].malady == nil {
		return t.queue[t.next]
	}
	return nil
}

// waiting returns the part of the queue that has nacked entries.
func (t *subscription) waiting() []*entry {
	if t.nacked == 0 {
		return nil
	}
	return t.queue[:t.next]
}

// timer is over when there is something to do that nobody tells of. What was due by now
// has been done, or waits for something else.
func (t *subscription) timer(now time.Time) *time.Timer {
	until := now.Add(time.Hour)
	consider := func(at time.Time) {
		if at.After(now) && at.Before(until) {
			until = at
		}
	}
	consider(t.flushAt)
	consider(t.retryAt)
	for _, e := range t.waiting() {
		consider(e.due)
	}
	return time.NewTimer(time.Until(until))
}

// settle does what is to do with the server, until there is no more, or an error.
func (t *subscription) settle(now time.Time) {
	if now.Before(t.retryAt) {
		return
	}
	err := t.settleNow(now)
	switch {
	case err == nil:
		t.retryAt = time.Time{}
		t.pause.Reset()
	case errors.Is(err, errDown), t.ctx.Err() != nil:
		t.retryAt = time.Now().Add(t.s.cfg.PollInterval)
	default:
		if sqlState(err) == undefinedTable {
			t.s.release(t) // the lock is that of the table
			t.prepared, t.synced = false, false
		}
		wait := t.pause.NextBackOff()
		t.retryAt = time.Now().Add(wait)
		t.logger.Warn("sqlbroker: the subscription cannot go on; will try again", "error", err, "after", wait)
	}
}

func (t *subscription) settleNow(now time.Time) error {
	if !t.prepared {
		if err := t.prepare(); err != nil {
			return err
		}
	}
	if !t.isLive() {
		return nil
	}
	if !t.synced {
		if err := t.sync(); err != nil {
			return err
		}
	}
	if !t.flushAt.IsZero() && !now.Before(t.flushAt) {
		if err := t.flush(); err != nil {
			return err
		}
	}
	for t.next < len(t.queue) && t.queue[t.next].malady != nil {
		if err := t.quarantine(t.queue[t.next]); err != nil {
			return err
		}
		t.queue[t.next].acked = true
		t.next++
		t.advance()
	}
	if t.next == len(t.queue) && len(t.queue) < t.limit {
		return t.read()
	}
	return nil
}

// prepare sees to it that the tables are there.
func (t *subscription) prepare() error {
	ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
	defer cancel()
	select {
	case t.s.preparing <- struct{}{}: // one at a time: all together they would take as many connections
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.s.preparing }()
	found, err := tablesOf(ctx, t.s.db, t.topic)
	if err != nil {
		return err
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "waybill sqlbroker %d %s", found.id, t.group)
	t.s.mu.Lock()
	t.key, t.wants = int64(h.Sum64()), true //nolint:gosec // any number will do
	t.s.mu.Unlock()
	t.prepared = true
	t.s.nudge()
	return nil
}

// end waits until what is out is acked, and tells the server. What is not comes again.
func (t *subscription) end() {
	t.cancel()
	t.inHand -= t.nacked // nobody has those
	patience := time.NewTimer(t.s.cfg.CloseTimeout)
	defer patience.Stop()
	for waiting := true; waiting && t.inHand > 0; {
		select {
		case c := <-t.concluded:
			if !c.acked {
				t.inHand--
				continue
			}
			t.conclude(c)
		case <-patience.C:
			waiting = false
		}
	}
	close(t.gone)
	if t.isLive() && t.synced {
		if err := t.flush(); err != nil {
			t.logger.Warn("sqlbroker: the last acks of a subscription are lost: what they were for will be delivered again", "error", err)
		}
	}
	t.s.release(t)
	t.s.mu.Lock()
	delete(t.s.all, t)
	t.s.mu.Unlock()
	close(t.out)
}
