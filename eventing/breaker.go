package eventing

import (
	"context"
	"errors"
	"sync"
	"time"
)

// BreakerPolicy is when a consumer stops trying because nothing succeeds any more. The
// breaker is the process's own and starts closed.
type BreakerPolicy struct {
	// Failures is how many attempts in a row have to fail until the breaker opens; a
	// permanent error is no failure here: it is the event's. Default: 0, no breaker.
	Failures int
	// OpenFor is how long no handler is called then. After that, one attempt decides: if
	// it succeeds the breaker closes, if it fails the breaker opens again. Default: 30 s.
	OpenFor time.Duration
}

const defaultOpenFor = 30 * time.Second

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states of a circuit breaker.
const (
	BreakerClosed   BreakerState = "closed"
	BreakerOpen     BreakerState = "open"
	BreakerHalfOpen BreakerState = "half_open" // one attempt decides, as soon as there is one
)

// Breaker is a circuit breaker whose callers wait while it is open. It is safe for
// concurrent use.
type Breaker struct {
	policy  BreakerPolicy
	now     func() time.Time
	changed func(BreakerState)

	mu       sync.Mutex
	state    BreakerState
	failures int
	until    time.Time     // when it is open no longer
	probing  bool          // the attempt that decides is under way
	turn     chan struct{} // closed when somebody who waits should look again
}

// NewBreaker returns a closed breaker. changed, unless it is nil, is told of each change,
// under the breaker's lock; of the one to half open when its time has come, whether or not anybody
// waits for it, so perhaps OpenFor after the breaker's last use.
func NewBreaker(p BreakerPolicy, now func() time.Time, changed func(BreakerState)) *Breaker {
	if p.OpenFor == 0 {
		p.OpenFor = defaultOpenFor
	}
	if now == nil {
		now = time.Now
	}
	if changed == nil {
		changed = func(BreakerState) {}
	}
	return &Breaker{policy: p, now: now, changed: changed, state: BreakerClosed, turn: make(chan struct{})}
}

// ErrNoAttempt tells a [Breaker] that nothing was tried.
var ErrNoAttempt = errors.New("no attempt was made")

// Enter waits until an attempt may be made. leave must be called, with how it ended: nil,
// the handler's error, or [ErrNoAttempt]; what is said first counts. Its own error is that
// of ctx.
func (b *Breaker) Enter(ctx context.Context) (leave func(err error), err error) {
	for {
		if leave := b.TryEnter(); leave != nil {
			return leave, nil
		}
		if err := b.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// wait waits until it is worth trying to enter. Its error is that of ctx.
func (b *Breaker) wait(ctx context.Context) error {
	for {
		left, turn := b.blocked()
		if turn == nil {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-turn:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// blocked returns for how long no attempt may be made, and what is closed if that changes
// before; nothing if one may be.
func (b *Breaker) blocked() (left time.Duration, turn <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch left := b.until.Sub(b.now()); {
	case b.probing:
		return b.policy.OpenFor, b.turn
	case b.state == BreakerOpen && left > 0:
		return left, b.turn
	}
	return 0, nil
}

// TryEnter is [Breaker.Enter] without the waiting: leave is nil if no attempt may be made now.
func (b *Breaker) TryEnter() (leave func(err error)) {
	if b.policy.Failures == 0 {
		return func(error) {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	once := func(end func(error)) func(error) {
		var done sync.Once
		return func(err error) { done.Do(func() { end(err) }) }
	}
	switch {
	case b.probing, b.state == BreakerOpen && b.until.After(b.now()):
		return nil
	case b.state == BreakerClosed:
		return once(b.left)
	case b.state == BreakerOpen:
		b.become(BreakerHalfOpen)
	}
	b.probing = true
	return once(b.probed)
}

// ready returns how many of n attempts may be made now.
func (b *Breaker) ready(n int) int {
	if b.policy.Failures == 0 {
		return n
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == BreakerClosed:
		return n
	case b.probing, b.state == BreakerOpen && b.until.After(b.now()):
		return 0
	}
	return min(n, 1)
}

// left is the end of an attempt that began while the breaker was closed.
func (b *Breaker) left(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != BreakerClosed { // another has opened it since
		return
	}
	switch verdictOf(err) {
	case answered:
		b.failures = 0
	case failed:
		if b.failures++; b.failures >= b.policy.Failures {
			b.open()
		}
	}
}

// probed is the end of the attempt that decides.
func (b *Breaker) probed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	switch verdictOf(err) {
	case answered:
		b.failures = 0
		b.become(BreakerClosed)
	case failed:
		b.open()
	}
	close(b.turn)
	b.turn = make(chan struct{})
}

func (b *Breaker) open() {
	b.until = b.now().Add(b.policy.OpenFor)
	b.become(BreakerOpen)
	time.AfterFunc(b.policy.OpenFor, b.expire)
}

// expire is for who looks on: without it, a breaker that nobody needs would seem to be open.
func (b *Breaker) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == BreakerOpen && !b.until.After(b.now()) { // it may have opened again
		b.become(BreakerHalfOpen)
	}
}

func (b *Breaker) become(s BreakerState) {
	b.state = s
	b.changed(s)
}

// verdict is what an attempt's end says of what the handler needs.
type verdict int

const (
	silent   verdict = iota // nothing
	answered                // it is there: the attempt succeeded, or its event is at fault
	failed
)

func verdictOf(err error) verdict {
	_, snoozed := SnoozeOf(err)
	switch {
	case err == nil, IsPermanent(err):
		return answered
	case snoozed, errors.Is(err, ErrNoAttempt), errors.Is(err, context.Canceled):
		return silent
	}
	return failed
}
