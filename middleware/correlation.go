package middleware

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// Correlation puts the message's correlation ID, event ID and trace context into
// its context, so that events appended by the handler carry them, and copies the
// correlation ID to the messages that the handler produces. [Consume] does the
// former itself.
func Correlation(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		id := m.Metadata.Get("correlation_id")
		if id == "" {
			id = m.UUID
		}
		cause := m.Metadata.Get("event_id")
		if cause == "" {
			cause = m.UUID
		}
		ctx := eventing.WithCausationID(eventing.WithCorrelationID(m.Context(), id), cause)
		if parent := m.Metadata.Get("traceparent"); parent != "" {
			ctx = eventing.WithTraceContext(ctx, parent, m.Metadata.Get("tracestate"))
		}
		m.SetContext(ctx)
		produced, err := h(m)
		for _, p := range produced {
			if p.Metadata.Get("correlation_id") == "" {
				p.Metadata.Set("correlation_id", id)
			}
		}
		return produced, err
	}
}
