package middleware

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// CircuitBreaker goes inside [Retry], so that it sees each attempt and can stop the next,
// and outside of [Timeout] and [Recover]: waiting must not use up the time of an attempt, and a panic
// has to be an error by then. While nothing succeeds it is open: attempts wait, which
// pauses the lane and burns none of them. It ends waiting with the message's context. A permanent error is
// no failure here, it is the event's; a snooze says nothing either way.
//
// All handlers that the one middleware is added to share its breaker, which is this
// process's own. Without [eventing.BreakerPolicy].Failures there is none. [Consume]
// has its own, by its policy.
func CircuitBreaker(policy eventing.BreakerPolicy) (message.HandlerMiddleware, error) {
	if policy.Failures < 0 || policy.OpenFor < 0 {
		return nil, fmt.Errorf("circuit breaker: Failures is %d and OpenFor %v; neither may be negative", policy.Failures, policy.OpenFor)
	}
	return breaker(eventing.NewBreaker(policy, nil, nil)), nil
}

func breaker(b *eventing.Breaker) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			ctx := m.Context()
			leave, err := b.Enter(ctx)
			if err != nil {
				return nil, err
			}
			defer leave(eventing.ErrNoAttempt) // after a panic; otherwise it has been told
			produced, err := h(m)
			if err != nil && ctx.Err() != nil {
				return produced, err // we are stopping: it says nothing
			}
			leave(err)
			return produced, err
		}
	}
}
