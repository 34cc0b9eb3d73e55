package eventing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Run redelivers from the store, until ctx ends: retries that are due and, for
// an ordered consumer, what was parked, one of each key at a time. Then it
// waits for the handlers that are running: those of its redeliveries and, for an
// ordered consumer, those of [Consumer.Receive], which have their grace. At its end
// an ordered consumer gives its leases back, and takes none until Run runs again.
// Errors of the store are logged and tried again; Run returns nil.
func (c *Consumer) Run(ctx context.Context) error {
	var work sync.WaitGroup
	release := c.keepLeases(ctx)
	defer release(&work)
	pause := c.cfg.PollInterval
	for ctx.Err() == nil {
		n, err := c.redeliver(ctx, &work)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			pause = min(2*pause, 5*time.Second)
			c.cfg.Logger.Warn("consumer: looking for deliveries that are due failed; will try again", "error", err, "in", pause)
		default:
			pause = c.cfg.PollInterval
		}
		if n > 0 && err == nil {
			continue
		}
		c.await(ctx, pause)
	}
	return nil
}

// keepLeases renews the leases until release has waited for the work under them, and then
// gives them back.
func (c *Consumer) keepLeases(ctx context.Context) (release func(redeliveries *sync.WaitGroup)) {
	if c.leases == nil {
		return (*sync.WaitGroup).Wait
	}
	c.leases.begin()
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() {
		c.leases.keep(ctx, func(err error) { c.cfg.Logger.Warn("consumer: renewing the leases failed", "error", err) })
	})
	return func(redeliveries *sync.WaitGroup) {
		grace, cancel := context.WithTimeout(ctx, c.cfg.ShutdownGrace)
		defer cancel()
		c.leases.end(grace)
		redeliveries.Wait()
		stop()
		keeping.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		if err := c.leases.release(ctx); err != nil {
			c.cfg.Logger.Warn("consumer: giving the leases back failed; they expire", "error", err)
		}
	}
}

// await waits for the next look: the pause, the next retry that was recorded
// here, or a nudge.
func (c *Consumer) await(ctx context.Context, pause time.Duration) {
	c.mu.Lock()
	if until := c.due.Sub(c.cfg.Now()); !c.due.IsZero() && until < pause && c.breaker.ready(1) > 0 {
		pause = max(until, time.Millisecond)
	}
	c.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-c.nudged:
	}
}

// RedeliverOnce runs what is due now, waits for it, and returns how many
// deliveries that were. For tests, and for those who have a scheduler of their
// own.
func (c *Consumer) RedeliverOnce(ctx context.Context) (int, error) {
	var work sync.WaitGroup
	n, err := c.redeliver(ctx, &work)
	work.Wait()
	return n, err
}

// redeliver starts what is due, as far as there are free slots.
func (c *Consumer) redeliver(ctx context.Context, work *sync.WaitGroup) (int, error) {
	c.mu.Lock()
	free := cap(c.slots) - len(c.running)
	c.mu.Unlock()
	if free = c.breaker.ready(free); free == 0 {
		return 0, nil // whoever ends nudges; the breaker opens to the next look
	}
	r, err := c.dueRequest(ctx, free)
	if err != nil {
		return 0, err
	}
	runs, err := c.store.Due(ctx, r)
	if err != nil {
		return 0, fmt.Errorf("look for deliveries that are due: %w", err)
	}
	if err := Fault(ctx, FaultClaimedDue); err != nil {
		return 0, err
	}
	for _, run := range runs {
		c.start(ctx, run, work)
	}
	return len(runs), nil
}

func (c *Consumer) dueRequest(ctx context.Context, limit int) (DueRequest, error) {
	now := c.cfg.Now()
	r := DueRequest{
		Consumer: c.cfg.Name, Ordered: c.cfg.Policy.Ordered, Now: now, Limit: limit,
		ClaimToken: NewID(), ClaimUntil: now.Add(c.cfg.Policy.Timeout + claimGrace),
	}
	c.mu.Lock()
	if !c.due.After(now) {
		c.due = time.Time{}
	}
	for id := range c.running {
		r.Exclude = append(r.Exclude, id)
	}
	c.mu.Unlock()
	if c.leases != nil {
		if err := c.leases.refresh(ctx); err != nil {
			return r, err
		}
		r.Leases = c.leases.live()
	}
	return r, nil
}

// claimGrace is the time that a claim outlives its handler's timeout, for the
// conclusion.
const claimGrace = 5 * time.Second

// start runs a redelivery in a slot of its own.
func (c *Consumer) start(ctx context.Context, run Run, work *sync.WaitGroup) {
	c.mu.Lock()
	c.running[run.EventID] = struct{}{}
	c.mu.Unlock()
	work.Go(func() {
		defer func() {
			c.mu.Lock()
			delete(c.running, run.EventID)
			c.mu.Unlock()
			c.nudge()
		}()
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return // an unordered one's claim runs out
		}
		defer func() { <-c.slots }()
		if run.Lease != nil {
			c.leases.use(run.Lease.Partition, 1)
			defer c.leases.use(run.Lease.Partition, -1)
		}
		err := c.rerun(ctx, run)
		if errors.Is(err, errBreakerOpen) {
			return // since a moment; an unordered one's claim runs out
		}
		if err != nil && ctx.Err() == nil {
			// Nothing was concluded: the next look finds the delivery as it is.
			c.cfg.Logger.Warn("consumer: a redelivery was not concluded; it will be looked at again", "event_id", run.EventID, "error", err)
		}
	})
}

// rerun runs a delivery that the store has.
func (c *Consumer) rerun(ctx context.Context, run Run) error {
	e, err := decodeEnvelope(unwrapUndecodable(run.EventID, run.Payload), Header{ID: run.EventID, Type: run.EventType})
	if err != nil {
		return c.fail(WithAttempt(ctx, run.attempt()), run, e, permanent(ReasonEnvelopeMalformed, err), 0)
	}
	if isSynthetic(run.EventID) {
		e.ID = run.EventID
	}
	ctx = tracedAs(ctx, nil, e)
	var elsewhere error
	err = c.insist(ctx, "redeliver "+e.ID, func(ctx context.Context) error {
		err := c.attempt(ctx, run, e)
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrLeaseLost) || errors.Is(err, errBreakerOpen) {
			elsewhere = err
			return nil
		}
		return err
	})
	if errors.Is(elsewhere, ErrConflict) {
		return c.store.Forget(ctx, run, c.cfg.Now())
	}
	return errors.Join(err, elsewhere)
}
