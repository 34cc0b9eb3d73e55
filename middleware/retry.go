package middleware

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// DefaultMaxWait is how long retries in the process wait for one message at most, all its
// waits together. Meanwhile the broker holds the message, and whoever waits for it to be
// acked waits too: what needs longer belongs into a store, see [Consume].
const DefaultMaxWait = time.Minute

// RetryConfig configures [Retry].
type RetryConfig struct {
	// Policy says how often, and with which waits. Its waits, with all of their jitter, must
	// not add up to more than MaxWait.
	Policy eventing.RetryPolicy
	// MaxWait bounds what one message waits between its attempts; snoozes
	// ([eventing.RetryAfter]) may take as long again. Default: [DefaultMaxWait].
	MaxWait time.Duration
	// Logger is told of each failure that is tried again. Default: slog.Default().
	Logger *slog.Logger
	// Random feeds the jitter, in [0, 1). Default: math/rand/v2.
	Random func() float64
}

// Retry goes directly inside [DeadLetter], which takes what it gives up, and outside of [CircuitBreaker],
// [Timeout] and [Recover], which belong to each attempt. It runs the handler again, in the
// process, until it succeeds:
//
//   - A permanent error ends it at once; so does the policy's last attempt, whose error it makes
//     permanent, with the reason code RETRIES_EXHAUSTED or DOWNSTREAM_TIMEOUT_EXHAUSTED.
//   - A snooze waits as long as it says and counts as no attempt. One that does not fit into
//     what MaxWait leaves for snoozes is a failure like others.
//   - When the message's context ends, as at a shutdown, it returns the context's error: nobody's
//     attempt, and nothing for the dead letters. The broker delivers the message again.
//
// Each attempt gets a copy of the message as it came, so that what a failed one did to it, or
// acked, is of no consequence; payloads are shared, and read-only. A crash forgets the attempts made
// so far: a broker that delivers again begins a new budget. Retry fails on a policy that it
// cannot keep within MaxWait.
func Retry(cfg RetryConfig) (message.HandlerMiddleware, error) {
	r, err := newRetry(cfg)
	if err != nil {
		return nil, err
	}
	return r.middleware, nil
}

type retry struct {
	policy    eventing.RetryPolicy
	maxWait   time.Duration
	logger    *slog.Logger
	random    func() float64
	concluded func(ctx context.Context, a attempt) // nil: nobody wants to know
}

// attempt is one that has ended.
type attempt struct {
	state   eventing.State
	counted int // so far, this one included unless snoozed
	err     error
	took    time.Duration
}

func newRetry(cfg RetryConfig) (*retry, error) {
	r := &retry{
		policy:  eventing.Policy{Retry: cfg.Policy}.WithDefaults().Retry,
		maxWait: cmp.Or(cfg.MaxWait, DefaultMaxWait), logger: cfg.Logger, random: cfg.Random,
	}
	if r.logger == nil {
		r.logger = slog.Default()
	}
	if r.random == nil {
		r.random = rand.Float64
	}
	if r.maxWait < 0 {
		return nil, fmt.Errorf("retry: MaxWait is %v; it must not be negative", r.maxWait)
	}
	if err := (eventing.Policy{Retry: cfg.Policy, InboxRetention: math.MaxInt64}).Validate(); err != nil { // no inbox here
		return nil, fmt.Errorf("retry: %w", err)
	}
	var total time.Duration
	for n := 1; n < r.policy.MaxAttempts; n++ {
		if total += r.policy.Delay(n, 1); total > r.maxWait {
			return nil, fmt.Errorf("retry: the waits of %d attempts add up to more than the %v that retries in the process may take; "+
				"use fewer attempts or shorter waits, or a consumer with a store, whose retries survive a restart and hold nobody up", r.policy.MaxAttempts, r.maxWait)
		}
	}
	return r, nil
}

func (r *retry) middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		ctx := m.Context()
		counted, snoozes := 0, r.maxWait
		for {
			began := time.Now()
			produced, err := h(m.CopyWithContext())
			took := time.Since(began)
			if err == nil {
				r.tell(ctx, attempt{eventing.StateNone, counted + 1, nil, took})
				return produced, nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err() // we are stopping: whatever the handler met, it is not its attempt
			}
			wait, snoozed := eventing.SnoozeOf(err)
			if snoozed = snoozed && wait <= snoozes; snoozed {
				snoozes -= wait
			} else {
				counted++
				if err = r.giveUp(counted, err); eventing.IsPermanent(err) {
					r.tell(ctx, attempt{eventing.StateDead, counted, err, took})
					return nil, err
				}
				wait = r.policy.Delay(counted, r.random())
			}
			r.tell(ctx, attempt{eventing.StateRetrying, counted, err, took})
			r.logger.Warn("retry: the handler failed; it will be tried again", "event_id", eventID(m), "attempt", counted, "in", wait, "error", err)
			if err := sleep(ctx, wait); err != nil {
				return nil, err
			}
		}
	}
}

func (r *retry) tell(ctx context.Context, a attempt) {
	if r.concluded != nil {
		r.concluded(ctx, a)
	}
}

// giveUp makes the error of the last attempt permanent.
func (r *retry) giveUp(counted int, err error) error {
	if eventing.IsPermanent(err) || counted < r.policy.MaxAttempts {
		return err
	}
	reason := eventing.ReasonRetriesExhausted
	if eventing.ReasonOf(err) == eventing.ReasonTimeout {
		reason = eventing.ReasonTimeoutExhausted
	}
	return eventing.PermanentWithReason(reason, fmt.Errorf("the last of %d attempts failed: %w", counted, err))
}

// sleep waits unless ctx ends, whose error it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eventID is the message's own ID where it is no event's.
func eventID(m *message.Message) string { return cmp.Or(m.Metadata.Get("event_id"), m.UUID) }
