package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Timeout goes inside [Retry] and [CircuitBreaker]: each attempt has its own time, and
// waiting is not part of it. It ends the message's context after d, which must be positive. It cannot stop a
// handler that does not heed its context; but one that returns nil although its time ran out has
// failed too, and an error that it returns then is one of the time as well: errors.Is finds
// context.DeadlineExceeded. Afterwards the message has the context that it had. [Consume]
// does all that by its policy.
func Timeout(d time.Duration) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			parent := m.Context()
			ctx, cancel := context.WithTimeout(parent, d)
			defer cancel()
			m.SetContext(ctx)
			defer m.SetContext(parent)
			produced, err := h(m)
			// If it was the parent that ended, what has succeeded has succeeded.
			if parent.Err() == nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
				err = overran(ctx.Err(), d, err)
			}
			if err != nil {
				return nil, err
			}
			return produced, nil
		}
	}
}

// overran is the error of a handler whose time ran out and that returned another, or
// none. A driver may say that a statement was cancelled, and not why.
func overran(deadline error, d time.Duration, err error) error {
	if err == nil {
		return fmt.Errorf("the handler ran for longer than %v: %w", d, deadline)
	}
	return fmt.Errorf("%w (%w after %v)", err, deadline, d)
}
