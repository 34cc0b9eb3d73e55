package eventing

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// Header is what an event says about itself, apart from its payload. All of
// its fields are optional when an event is appended: [Outbox.Append] fills in
// what is empty.
type Header struct {
	// ID identifies the event, for ever and everywhere. Default: a new UUIDv7
	// (RFC 9562). At most 255 bytes.
	ID string
	// Type says what happened. Default: the name of the payload's type, see
	// [TypeOf]. At most 255 bytes.
	Type string
	// OccurredAt is when it happened. Default: now. Kept in UTC.
	OccurredAt time.Time
	// CorrelationID is shared by all events that one cause set off. Default:
	// that of the context (see [WithCorrelationID]), else the event's own ID.
	CorrelationID string
	// CausationID is the ID of the event whose handling appended this one.
	// Default: that of the context.
	CausationID string
	// TenantID and StationID say where it happened; both may be empty.
	TenantID  string
	StationID string
	// SchemaVersion is the version of the payload's schema. Default: 1.
	SchemaVersion int
	// AggregateType and AggregateID name the thing that the event is about.
	AggregateType string
	AggregateID   string
	// OrderingKey: ordered consumers handle the events of one key in the order
	// of their appending. Default: aggregate type and ID, where there is an ID.
	// An event without a key is in order with nothing.
	OrderingKey string
	// IdempotencyKey travels with the event for the handlers' use; the library
	// itself tells events apart by their ID only.
	IdempotencyKey string
	// TraceParent and TraceState are the W3C trace context in which the event
	// was appended. Default: that of the context (see [WithTraceContext]).
	TraceParent string
	TraceState  string
	// DueAt delays the dispatch until then. Default: at once. It is a property
	// of the outbox row, not of the envelope.
	DueAt time.Time
	// Lane is [Critical] for an event that consumers are to have before all that is
	// waiting already. Ordered consumers get it in its turn all the same. Default: none.
	// It is a property of the outbox row, too.
	Lane Lane
}

// Lane is a way past other events.
type Lane string

// The lanes of an outbox row. Expedited is a critical one that its unordered consumers
// have got, and its ordered ones have not: only stores and dispatchers need it.
const (
	Critical  Lane = "critical"
	Expedited Lane = "expedited"
)

// Event is an event with its payload: what an application appends, and what a
// handler gets.
type Event[T any] struct {
	Header
	Payload T
}

// Envelope is an event with its payload still encoded, as it is stored and sent.
type Envelope = Event[json.RawMessage]

// New returns an event about the given aggregate, to be appended to an outbox.
// What else a Header can say is set on the result.
func New[T any](aggregateType, aggregateID string, payload T) Event[T] {
	return Event[T]{Header: Header{AggregateType: aggregateType, AggregateID: aggregateID}, Payload: payload}
}

// Appendable is an [Event] of any payload type.
type Appendable interface {
	envelope() (Envelope, error)
}

func (e Event[T]) envelope() (Envelope, error) {
	env := Envelope{Header: e.Header}
	if env.Type == "" {
		env.Type = TypeOf[T]()
	}
	if raw, ok := any(e.Payload).(json.RawMessage); ok {
		env.Payload = raw
		return env, nil
	}
	raw, err := json.Marshal(e.Payload)
	if err != nil {
		return env, &InvalidEventError{EventID: e.ID, Field: "payload", Problem: err.Error()}
	}
	env.Payload = raw
	return env, nil
}

// Typed is implemented by payloads that name their event type themselves.
type Typed interface {
	// EventType must not depend on the payload's content: it is called on a
	// zero value.
	EventType() string
}

var typeNames sync.Map // reflect.Type → string

// TypeOf returns the event type of payloads of type T: what its EventType
// method says if it is [Typed], else the bare name of the Go type, such as
// "OrderPlaced". It is empty for types without a name.
func TypeOf[T any]() string {
	t := reflect.TypeFor[T]()
	if name, ok := typeNames.Load(t); ok {
		return name.(string)
	}
	elem := t
	if elem.Kind() == reflect.Pointer {
		elem = elem.Elem()
	}
	name := elem.Name()
	if elem == reflect.TypeFor[json.RawMessage]() {
		name = ""
	}
	if typed, ok := reflect.New(elem).Interface().(Typed); ok {
		name = typed.EventType()
	}
	typeNames.Store(t, name)
	return name
}

// DecodePayload returns env with its payload decoded into T. The error is
// permanent: the same bytes never decode better.
func DecodePayload[T any](env Envelope) (Event[T], error) {
	e := Event[T]{Header: env.Header}
	if raw, ok := any(&e.Payload).(*json.RawMessage); ok {
		*raw = env.Payload
		return e, nil
	}
	if err := json.Unmarshal(env.Payload, &e.Payload); err != nil {
		return e, permanent(ReasonPayloadMalformed, fmt.Errorf("decode payload of %s into %T: %w", env.Type, e.Payload, err))
	}
	return e, nil
}

// NewID returns a UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds,
// then 74 random bits.
func NewID() string { return newID(time.Now()) }

func newID(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails: crypto/rand ends the process instead
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// OrderKey is the event's ordering key: what OrderingKey says, else aggregate
// type and ID, else empty.
func (h Header) OrderKey() string {
	switch {
	case h.OrderingKey != "":
		return h.OrderingKey
	case h.AggregateID != "":
		return h.AggregateType + "/" + h.AggregateID
	}
	return ""
}
