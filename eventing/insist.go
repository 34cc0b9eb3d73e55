package eventing

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// insist repeats what the store could not take, for as long as ctx lives. It
// pauses this lane only. A try that is under way when ctx ends has its grace.
func (c *Consumer) insist(ctx context.Context, what string, try func(context.Context) error) error {
	work, cancel := graceful(ctx, c.cfg.ShutdownGrace)
	defer cancel()
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		err := try(work)
		var crash *crashError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, errors.As(err, &crash):
			return err
		case errors.Is(err, errBreakerOpen):
			if err := c.breaker.wait(ctx); err != nil {
				return err
			}
			continue
		}
		pause := wait.NextBackOff()
		c.cfg.Logger.Warn("consumer: will try again", "what", what, "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// graceful returns a context that ends a while after its parent.
func graceful(parent context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { stop(); cancel() }
}
