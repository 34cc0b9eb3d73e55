package courier

import (
	"cmp"
	"encoding/json"
	"time"
)

// Version orders events: by event time, and those of one time by event id, then
// by idempotency key, since two couriers may use one event id. The zero value is before all.
type Version struct {
	At  time.Time // microseconds
	Tie string
}

// VersionOf returns the version of an event.
func VersionOf(e Event) Version {
	// Stores keep microseconds: compare what will be stored. A control character
	// is in no event id, and sorts before all that is.
	return Version{e.OccurredAt.UTC().Truncate(time.Microsecond), e.EventID + "\n" + e.IdempotencyKey}
}

// After reports whether v is newer than w.
func (v Version) After(w Version) bool {
	return cmp.Or(v.At.Compare(w.At), cmp.Compare(v.Tie, w.Tie)) > 0
}

// Projection is a shipment, and which event each of its parts is from.
type Projection struct {
	Shipment
	// Last is of the last event, State of the one that set the state, Order of the one that set the
	// order.
	Last, State, Order Version
	// Previous is the state before the present one, in the order of arrival.
	Previous string
}

// Apply changes what the event is newer for, and reports whether anything changed.
func (p *Projection) Apply(e Event, payload Payload) (changed bool) {
	v := VersionOf(e)
	if v.After(p.Last) {
		p.Last, changed = v, true
		p.LastEventID, p.LastEventType, p.LastEventAt, p.Metadata = e.EventID, e.EventType, v.At, Metadata(e)
	}
	if payload.Status != "" && v.After(p.State) {
		p.State, p.Previous, p.CurrentState, changed = v, p.CurrentState, payload.Status, true
	}
	if payload.OrderID != "" && v.After(p.Order) {
		p.Order, p.OrderID, changed = v, payload.OrderID, true
	}
	return changed
}

// Process applies an event and returns what it did.
func (p *Projection) Process(a *Arrival) Effect {
	before := p.CurrentState
	if !p.Apply(a.Event, a.Payload) {
		return Effect{Outcome: OutcomeLate}
	}
	return Effect{Outcome: OutcomeApplied, Previous: before, Current: p.CurrentState, OrderID: p.OrderID}
}

// Metadata is what the payload says beside the fields that the projection has.
func Metadata(e Event) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(e.Payload, &fields) != nil {
		return json.RawMessage("{}")
	}
	for _, known := range []string{"shipmentId", "orderId", "status"} {
		delete(fields, known)
	}
	b, err := json.Marshal(fields)
	if err != nil || fields == nil {
		return json.RawMessage("{}")
	}
	return b
}
