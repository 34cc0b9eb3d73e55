package eventing

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/internal/strictjson"
)

// encode writes the envelope as encoding/json would write a wireEnvelope, without escapes for
// HTML. It is part of every append.
func encode(e Envelope) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(len(e.Payload) + headerBytes)
	b := buf.AvailableBuffer()
	b = strictjson.AppendString(append(b, `{"event_id":`...), e.ID)
	b = strictjson.AppendString(append(b, `,"event_type":`...), e.Type)
	b = append(b, `,"occurred_at":"`...)
	b = e.OccurredAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = strictjson.AppendString(append(b, `","correlation_id":`...), e.CorrelationID)
	b = strictjson.AppendString(append(b, `,"tenant_id":`...), e.TenantID)
	b = strictjson.AppendString(append(b, `,"station_id":`...), e.StationID)
	b = strconv.AppendInt(append(b, `,"schema_version":`...), int64(e.SchemaVersion), 10)
	b = appendOptional(b, `,"causation_id":`, e.CausationID)
	b = appendOptional(b, `,"aggregate_type":`, e.AggregateType)
	b = appendOptional(b, `,"aggregate_id":`, e.AggregateID)
	b = appendOptional(b, `,"ordering_key":`, e.OrderingKey)
	b = appendOptional(b, `,"idempotency_key":`, e.IdempotencyKey)
	b = appendOptional(b, `,"traceparent":`, e.TraceParent)
	b = appendOptional(b, `,"tracestate":`, e.TraceState)
	buf.Write(append(b, `,"payload":`...))
	switch {
	case e.Payload == nil:
		buf.WriteString("null")
	case strictjson.IsCompact(e.Payload): // most are, and this is faster
		buf.Write(e.Payload)
	default:
		if err := json.Compact(&buf, e.Payload); err != nil {
			return nil, &InvalidEventError{EventID: e.ID, Field: "payload", Problem: err.Error()}
		}
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
	return strictjson.AppendString(append(b, name...), value)
}
