package courier

import (
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Arrival is an event as the worker has it in hand.
type Arrival struct {
	// EnvelopeID is the event's name in the gateway: see [EventID].
	EnvelopeID string
	// Attempt is the number of this run, from 1.
	Attempt int
	Event   Event
	Payload Payload
}

// DirectArrival returns the event in an envelope, if it is [Event.Direct] and could be processed. The attempt is not set.
func DirectArrival(envelope eventing.Envelope) (a Arrival, ok bool) {
	a.EnvelopeID = envelope.ID
	if json.Unmarshal(envelope.Payload, &a.Event) != nil || !a.Event.Direct(a.EnvelopeID) {
		return Arrival{}, false
	}
	var err error
	a.Payload, err = DecodePayload(a.Event.Payload)
	return a, err == nil
}

// Standing is what the ledger says of an event that came without having been entered: see [Event.Direct].
type Standing int

// The standings.
const (
	StandingFirst    Standing = iota // it is the one that its idempotency key stands for
	StandingRepeat                   // another with the same body is
	StandingConflict                 // another with another body is
)

// StandingOf returns that of an event whose idempotency key stands for what came in an envelope, with a body.
func StandingOf(a *Arrival, envelopeID, bodyHash string) Standing {
	switch {
	case a.EnvelopeID == envelopeID:
		return StandingFirst
	case a.Event.BodyHash == bodyHash:
		return StandingRepeat
	}
	return StandingConflict
}

// Effect is what an event did to its shipment.
type Effect struct {
	// Outcome is [OutcomeNone] if the ledger had the event as processed before: then
	// nothing was done, and the rest is empty.
	Outcome Outcome
	// Previous and Current are the shipment's state before and after.
	Previous, Current string
	// OrderID is the shipment's, after it.
	OrderID string
}

// StateChanged reports whether the shipment has another state than before.
func (e Effect) StateChanged() bool { return e.Previous != e.Current }

// StateChange tells others of a shipment that has another state than before: the payload
// of the queue shipment-events.
type StateChange struct {
	ShipmentID string `json:"shipmentId"`
	// OrderID is empty while it is not known.
	OrderID string `json:"orderId"`
	// PreviousState is empty if there was none.
	PreviousState string `json:"previousState"`
	CurrentState  string `json:"currentState"`
	// EventID, EventType, OccurredAt and Source are those of the courier's event that changed it.
	EventID    string    `json:"eventId"`
	EventType  string    `json:"eventType"`
	OccurredAt time.Time `json:"occurredAt"`
	Source     string    `json:"source"`
	// ChangedAt is when the gateway changed it, by its own clock, in UTC.
	ChangedAt time.Time `json:"changedAt"`
}
