package courier

import (
	"strconv"
	"time"

	"github.com/waybill-go/waybill/internal/strictjson"
)

// AppendJSON appends the event as the queue carries it: what [encoding/json] makes of it, but
// for the payload, which it takes over byte by byte, and without escapes for HTML. The payload
// must be JSON, and the times in UTC and within the years of RFC 3339.
func (e *Event) AppendJSON(dst []byte) []byte {
	text := func(name, value string) {
		dst = append(dst, name...)
		dst = strictjson.AppendString(dst, value)
	}
	instant := func(name string, t time.Time) {
		dst = append(dst, name...)
		dst = append(dst, '"')
		dst = t.AppendFormat(dst, time.RFC3339Nano)
		dst = append(dst, '"')
	}
	text(`{"eventId":`, e.EventID)
	text(`,"eventType":`, e.EventType)
	instant(`,"occurredAt":`, e.OccurredAt)
	text(`,"source":`, e.Source)
	text(`,"idempotencyKey":`, e.IdempotencyKey)
	text(`,"traceId":`, e.TraceID)
	text(`,"signatureMeta":{"algorithm":`, e.SignatureMeta.Algorithm)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, e.SignatureMeta.Timestamp, 10)
	text(`,"signature":`, e.SignatureMeta.Signature)
	dst = append(dst, `},"payload":`...)
	dst = append(dst, e.Payload...)
	instant(`,"receivedAt":`, e.ReceivedAt)
	dst = append(dst, `,"attempt":`...)
	dst = strconv.AppendInt(dst, int64(e.Attempt), 10)
	if e.BodyHash != "" {
		text(`,"bodyHash":`, e.BodyHash)
	}
	return append(dst, '}')
}
