package eventing

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// encode writes the envelope as encoding/json would write a wireEnvelope, without escapes for
// HTML, and looks at the payload once. It is part of every append.
func encode(e Envelope) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(len(e.Payload) + headerBytes)
	b := buf.AvailableBuffer()
	b = appendText(append(b, `{"event_id":`...), e.ID)
	b = appendText(append(b, `,"event_type":`...), e.Type)
	b = append(b, `,"occurred_at":"`...)
	b = e.OccurredAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = appendText(append(b, `","correlation_id":`...), e.CorrelationID)
	b = appendText(append(b, `,"tenant_id":`...), e.TenantID)
	b = appendText(append(b, `,"station_id":`...), e.StationID)
	b = strconv.AppendInt(append(b, `,"schema_version":`...), int64(e.SchemaVersion), 10)
	b = appendOptional(b, `,"causation_id":`, e.CausationID)
	b = appendOptional(b, `,"aggregate_type":`, e.AggregateType)
	b = appendOptional(b, `,"aggregate_id":`, e.AggregateID)
	b = appendOptional(b, `,"ordering_key":`, e.OrderingKey)
	b = appendOptional(b, `,"idempotency_key":`, e.IdempotencyKey)
	b = appendOptional(b, `,"traceparent":`, e.TraceParent)
	b = appendOptional(b, `,"tracestate":`, e.TraceState)
	buf.Write(append(b, `,"payload":`...))
	if e.Payload == nil {
		buf.WriteString("null")
	} else if err := json.Compact(&buf, e.Payload); err != nil {
		return nil, &InvalidEventError{EventID: e.ID, Field: "payload", Problem: err.Error()}
	}
	buf.WriteByte('}')
	return buf.Bytes(), checkSize(e, buf.Len())
}

// headerBytes is more than the header usually takes.
const headerBytes = 768

func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendText(append(b, name...), value)
}

// appendText appends s as a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return appendEscaped(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendEscaped(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // strings always encode
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...)
}
