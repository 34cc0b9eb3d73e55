package routing

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/condition"
)

// The reason codes of dead letters that a routing table has made.
const (
	// ReasonNotRouted: the consumer's own table does not send events of this type to it; whoever dispatched
	// the event had another table.
	ReasonNotRouted eventing.ReasonCode = "NOT_ROUTED"
	// ReasonRuleFailed: a condition could not be evaluated on the event, such as an index out of range.
	ReasonRuleFailed eventing.ReasonCode = "ROUTING_RULE_FAILED"
	// ReasonSchemaViolation: the payload does not satisfy the schema of its event type and version.
	ReasonSchemaViolation eventing.ReasonCode = "SCHEMA_VIOLATION"
	// ReasonSchemaUnknown: the file has no schema of that version.
	ReasonSchemaUnknown eventing.ReasonCode = "SCHEMA_UNKNOWN"
	// ReasonUpcastFailed: the payload could not be brought to the latest version.
	ReasonUpcastFailed eventing.ReasonCode = "UPCAST_FAILED"
)

// Upcaster brings payloads of one version of an event type to the version that the file declares next.
type Upcaster struct {
	EventType string
	// From is the version of the payloads that it takes.
	From int
	// Upcast must be pure: the same payload, the same result. Its error makes the event a dead letter.
	Upcast func(payload json.RawMessage) (json.RawMessage, error)
}

// upcasters are by type and version.
type upcasters map[string]map[int]func(json.RawMessage) (json.RawMessage, error)

// event is one whose payload has been checked against its schema, brought to the latest version, and decoded as
// conditions see it. One evaluation uses it at a time.
type event struct {
	eventing.Envelope                   // with the payload and the schema version that it was brought to
	sent              eventing.Envelope // as it came

	typ    *eventType
	values condition.Values // Vars[0] is the payload
	states []lookupState    // of the evaluation that is under way
}

// versionKey is the version as the schemas of a type are found by: all payloads of a type without schemas are alike.
func versionKey(typ *eventType, version int) int {
	if len(typ.versions) == 0 {
		return 0
	}
	return version
}

// decode checks and decodes the payload of an event as its own version has it.
func (t *eventType) decode(e eventing.Envelope) (any, error) {
	schema, known := t.schemas[e.SchemaVersion]
	var payload any
	var err error
	switch {
	case len(t.versions) == 0:
		payload, err = condition.DecodeAny(e.Payload)
	case !known:
		return nil, eventing.PermanentWithReason(ReasonSchemaUnknown,
			fmt.Errorf("the routing file has no schema of %s version %d: add it, and upcasters for what is older", e.Type, e.SchemaVersion))
	default:
		payload, err = schema.Decode(e.Payload)
	}
	if err != nil {
		return nil, eventing.PermanentWithReason(ReasonSchemaViolation, fmt.Errorf("the payload of %s version %d: %w", e.Type, e.SchemaVersion, err))
	}
	return payload, nil
}

// open decodes an event and brings it to the latest version.
func (t *Table) open(e eventing.Envelope, ups upcasters) (*event, error) {
	typ, known := t.types[e.Type]
	if !known {
		return nil, notRouted(fmt.Errorf("the routing file %s (version %s) declares no event type %s", t.file.Name, t.Version(), e.Type))
	}
	sent := e
	payload, err := typ.decode(e)
	if err != nil {
		return nil, err
	}
	for _, next := range typ.versions {
		if next <= e.SchemaVersion {
			continue
		}
		if e.Payload, err = upcast(ups[e.Type][e.SchemaVersion], e.Payload); err == nil {
			e.SchemaVersion = next
			payload, err = typ.decode(e)
		}
		if err != nil {
			return nil, eventing.PermanentWithReason(ReasonUpcastFailed, fmt.Errorf("bring %s to version %d: %w", e.Type, next, err))
		}
	}
	ev := &event{Envelope: e, sent: sent, typ: typ, values: condition.Values{Vars: make([]any, 1+len(t.lookups))}, states: make([]lookupState, len(t.lookups))}
	ev.values.Event = &ev.Header
	ev.values.Vars[0] = payload
	return ev, ev.judge()
}

// judge finds the event's severity.
func (e *event) judge() error {
	e.values.Severity = SeverityNormal
	program := e.typ.critical[versionKey(e.typ, e.SchemaVersion)]
	if program == nil {
		return nil
	}
	critical, err := program.Bool(&e.values)
	if err != nil {
		return ruleFailed(e.typ.src.Critical.Pos.Line, err)
	}
	if critical {
		e.values.Severity = SeverityCritical
	}
	return nil
}

// The severities that conditions find in event.severity.
const (
	SeverityNormal   = "NORMAL"
	SeverityCritical = "CRITICAL"
)

func notRouted(err error) error { return eventing.PermanentWithReason(ReasonNotRouted, err) }

func ruleFailed(line int, err error) error {
	return eventing.PermanentWithReason(ReasonRuleFailed, fmt.Errorf("the condition in line %d of the routing file: %w", line, err))
}

var errNoUpcaster = errors.New("there is no upcaster")

func upcast(up func(json.RawMessage) (json.RawMessage, error), payload json.RawMessage) (_ json.RawMessage, err error) {
	if up == nil {
		return nil, errNoUpcaster
	}
	return up(payload)
}
