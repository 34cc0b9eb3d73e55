package eventing

import (
	"context"
	"errors"
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
func (c *Consumer) run(ctx context.Context, r Run, e Envelope) error {
	err := c.succeed(ctx, r, e)
	if errors.Is(err, ErrBrokenTx) {
		err = &handlerError{err}
	}
	var handlerErr *handlerError
	if errors.As(err, &handlerErr) {
		if ctx.Err() != nil {
			return ctx.Err() // we are stopping: whatever the handler met, it is not its attempt
		}
		err = c.fail(ctx, r, e, handlerErr.err)
	}
	if errors.Is(err, ErrLeaseLost) {
		c.leases.doubt() // lest the handler run again under it
	}
	return err
}

// succeed runs the handler and commits its success.
func (c *Consumer) succeed(ctx context.Context, r Run, e Envelope) error {
	now := c.cfg.Now()
	s := Success{
		Run: r, Now: now, InboxUntil: now.Add(c.cfg.Policy.InboxRetention),
		DeadLetterUntil: now.Add(c.cfg.Policy.DeadLetterRetention),
		Finish: c.finisher(Conclusion{
			Consumer: c.cfg.Name, Envelope: e, State: StateNone, Attempts: r.Attempts + 1,
		}),
	}
	if c.cfg.Transactional {
		s.Effect = func(ctx context.Context, tx any) error { return c.call(contextWithTx(ctx, tx, c.store), e) }
	} else if err := c.call(ctx, e); err != nil {
		return err
	}
	if err := c.store.Succeed(ctx, s); err != nil {
		return err
	}
	if r.Found != StateNone {
		c.nudge() // the next of the key may be waiting
	}
	return Fault(ctx, FaultConcluded)
}

// call runs the handler within its time, and turns a panic into an error.
func (c *Consumer) call(ctx context.Context, e Envelope) (err error) {
	ctx, cancel := context.WithTimeout(handlerContext(ctx, e), c.cfg.Policy.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
			c.cfg.Logger.Error("consumer: the handler panicked", "event_id", e.ID, "panic", v, "stack", string(debug.Stack()))
		}
		var crash *crashError
		if err != nil && !errors.As(err, &crash) {
			err = &handlerError{err}
		}
	}()
	if err := c.handle(ctx, e); err != nil {
		return err
	}
	return ctx.Err() // a handler that overran its time without noticing has failed too
}

// fail records a failure: as a retry, or as a dead letter.
func (c *Consumer) fail(ctx context.Context, r Run, e Envelope, cause error) error {
	f := c.failure(r, cause)
	conclusion := Conclusion{Consumer: c.cfg.Name, Envelope: e, State: f.State, Attempts: f.Attempts, Reason: f.Reason, Err: cause}
	f.Finish = c.finisher(conclusion)
	var elsewhere error // somebody else has concluded, or taken over: no use insisting
	err := c.insist(ctx, "record the failure of "+e.ID, func(ctx context.Context) error {
		err := c.store.Fail(ctx, f)
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrLeaseLost) {
			elsewhere = err
			return nil
		}
		return err
	})
	if err = errors.Join(err, elsewhere); err != nil {
		return err
	}
	logger := c.cfg.Logger.With("event_id", e.ID, "event_type", e.Type, "attempt", f.Attempts, "reason", f.Reason, "error", cause)
	if f.State == StateDead {
		logger.Error("consumer: the handler failed for good; the event is a dead letter now")
	} else {
		logger.Warn("consumer: the handler failed; it will be tried again", "due_at", f.DueAt)
		c.expect(f.DueAt)
	}
	return Fault(ctx, FaultFailed)
}

// failure decides what becomes of a failed run. It is a pure function of the
// run, the error, the clock and the random source.
func (c *Consumer) failure(r Run, cause error) Failure {
	now := c.cfg.Now()
	p := c.cfg.Policy.Retry
	f := Failure{
		Run: r, Now: now, State: StateRetrying, Attempts: r.Attempts, History: r.History,
		Stage: StageHandle, Reason: reasonOf(cause), Message: truncate(cause.Error()),
		DeadLetterUntil: now.Add(c.cfg.Policy.DeadLetterRetention),
	}
	var snooze *retryAfterError
	if errors.As(cause, &snooze) && !IsPermanent(cause) {
		f.DueAt = now.Add(snooze.after)
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
func (c *Consumer) quarantine(ctx context.Context, b []byte, generation int, outboxID string, cause error) error {
	id, payload := wrapUndecodable(b)
	now := c.cfg.Now()
	message := truncate(cause.Error())
	c.cfg.Logger.Error("consumer: the message does not decode and is now a dead letter", "event_id", id, "error", cause)
	return c.insist(ctx, "quarantine "+id, func(ctx context.Context) error {
		return c.store.Quarantine(ctx, Failure{
			Run: Run{Delivery: Delivery{Consumer: c.cfg.Name, EventID: id, Generation: generation, OutboxID: outboxID, Payload: payload}},
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
		defer func() {
			if v := recover(); v != nil {
				err = &PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
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
