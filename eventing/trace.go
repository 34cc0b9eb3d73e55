package eventing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Tracer makes the spans of an event's life, which are one trace: append, dispatch,
// publish, each attempt of a consumer. The trace context travels in the envelope, thus through the
// outbox row, and from the publish in the message's metadata, as W3C headers
// (https://www.w3.org/TR/trace-context/). Package middleware has one for OpenTelemetry.
// Its methods are called from many goroutines.
type Tracer interface {
	// Append begins the span of an Append of so many events. The context that it returns
	// has the span's trace context, see [WithTraceContext], which the events get.
	Append(ctx context.Context, events int) (context.Context, EndSpan)
	// Dispatch begins the spans of messages on their way to the broker: of each the dispatch,
	// as a child of the trace context in its metadata, which lasts since the append, and
	// in it the publish, whose trace context is put into the metadata.
	Dispatch(ctx context.Context, messages []TracedMessage) EndDispatch
	// Attempt begins the span of one attempt. The context that it returns has the span's
	// trace context, see [WithTraceContext], which is recorded if the attempt fails.
	Attempt(ctx context.Context, a TracedAttempt) (context.Context, EndSpan)
}

// EndSpan ends a span; err says how what it was for ended. It wraps [ErrNoAttempt] if that
// does not count as an attempt: nothing was concluded, and the same one will be made again.
type EndSpan func(err error)

// EndDispatch ends the spans of a Dispatch. unpublished are those of its messages that the
// broker does not have, and why: they stay in the outbox, or become dead letters.
type EndDispatch func(unpublished map[*message.Message]error)

// TracedMessage is a message that is about to be published.
type TracedMessage struct {
	Topic      string
	Message    *message.Message
	AppendedAt time.Time
}

// TracedAttempt is an attempt at an event, or at several in a batch.
type TracedAttempt struct {
	Consumer string
	Envelope Envelope
	Attempt  int // from 1
	// TraceParent and TraceState are those of the message that brought the event; of an
	// attempt from the store, those of the envelope.
	TraceParent, TraceState string
	// Failed are the traceparents of the attempts that failed before, and were traced, the oldest first.
	Failed []string
}

// trace begins the spans of what a batch sends.
func (b *batch) trace(ctx context.Context) EndDispatch {
	tracer := b.w.d.cfg.Tracer
	if tracer == nil {
		return func(map[*message.Message]error) {}
	}
	messages := make([]TracedMessage, 0, len(b.sendings))
	for _, s := range b.sendings {
		for _, o := range s.msgs {
			messages = append(messages, TracedMessage{Topic: o.topic, Message: o.msg, AppendedAt: s.row.CreatedAt})
		}
	}
	return tracer.Dispatch(ctx, messages)
}

// unpublished returns which messages are not out after send.
func (b *batch) unpublished(ctx context.Context, broken error) map[*message.Message]error {
	refused := map[*message.Message]error{}
	for _, s := range b.suspects {
		refused[s.msg] = s.err
	}
	messages := map[*message.Message]error{}
	for _, s := range b.sendings {
		for _, o := range s.msgs {
			if s.open > 0 && !slices.Contains(s.taken, o.topic) {
				messages[o.msg] = cmp.Or(refused[o.msg], broken, ctx.Err(), errHeldBack)
			}
		}
	}
	return messages
}

var errHeldBack = errors.New("held back: it will be published in a later pass")
