package redisbroker

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// subscription delivers messages of a stream.
type subscription struct {
	*stream

	s      *Subscriber
	r      *reader
	ctx    context.Context
	cancel context.CancelFunc
	out    chan *message.Message
	window chan struct{} // full while so many are out
	gone   chan struct{} // closed when nobody waits for acks any more
	work   sync.WaitGroup

	mu   sync.Mutex
	over []*redis.XMessage // what has not been acked at the end
}

// run delivers until the subscription's context or the subscriber ends.
func (t *subscription) run() {
	stop := context.AfterFunc(t.s.ctx, t.cancel)
	defer stop()
	for {
		select {
		case t.window <- struct{}{}:
		case <-t.ctx.Done():
			t.end()
			return
		}
		e := t.wait()
		if e == nil {
			t.end()
			return
		}
		t.deliver(e)
	}
}

// wait takes the next entry, as soon as there is one.
func (t *subscription) wait() *redis.XMessage {
	for t.ctx.Err() == nil {
		e, left := t.pop()
		if left == t.batch/2 || e == nil {
			t.r.wake()
		}
		if e != nil {
			return e
		}
		select {
		case <-t.filled:
		case <-t.ctx.Done():
		}
	}
	return nil
}

// deliver sends a message, and leaves waiting for its ack to a goroutine.
func (t *subscription) deliver(e *redis.XMessage) {
	m, problem := t.s.decode(e)
	if problem != nil {
		t.work.Go(func() { t.again(e, nil, problem, func() {}) })
		return
	}
	m, done := t.withContext(m)
	if t.send(m) {
		t.work.Go(func() { t.again(e, m, nil, done) })
	} else {
		done()
		t.keep(e)
	}
}

// withContext gives a message a context that ends with it.
func (t *subscription) withContext(m *message.Message) (*message.Message, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.ctx)
	m.SetContext(ctx)
	return m, cancel
}

// send reports whether somebody has taken the message.
func (t *subscription) send(m *message.Message) bool {
	select {
	case t.out <- m:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// again waits until a message is acked. If it is nacked, it is delivered again. An entry
// that has a problem instead goes into quarantine.
func (t *subscription) again(e *redis.XMessage, m *message.Message, problem error, done context.CancelFunc) {
	defer func() { done() }()
	for delay := t.s.cfg.NackDelay; ; delay = min(2*delay, 100*t.s.cfg.NackDelay) {
		if problem != nil && t.quarantine(e, problem) || problem == nil && t.concluded(m) {
			t.acked(e)
			return
		}
		done()
		select {
		case <-time.After(delay):
		case <-t.ctx.Done():
			t.keep(e)
			return
		}
		if m, problem = t.s.decode(e); problem != nil {
			continue
		}
		if m, done = t.withContext(m); !t.send(m) {
			t.keep(e)
			return
		}
	}
}

// concluded waits for a message, and reports whether it is acked: else it is nacked, or
// nobody waits any more.
func (t *subscription) concluded(m *message.Message) bool {
	select {
	case <-m.Acked():
		return true
	case <-m.Nacked():
		return false
	case <-t.gone:
	}
	select {
	case <-m.Acked():
		return true
	default:
		return false
	}
}

// acked has Redis told, and makes room in the window. If Redis takes no acks, the window
// stays full.
func (t *subscription) acked(e *redis.XMessage) {
	a := ack{stream: t.stream, entry: e}
	select {
	case t.r.acks <- a:
	default:
		select {
		case t.r.acks <- a:
		case <-t.gone:
			t.keep(e) // it comes again
		}
	}
	<-t.window
}

// keep leaves an entry to another subscription.
func (t *subscription) keep(e *redis.XMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = append(t.over, e)
}

// end waits for acks. What is left goes to other subscriptions of the subscriber, or is
// given back.
func (t *subscription) end() {
	t.cancel()
	timer := time.AfterFunc(t.s.cfg.CloseTimeout, func() { close(t.gone) })
	t.work.Wait()
	timer.Stop()
	slices.SortFunc(t.over, func(a, b *redis.XMessage) int { return compareIDs(a.ID, b.ID) })
	if t.part(t.over) {
		t.r.finish(t.stream)
	}
	close(t.out)
}

// compareIDs compares those of entries: two numbers without leading zeros.
func compareIDs(a, b string) int {
	aTime, aSeq, _ := strings.Cut(a, "-")
	bTime, bSeq, _ := strings.Cut(b, "-")
	for _, pair := range [][2]string{{aTime, bTime}, {aSeq, bSeq}} {
		if d := len(pair[0]) - len(pair[1]); d != 0 {
			return d
		}
		if d := strings.Compare(pair[0], pair[1]); d != 0 {
			return d
		}
	}
	return 0
}
