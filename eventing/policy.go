package eventing

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// JitterBasis says of what a retry's jitter is a fraction.
type JitterBasis int

const (
	// JitterOfDelay is a fraction of the delay itself.
	JitterOfDelay JitterBasis = iota
	// JitterOfBase is a fraction of the base delay, the same for each attempt.
	JitterOfBase
)

// RetryPolicy says how often and when a failed event is tried again. Delay is
// a pure function of it: no state, so a restart forgets nothing.
type RetryPolicy struct {
	// MaxAttempts is how often the handler runs at most, the first time
	// included. Default: 5. After a replay the count starts anew.
	MaxAttempts int
	// Base is the delay that grows. Default: 1 s.
	Base time.Duration
	// Multiplier is the factor between one delay and the next. Default: 2.
	Multiplier float64
	// FirstExponent is the power of Multiplier in the first delay. Default: 0,
	// so that the first retry waits Base; with 1 it waits Base · Multiplier.
	FirstExponent int
	// Max bounds the delay, its jitter included. Default: 0, which is no bound.
	Max time.Duration
	// Jitter is the largest random addition, as a fraction of JitterBasis.
	// Default: 0, none.
	Jitter      float64
	JitterBasis JitterBasis
}

// Delay returns how long to wait after the failure of the given attempt, the
// first being 1. random is in [0, 1).
//
//	min(Base · Multiplier^(FirstExponent+attempt−1) + random · Jitter · basis, Max)
func (p RetryPolicy) Delay(attempt int, random float64) time.Duration {
	p = p.withDefaults()
	base := float64(p.Base)
	delay := min(base*math.Pow(p.Multiplier, float64(p.FirstExponent+max(attempt, 1)-1)), float64(maxDelay)) // a power may be infinite
	basis := delay
	if p.JitterBasis == JitterOfBase {
		basis = base
	}
	delay += random * p.Jitter * basis
	if p.Max > 0 {
		delay = min(delay, float64(p.Max))
	}
	return time.Duration(min(delay, float64(maxDelay)))
}

// maxDelay keeps powers of the multiplier from overflowing a duration.
const maxDelay = 10 * 365 * 24 * time.Hour

// Horizon returns the longest time from a first attempt to the last one, the
// handler's timeouts included.
func (p Policy) Horizon() time.Duration {
	p = p.WithDefaults()
	total := time.Duration(p.Retry.MaxAttempts) * p.Timeout
	for attempt := 1; attempt < p.Retry.MaxAttempts && total < maxDelay; attempt++ {
		total += p.Retry.Delay(attempt, 1)
	}
	return min(total, maxDelay)
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 5
	}
	if p.Base == 0 {
		p.Base = time.Second
	}
	if p.Multiplier == 0 {
		p.Multiplier = 2
	}
	return p
}

// Guarantee is how often an event has its effect.
type Guarantee string

// The guarantees. Neither loses an event that its broker keeps.
const (
	AtLeastOnce Guarantee = "at_least_once"
	// ExactlyOnce: the effect and the inbox row are one transaction.
	ExactlyOnce Guarantee = "exactly_once"
)

// Policy is how one consumer handles its events.
type Policy struct {
	// Ordered consumers handle the events of one ordering key one after the
	// other in the order of their appending; while one of them is in trouble,
	// the later ones of that key are parked behind it. Default: false.
	Ordered bool
	// Concurrency is how many events one process handles at a time, at most one
	// of each partition if ordered. Default: 8.
	Concurrency int
	// Timeout bounds one run of the handler. Default: 30 s.
	Timeout time.Duration
	// Guarantee is what the consumer relies on: [ExactlyOnce] is refused where the handler
	// does not run in the transaction of the inbox. Default: what the handler gives.
	Guarantee Guarantee
	// Retry says what happens after a failure.
	Retry RetryPolicy
	// Breaker pauses the consumer, in this process, while nothing succeeds. No attempt is
	// burnt meanwhile, and nothing acked. Default: none.
	Breaker BreakerPolicy
	// OnExhausted names, in their order, the actions to take on an event whose attempts are spent or
	// that no attempt can help: the built-in ones (see [ActionDeadLetter] and those after it), and those
	// of the consumer's own in [ConsumerConfig]. Without [ActionDeadLetter] the event counts as
	// processed once they have succeeded; if they fail, it is a dead letter all the same.
	// Default: ActionDeadLetter alone.
	OnExhausted []string
	// RefuseForce: what this consumer has processed is not run again even if an operator
	// forces it. The refusal is logged, and the event counts as processed, as it was.
	RefuseForce bool
	// InboxRetention is how long it is remembered that an event was processed:
	// within it, a duplicate is recognised. It must be longer than the longest
	// way through all retries. Default: 30 days.
	InboxRetention time.Duration
	// DeadLetterRetention is how long a dead letter is kept, from its last
	// failure while open, from its closing after that. Default: 90 days.
	DeadLetterRetention time.Duration
}

// WithDefaults returns the policy with what it leaves out filled in.
func (p Policy) WithDefaults() Policy {
	p.Retry = p.Retry.withDefaults()
	if p.Concurrency == 0 {
		p.Concurrency = 8
	}
	if p.Timeout == 0 {
		p.Timeout = 30 * time.Second
	}
	if len(p.OnExhausted) == 0 {
		p.OnExhausted = []string{ActionDeadLetter}
	}
	if p.Breaker.OpenFor == 0 {
		p.Breaker.OpenFor = defaultOpenFor
	}
	if p.InboxRetention == 0 {
		p.InboxRetention = 30 * 24 * time.Hour
	}
	if p.DeadLetterRetention == 0 {
		p.DeadLetterRetention = 90 * 24 * time.Hour
	}
	return p
}

// Validate checks a policy, its defaults filled in.
func (p Policy) Validate() error {
	openFor := p.Breaker.OpenFor
	p = p.WithDefaults()
	r := p.Retry
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Concurrency > 0, "Concurrency is %d; it must be positive", p.Concurrency)
	check(p.Timeout > 0, "Timeout is %v; it must be positive", p.Timeout)
	check(r.MaxAttempts > 0 && r.MaxAttempts <= maxAttempts, "Retry.MaxAttempts is %d; it must be from 1 to %d", r.MaxAttempts, maxAttempts)
	check(r.Base > 0, "Retry.Base is %v; it must be positive", r.Base)
	check(r.Multiplier >= 1 && !math.IsInf(r.Multiplier, 0), "Retry.Multiplier is %v; it must be at least 1", r.Multiplier)
	check(r.FirstExponent >= 0, "Retry.FirstExponent is %d; it must not be negative", r.FirstExponent)
	check(r.Max >= 0, "Retry.Max is %v; it must not be negative", r.Max)
	check(r.Jitter >= 0 && r.Jitter <= 1, "Retry.Jitter is %v; it must be from 0 to 1", r.Jitter)
	check(p.Guarantee == "" || p.Guarantee == AtLeastOnce || p.Guarantee == ExactlyOnce, "Guarantee is %q; it must be %s or %s", p.Guarantee, AtLeastOnce, ExactlyOnce)
	check(p.Breaker.Failures >= 0, "Breaker.Failures is %d; it must not be negative", p.Breaker.Failures)
	check(p.Breaker.OpenFor >= 0, "Breaker.OpenFor is %v; it must not be negative", p.Breaker.OpenFor)
	check(openFor <= 0 || p.Breaker.Failures != 0, "Breaker.OpenFor is %v, and Breaker.Failures 0: there would be no breaker; say after how many failures it opens", openFor)
	check(!p.names(ActionFreeze) || p.Ordered && p.names(ActionDeadLetter),
		"OnExhausted has %s, which needs Ordered and %s: what waits for a dead letter of its key is frozen", ActionFreeze, ActionDeadLetter)
	check(p.InboxRetention > 0, "InboxRetention is %v; it must be positive", p.InboxRetention)
	check(p.DeadLetterRetention > 0, "DeadLetterRetention is %v; it must be positive", p.DeadLetterRetention)
	if len(errs) == 0 && p.InboxRetention < p.Horizon() {
		check(false, "InboxRetention is %v, shorter than the %v that an event may be retried for: a duplicate could run twice; raise it or retry for a shorter time",
			p.InboxRetention, p.Horizon().Round(time.Millisecond))
	}
	return errors.Join(errs...)
}

// maxAttempts also bounds the attempt history that is kept of one delivery.
const maxAttempts = 100
