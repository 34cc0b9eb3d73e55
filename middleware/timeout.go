package middleware

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Timeout ends the message's context after d, which must be positive. A handler
// that returns nil although its time ran out has failed too. [Consume] does so
// by its policy.
func Timeout(d time.Duration) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			parent := m.Context()
			ctx, cancel := context.WithTimeout(parent, d)
			defer cancel()
			m.SetContext(ctx)
			defer m.SetContext(parent)
			produced, err := h(m)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, err
			}
			return produced, nil
		}
	}
}
