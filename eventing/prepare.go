package eventing

import (
	"context"
	"time"
)

// PrepareFunc gathers what the handler of an event will need. See [ConsumerConfig].
type PrepareFunc func(ctx context.Context, e Envelope) (prepared any, err error)

// Prepared returns what [ConsumerConfig.Prepare] returned for the running attempt; nil without
// one.
func Prepared(ctx context.Context) any { return ctx.Value(preparedKey) }

// WithPrepared returns a context in which [Prepared] returns a value. A [Consumer] makes such
// contexts itself: this is for consumers of another make, and for tests of handlers.
func WithPrepared(ctx context.Context, prepared any) context.Context {
	return context.WithValue(ctx, preparedKey, prepared)
}

// CurrentAttempt is the attempt that is under way.
type CurrentAttempt struct {
	Consumer string
	// Number of the attempt, from 1. It goes on after a replay, as in the event's history. After a
	// snooze or a crash, which are no attempts, it comes again.
	Number int
	// Generation of the replay that it belongs to; 0: of none.
	Generation int
	// RoutingVersion is that of the routing table that sent the event to the consumer: see
	// [VersionedRoutes]. Empty if it had none.
	RoutingVersion string
}

// AttemptFromContext returns the attempt that the context belongs to: that of
// [ConsumerConfig.Prepare], of a handler, or of an [Action], where it is the one that exhausted
// the event. ok is false elsewhere, and in a call for several events of a batch, which is no attempt at
// any of them.
func AttemptFromContext(ctx context.Context) (a CurrentAttempt, ok bool) {
	a, ok = ctx.Value(attemptKey).(CurrentAttempt)
	return a, ok
}

// WithAttempt returns a context that belongs to an attempt. A [Consumer] makes such contexts
// itself: this is for consumers of another make, and for tests of handlers.
func WithAttempt(ctx context.Context, a CurrentAttempt) context.Context {
	return context.WithValue(ctx, attemptKey, a)
}

// attempt is the one that a run makes.
func (r Run) attempt() CurrentAttempt {
	return CurrentAttempt{Consumer: r.Consumer, Number: r.Attempts + 1, Generation: r.Generation, RoutingVersion: r.RoutingVersion}
}

// prepare does what goes before the handler and its transaction. It returns the context for
// the handler, and how much of the policy's Timeout is left for it: what the store takes in between is
// not the handler's.
func (c *Consumer) prepare(ctx context.Context, e Envelope) (context.Context, time.Duration, error) {
	timeout := c.cfg.Policy.Timeout
	if c.cfg.Prepare == nil {
		return ctx, timeout, nil
	}
	began := time.Now()
	var prepared any
	if err := c.guard(handlerContext(ctx, e), timeout, func(ctx context.Context) (err error) {
		prepared, err = c.cfg.Prepare(ctx, e)
		return err
	}, "event_id", e.ID); err != nil {
		return ctx, 0, err
	}
	return WithPrepared(ctx, prepared), timeout - time.Since(began), Fault(ctx, FaultPrepared)
}
