package courier

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-go/waybill/internal/strictjson"
)

// Bounds on a body's fields, in bytes of UTF-8.
const (
	MaxIDLength        = 255 // eventId, idempotencyKey, source, payload.shipmentId, payload.orderId
	MaxEventTypeLength = 128
	MaxStatusLength    = 1024
	// MaxDepth bounds the nesting of a body's objects and arrays.
	MaxDepth = 64
)

// FieldError is one fault of a body.
type FieldError struct {
	// Field names the field by its path, such as "payload.shipmentId"; it is
	// empty where the whole body is at fault.
	Field string `json:"field"`
	// Message says what is wrong and what is expected.
	Message string `json:"message"`
}

// Parse reads the body of an event and holds it to the gateway's rules. It
// reports every fault, and an event only where there is none. Unknown fields
// beside the known ones are ignored; the payload's are kept with it. The
// event's Payload aliases raw, so raw must not be changed afterwards.
//
// TraceID, SignatureMeta, ReceivedAt and Attempt are not the body's to say, and
// left empty.
func Parse(raw []byte) (ev Event, payload Payload, faults []FieldError) {
	if err := strictjson.Check(raw, MaxDepth); err != nil {
		return ev, payload, []FieldError{{Message: "is not the JSON that the gateway takes: " + err.Error()}}
	}
	if !strictjson.IsObject(raw) {
		return ev, payload, []FieldError{{Message: "must be a JSON object"}}
	}
	p := newParser(raw, "", bodyFields)
	ev = Event{
		EventID:        p.required("eventId", MaxIDLength),
		EventType:      p.required("eventType", MaxEventTypeLength),
		OccurredAt:     p.time("occurredAt"),
		Source:         p.required("source", MaxIDLength),
		IdempotencyKey: p.required("idempotencyKey", MaxIDLength),
	}
	ev.Payload = p.field("payload")
	switch {
	case ev.Payload == nil:
		p.fault("payload", "is required")
	case !strictjson.IsObject(ev.Payload):
		p.fault("payload", "must be an object")
	default:
		payload, faults = parsePayload(ev.Payload)
		p.faults = append(p.faults, faults...)
	}
	if len(p.faults) > 0 {
		return Event{}, Payload{}, p.faults
	}
	return ev, payload, nil
}

// DecodePayload reads what the gateway needs from an event's payload, as Parse does. It fails
// for good on a payload that [Parse] would refuse.
func DecodePayload(raw []byte) (Payload, error) {
	if err := strictjson.Check(raw, MaxDepth); err != nil {
		return Payload{}, fmt.Errorf("decode payload: %w", err)
	}
	if !strictjson.IsObject(raw) {
		return Payload{}, errors.New("decode payload: must be an object")
	}
	payload, faults := parsePayload(raw)
	if len(faults) > 0 {
		return Payload{}, fmt.Errorf("decode payload: %s %s", faults[0].Field, faults[0].Message)
	}
	return payload, nil
}

func parsePayload(raw []byte) (Payload, []FieldError) {
	p := newParser(raw, "payload.", payloadFields)
	payload := Payload{
		ShipmentID: p.required("shipmentId", MaxIDLength),
		OrderID:    p.identifier("orderId", MaxIDLength),
		Status:     p.optional("status", MaxStatusLength),
	}
	return payload, p.faults
}

// The fields that the gateway reads.
var (
	bodyFields    = []string{"eventId", "eventType", "occurredAt", "source", "idempotencyKey", "payload"}
	payloadFields = []string{"shipmentId", "orderId", "status"}
)

type parser struct {
	prefix string
	names  []string
	values [][]byte // nil: absent
	faults []FieldError
}

func newParser(raw []byte, prefix string, names []string) parser {
	return parser{prefix: prefix, names: names, values: strictjson.Find(raw, names)}
}

// field returns a field's value, nil if it is absent.
func (p *parser) field(name string) []byte { return p.values[slices.Index(p.names, name)] }

func (p *parser) fault(name, format string, args ...any) {
	p.faults = append(p.faults, FieldError{Field: p.prefix + name, Message: fmt.Sprintf(format, args...)})
}

// required reads an identifier that must be there and not be blank.
func (p *parser) required(name string, most int) string {
	before := len(p.faults)
	raw := p.field(name)
	if raw == nil {
		p.fault(name, "is required")
		return ""
	}
	if strictjson.IsNull(raw) {
		p.fault(name, "must be a string, not null")
		return ""
	}
	value := p.identifier(name, most)
	if len(p.faults) == before && strings.TrimSpace(value) == "" {
		p.fault(name, "must not be empty")
	}
	return value
}

// identifier reads an optional string that will be a key somewhere: in a
// database that refuses NUL, in a log, in a path.
func (p *parser) identifier(name string, most int) string {
	value := p.optional(name, most)
	if strings.ContainsFunc(value, unicode.IsControl) {
		p.fault(name, "must not contain control characters")
		return ""
	}
	return value
}

// optional reads a string; null and absence are the empty one.
func (p *parser) optional(name string, most int) string {
	raw := p.field(name)
	if raw == nil || strictjson.IsNull(raw) {
		return ""
	}
	value, ok := strictjson.String(raw)
	if !ok {
		p.fault(name, "must be a string, not %s", typeName(raw))
		return ""
	}
	if len(value) > most {
		p.fault(name, "must be at most %d bytes long, not %d", most, len(value))
		return ""
	}
	return value
}

// rfc3339 is the grammar of RFC 3339, section 5.6. time.Parse is laxer: it takes
// a comma before the fraction and hours of one digit (https://go.dev/issue/54580).
var rfc3339 = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// time reads a required RFC 3339 timestamp. The year is bounded in UTC, so that
// every store and encoder can hold it.
func (p *parser) time(name string) time.Time {
	before := len(p.faults)
	value := p.required(name, 64)
	if len(p.faults) > before {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, strings.ToUpper(value))
	t = t.UTC()
	usual := t.AppendFormat(make([]byte, 0, 64), time.RFC3339Nano)
	if err != nil || string(usual) != value && !rfc3339.MatchString(value) {
		p.fault(name, "must be an RFC 3339 timestamp such as 2026-02-26T12:00:00Z")
		return time.Time{}
	}
	if t.Year() < 1970 || t.Year() > 9999 {
		p.fault(name, "must lie between the years 1970 and 9999 in UTC")
		return time.Time{}
	}
	return t
}

func typeName(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	default:
		return "a number"
	}
}
