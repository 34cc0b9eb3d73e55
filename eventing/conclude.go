package eventing

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// handlerError is what a handler returned, told from what the store returned.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }
func (e *handlerError) Unwrap() error { return e.err }

// run runs the handler on a delivery and concludes it. Its error means that
// nothing has been concluded: the same delivery may be tried again from its
// arrival.
func (c *Consumer) run(ctx context.Context, r Run, e Envelope, leave func(error)) error {
	if r.Force && c.cfg.Policy.RefuseForce {
		return c.refuse(ctx, r)
	}
	began := time.Now()
	ctx, end := c.trace(WithAttempt(ctx, r.attempt()), r, e)
	err := c.succeed(ctx, r, e, began)
	if errors.Is(err, ErrBrokenTx) {
		err = &handlerError{err}
	}
	var handlerErr *handlerError
	switch {
	case errors.As(err, &handlerErr):
		if ctx.Err() != nil {
			end(fmt.Errorf("%w: %w", ErrNoAttempt, handlerErr.err))
			return ctx.Err() // we are stopping: whatever the handler met, it is not its attempt
		}
		end(handlerErr.err)
		leave(handlerErr.err)
		err = c.fail(ctx, r, e, handlerErr.err, time.Since(began))
	case err == nil:
		end(nil)
		leave(nil)
	default:
		end(fmt.Errorf("%w: %w", ErrNoAttempt, err))
	}
	if errors.Is(err, ErrLeaseLost) {
		c.leases.doubt() // lest the handler run again under it
	}
	return err
}

// refuse concludes a forced run without the handler: whatever waits for it goes on, and the
// audit accounts for it.
func (c *Consumer) refuse(ctx context.Context, r Run) error {
	c.cfg.Logger.Warn("consumer: a forced run is refused, as the policy says", "event_id", r.EventID)
	now := c.cfg.Now()
	err := c.store.Succeed(ctx, Success{
		Run: r, Now: now, InboxUntil: now.Add(c.cfg.Policy.InboxRetention), DeadLetterUntil: now.Add(c.cfg.Policy.DeadLetterRetention),
	})
	if err == nil && r.Found != StateNone {
		c.nudge() // the next of the key may be waiting
	}
	return err
}

// trace begins the span of an attempt.
func (c *Consumer) trace(ctx context.Context, r Run, e Envelope) (context.Context, EndSpan) {
	if c.cfg.Tracer == nil {
		return ctx, func(error) {}
	}
	a := TracedAttempt{Consumer: c.cfg.Name, Envelope: e, Attempt: r.Attempts + 1}
	a.TraceParent, a.TraceState = TraceContext(ctx)
	for _, failed := range r.History {
		if failed.TraceParent != "" {
			a.Failed = append(a.Failed, failed.TraceParent)
		}
	}
	return c.cfg.Tracer.Attempt(ctx, a)
}

// succeed runs the handler and commits its success.
func (c *Consumer) succeed(ctx context.Context, r Run, e Envelope, began time.Time) error {
	ctx, left, err := c.prepare(ctx, e)
	if err != nil {
		return err
	}
	now := c.cfg.Now()
	conclusion := Conclusion{Consumer: c.cfg.Name, Envelope: e, State: StateNone, Attempts: r.Attempts + 1, RoutingVersion: r.RoutingVersion}
	s := Success{
		Run: r, Now: now, InboxUntil: now.Add(c.cfg.Policy.InboxRetention),
		DeadLetterUntil: now.Add(c.cfg.Policy.DeadLetterRetention),
		ClaimUntil:      now.Add(c.cfg.Policy.Timeout + claimGrace),
		Finish:          c.finisher(conclusion),
	}
	if c.cfg.Transactional {
		s.Effect = func(ctx context.Context, tx any) error { return c.call(contextWithTx(ctx, tx, c.store), left, e) }
	} else if err := c.call(ctx, left, e); err != nil {
		return err
	}
	if err := c.store.Succeed(ctx, s); err != nil {
		return err
	}
	c.observer.Concluded(conclusion, time.Since(began))
	if r.Found != StateNone {
		c.nudge() // the next of the key may be waiting
	}
	return Fault(ctx, FaultConcluded)
}

// call runs the handler on one event.
func (c *Consumer) call(ctx context.Context, within time.Duration, e Envelope) error {
	return c.guard(handlerContext(ctx, e), within, func(ctx context.Context) error { return c.handle(ctx, e) }, "event_id", e.ID)
}

// guard runs a handler within its time, and turns a panic into an error, which it logs with attrs.
func (c *Consumer) guard(ctx context.Context, within time.Duration, handle func(context.Context) error, attrs ...any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer func() {
		var panicked *PanicError
		if errors.As(err, &panicked) {
			c.cfg.Logger.With(attrs...).Error("consumer: the handler panicked", "panic", panicked.Value, "stack", string(panicked.Stack))
		}
		var crash *crashError
		if err != nil && !errors.As(err, &crash) {
			err = &handlerError{err}
		}
	}()
	defer recovered(&err)
	if err := handle(ctx); err != nil {
		return err
	}
	return ctx.Err() // a handler that overran its time without noticing has failed too
}

// recovered makes an error of a panic. To be deferred.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// fail records a failure: as a retry, or as the policy has it for events that are
// exhausted.
func (c *Consumer) fail(ctx context.Context, r Run, e Envelope, cause error, took time.Duration) error {
	f := c.failure(r, cause)
	if c.cfg.Tracer != nil && f.Attempts > r.Attempts {
		f.History[len(f.History)-1].TraceParent, _ = TraceContext(ctx)
	}
	conclusion := Conclusion{
		Consumer: c.cfg.Name, Envelope: e, State: f.State, Attempts: f.Attempts, Snoozed: f.Attempts == r.Attempts, RoutingVersion: r.RoutingVersion,
		Reason: f.Reason, Err: cause,
	}
	if f.State == StateDead && !c.cfg.Policy.names(ActionDeadLetter) {
		conclusion.State = StateNone
	}
	var elsewhere error // somebody else has concluded, or taken over: no use insisting
	err := c.insist(ctx, "record the failure of "+e.ID, func(ctx context.Context) (err error) {
		if f.State == StateDead {
			var ended Conclusion
			if ended, err = c.exhaust(ctx, f, conclusion); err == nil {
				conclusion = ended
			}
		} else {
			f.Finish = c.finisher(conclusion)
			err = c.store.Fail(ctx, f)
		}
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrLeaseLost) {
			elsewhere = err
			return nil
		}
		return err
	})
	if err = errors.Join(err, elsewhere); err != nil {
		return err
	}
	c.report(f, conclusion, took)
	return Fault(ctx, FaultFailed)
}

// report tells of a failure that is recorded.
func (c *Consumer) report(f Failure, conclusion Conclusion, took time.Duration) {
	logger := c.cfg.Logger.With("event_id", f.EventID, "event_type", f.EventType, "attempt", f.Attempts, "reason", f.Reason, "error", conclusion.Err)
	switch conclusion.State {
	case StateDead:
		logger.Error("consumer: the handler failed for good; the event is a dead letter now")
	case StateRetrying:
		logger.Warn("consumer: the handler failed; it will be tried again", "due_at", f.DueAt)
		c.expect(f.DueAt)
	default:
		logger.Warn("consumer: the handler failed for good; what its policy says instead was done", "actions", c.cfg.Policy.OnExhausted)
		c.nudge() // the next of the key may be waiting
	}
	c.observer.Concluded(conclusion, took)
	if f.State == StateDead && c.cfg.Policy.names(ActionAlert) {
		logger.Error("consumer: ALERT: an event is exhausted")
		c.observer.Alert(conclusion)
	}
}

// failure decides what becomes of a failed run. It is a pure function of the
// run, the error, the clock and the random source.
func (c *Consumer) failure(r Run, cause error) Failure {
	now := c.cfg.Now()
	p := c.cfg.Policy.Retry
	f := Failure{
		Run: r, Now: now, State: StateRetrying, Attempts: r.Attempts, History: r.History,
		Stage: StageHandle, Reason: ReasonOf(cause), Message: truncate(cause.Error()),
		DeadLetterUntil: now.Add(c.cfg.Policy.DeadLetterRetention),
	}
	if after, snoozed := SnoozeOf(cause); snoozed {
		f.DueAt = now.Add(after)
		return f
	}
	f.Attempts++
	f.History = appendAttempt(r.History, Attempt{
		Attempt: f.Attempts, At: now.UTC(), Outcome: "failed", ErrorCode: f.Reason, ErrorMessage: f.Message,
	})
	spent := f.Attempts - r.PriorAttempts
	switch {
	case IsPermanent(cause):
		f.State = StateDead
	case spent >= p.MaxAttempts:
		f.State = StateDead
		if f.Reason == ReasonTimeout {
			f.Reason = ReasonTimeoutExhausted
		} else {
			f.Reason = ReasonRetriesExhausted
		}
	default:
		f.DueAt = now.Add(p.Delay(spent, c.cfg.Random()))
	}
	if f.Reason == ReasonPayloadMalformed {
		f.Stage = StageDecode
	}
	return f
}

// appendAttempt keeps the last attempts: the highest is always among them.
func appendAttempt(history []Attempt, a Attempt) []Attempt {
	out := append(append(make([]Attempt, 0, len(history)+1), history...), a)
	if len(out) > maxAttempts {
		out = out[len(out)-maxAttempts:]
	}
	return out
}

// quarantine keeps bytes that do not decode as a dead letter.
func (c *Consumer) quarantine(ctx context.Context, b []byte, generation int, outboxSeq int64, cause error) error {
	id, payload := wrapUndecodable(b)
	now := c.cfg.Now()
	message := truncate(cause.Error())
	c.cfg.Logger.Error("consumer: the message does not decode and is now a dead letter", "event_id", id, "error", cause)
	return c.insist(ctx, "quarantine "+id, func(ctx context.Context) error {
		return c.store.Quarantine(ctx, Failure{
			Run: Run{Delivery: Delivery{Consumer: c.cfg.Name, EventID: id, Generation: generation, OutboxSeq: outboxSeq, Payload: payload}},
			Now: now, State: StateDead, Attempts: 1,
			History: []Attempt{{Attempt: 1, At: now.UTC(), Outcome: "failed", ErrorCode: ReasonEnvelopeMalformed, ErrorMessage: message}},
			Stage:   StageDecode, Reason: ReasonEnvelopeMalformed, Message: message,
			DeadLetterUntil: now.Add(c.cfg.Policy.DeadLetterRetention),
		})
	})
}

func (c *Consumer) finisher(conclusion Conclusion) func(context.Context, any) error {
	if c.cfg.OnConclude == nil {
		return nil
	}
	return func(ctx context.Context, tx any) (err error) {
		defer recovered(&err)
		return c.cfg.OnConclude(ctx, tx, conclusion)
	}
}

// expect remembers when the next retry that was recorded here is due.
func (c *Consumer) expect(due time.Time) {
	c.mu.Lock()
	if c.due.IsZero() || due.Before(c.due) {
		c.due = due
	}
	c.mu.Unlock()
	c.nudge()
}
