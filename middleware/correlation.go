package middleware

import (
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// Correlation goes outside of whatever reads or logs the context's IDs; nothing else
// depends on where. It puts the message's correlation ID, event ID and trace context into
// its context, so that events appended by the handler carry them, and copies the
// correlation ID to the messages that the handler produces. A message without a correlation ID
// begins one, its own ID. Metadata that no event could carry, which anybody may have
// written, counts as absent. [Consume] and [ConsumeStoreless] do the former themselves.
func Correlation(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		id, cause := carried(m, "correlation_id"), carried(m, "event_id")
		if id == "" {
			id = m.UUID
		}
		if cause == "" {
			cause = m.UUID
		}
		ctx := eventing.WithCausationID(eventing.WithCorrelationID(m.Context(), id), cause)
		if parent := carried(m, "traceparent"); parent != "" {
			ctx = eventing.WithTraceContext(ctx, parent, carried(m, "tracestate"))
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

const maxIDBytes = 255 // of an ID in an envelope

// carried returns metadata if an event can carry it on, else "".
func carried(m *message.Message, key string) string {
	v := m.Metadata.Get(key)
	limit := maxIDBytes
	if key == "tracestate" {
		limit = 1024
	}
	if len(v) > limit || !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
		return ""
	}
	return v
}
