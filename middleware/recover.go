package middleware

import (
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// Recover turns a handler's panic into an [*eventing.PanicError]. [Consume]
// does so itself.
func Recover(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) (produced []*message.Message, err error) {
		defer func() {
			if v := recover(); v != nil {
				produced, err = nil, &eventing.PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		return h(m)
	}
}
