package middleware

import (
	"bytes"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// Recover goes innermost, directly around the handler: what is outside of it then sees an
// error like others, which counts as an attempt, tells a breaker, and is a dead
// letter in the end. Further out, a panic skips all of that. It turns a handler's panic into an [*eventing.PanicError], with the
// stack (from the panic on, at most 4 KB); what the handler was about to produce is dropped. A panic of a goroutine that the handler
// started ends the process: nobody can recover that. [Consume] does so itself.
func Recover(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) (produced []*message.Message, err error) {
		defer func() {
			if v := recover(); v != nil {
				produced, err = nil, &eventing.PanicError{Value: v, Stack: panicStack(debug.Stack())}
			}
		}()
		return h(m)
	}
}

const maxStack = 4096

// panicStack is what a record of a panic needs of a stack: the innermost frames from the one that has
// panicked on, without those of whoever recovers it.
func panicStack(stack []byte) []byte {
	if at := bytes.Index(stack, []byte("\npanic(")); at >= 0 {
		stack = stack[at+1:]
	}
	if len(stack) > maxStack {
		stack = append(bytes.Clone(stack[:bytes.LastIndexByte(stack[:maxStack], '\n')+1]), "...\n"...)
	}
	return stack
}
