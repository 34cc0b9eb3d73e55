package eventing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The built-in actions of [Policy.OnExhausted].
const (
	// ActionDeadLetter keeps the event as a dead letter, to be reviewed and replayed.
	ActionDeadLetter = "dead_letter"
	// ActionFreeze says that the later events of the ordering key wait until the dead letter
	// is replayed or discarded, as they do for every ordered consumer.
	ActionFreeze = "freeze"
	// ActionAlert logs an error and tells [Observer.Alert], after the commit: once, or, if
	// the process dies just then, not at all.
	ActionAlert = "alert"
	// ActionFallback does what the handler could not in another way. It has no built-in
	// meaning: register it.
	ActionFallback = "fallback"
	// ActionDefault decides what the handler could not decide. Register it, too.
	ActionDefault = "default"
)

// Action is what a policy names for events that are exhausted. It runs in the transaction
// that concludes the event, tx, within the policy's timeout, and like a handler it may run again
// if that is not committed. What it writes with tx, it writes exactly once, together with the
// dead letter if there is one.
type Action func(ctx context.Context, tx any, c Conclusion) error

var builtIn = []string{ActionDeadLetter, ActionFreeze, ActionAlert}

// checkActions reports whether each action that the policy names can be taken.
func (cfg ConsumerConfig) checkActions() error {
	for name, a := range cfg.Actions {
		switch {
		case slices.Contains(builtIn, name):
			return fmt.Errorf("action %s is built in; register yours under another name", name)
		case a == nil:
			return fmt.Errorf("action %s is nil", name)
		case !cfg.Policy.names(name):
			return fmt.Errorf("action %s is never taken: name it in OnExhausted", name)
		}
	}
	if !cfg.Policy.names(ActionDeadLetter) && len(cfg.Actions) == 0 {
		return fmt.Errorf("OnExhausted is %v, which would drop the event: add %s, or an action of the consumer's own", cfg.Policy.OnExhausted, ActionDeadLetter)
	}
	for i, name := range cfg.Policy.OnExhausted {
		switch {
		case slices.Contains(cfg.Policy.OnExhausted[:i], name):
			return fmt.Errorf("OnExhausted has %s twice", name)
		case !slices.Contains(builtIn, name) && cfg.Actions[name] == nil:
			return fmt.Errorf("OnExhausted has %s, which is not built in: register it in Actions", name)
		}
	}
	return nil
}

func (p Policy) names(action string) bool { return slices.Contains(p.OnExhausted, action) }

// exhaust concludes an event whose attempts are spent: the actions and the dead letter, or
// the inbox row where none is wanted, in one transaction.
// It returns the conclusion: if the actions keep failing, a dead letter in any case.
func (c *Consumer) exhaust(ctx context.Context, f Failure, conclusion Conclusion) (Conclusion, error) {
	f.Finish = c.finisher(conclusion)
	if len(c.cfg.Actions) == 0 {
		return conclusion, c.store.Fail(ctx, f)
	}
	var err error
	for try := range actionTries {
		if err = c.tryActions(ctx, f, conclusion); !ofAction(err) || ctx.Err() != nil {
			return conclusion, err
		}
		logger := c.cfg.Logger.With("event_id", f.EventID)
		if panicked := (*PanicError)(nil); errors.As(err, &panicked) {
			logger = logger.With("stack", string(panicked.Stack))
		}
		logger.Warn("consumer: an action on an exhausted event failed", "error", err)
		select {
		case <-ctx.Done():
			return conclusion, ctx.Err()
		case <-time.After(time.Duration(try+1) * actionPause):
		}
	}
	f.Message = truncate(fmt.Sprintf("%v; the event's own error: %s", err, f.Message))
	conclusion.State = StateDead
	f.Finish = c.finisher(conclusion)
	return conclusion, c.store.Fail(ctx, f)
}

// actionTries is how often the actions are tried before the event is a dead letter without
// them; the pause after each is longer.
const (
	actionTries = 3
	actionPause = 100 * time.Millisecond
)

// ofAction reports whether an error is that of an action, and not of a store that is away, or
// of a crash.
func ofAction(err error) bool {
	switch {
	case errors.As(err, new(*crashError)), errors.Is(err, ErrUnavailable), errors.Is(err, ErrSerialization):
		return false
	}
	return errors.As(err, new(*actionError)) || errors.Is(err, ErrBrokenTx)
}

// actionError is an action's, told from that of the store.
type actionError struct {
	name string
	err  error
}

func (e *actionError) Error() string { return fmt.Sprintf("action %s failed: %v", e.name, e.err) }
func (e *actionError) Unwrap() error { return e.err }

func (c *Consumer) tryActions(ctx context.Context, f Failure, conclusion Conclusion) error {
	act := func(ctx context.Context, tx any) error {
		for _, name := range c.cfg.Policy.OnExhausted {
			if a := c.cfg.Actions[name]; a != nil {
				if err := c.act(contextWithTx(ctx, tx, c.store), a, tx, conclusion); err != nil {
					return &actionError{name, err}
				}
			}
		}
		return nil
	}
	if c.cfg.Policy.names(ActionDeadLetter) {
		finish := f.Finish
		f.Finish = func(ctx context.Context, tx any) error {
			if err := act(ctx, tx); err != nil || finish == nil {
				return err
			}
			return finish(ctx, tx)
		}
		return c.store.Fail(ctx, f)
	}
	return c.store.Succeed(ctx, Success{
		Run: f.Run, Now: f.Now, InboxUntil: f.Now.Add(c.cfg.Policy.InboxRetention), DeadLetterUntil: f.DeadLetterUntil,
		ClaimUntil: f.Now.Add(time.Duration(len(c.cfg.Policy.OnExhausted))*c.cfg.Policy.Timeout + claimGrace), Effect: act, Finish: f.Finish,
	})
}

// act runs one action within the policy's timeout, and turns a panic into an error.
func (c *Consumer) act(ctx context.Context, a Action, tx any, conclusion Conclusion) (err error) {
	ctx, cancel := context.WithTimeout(handlerContext(ctx, conclusion.Envelope), c.cfg.Policy.Timeout)
	defer cancel()
	defer recovered(&err)
	return a(ctx, tx, conclusion)
}
