package courier

import (
	"encoding/json"
	"time"
)

// Event is a courier's event as the gateway accepts it and as its queue carries
// it.
type Event struct {
	// EventID is the courier's own name for the event. Two couriers may use
	// the same one: see [EventID] for the name that the gateway uses.
	EventID   string `json:"eventId"`
	EventType string `json:"eventType"`
	// OccurredAt is when the event happened, by the courier's clock, in UTC.
	OccurredAt     time.Time `json:"occurredAt"`
	Source         string    `json:"source"`
	IdempotencyKey string    `json:"idempotencyKey"`
	// TraceID is that of the request that first brought the event.
	TraceID       string        `json:"traceId"`
	SignatureMeta SignatureMeta `json:"signatureMeta"`
	// Payload is the courier's own bytes, an object; see [DecodePayload].
	Payload json.RawMessage `json:"payload"`
	// ReceivedAt is when the gateway took the event in, by its own clock, in
	// UTC.
	ReceivedAt time.Time `json:"receivedAt"`
	// Attempt counts the worker's attempts, from 1.
	Attempt int `json:"attempt"`
	// BodyHash is the [CanonicalHash] of the body, of an event that the intake has published without
	// entering it into the ledger; else empty. See [Event.Direct].
	BodyHash string `json:"bodyHash,omitempty"`
}

// SignatureMeta keeps what an event was signed with, for whoever investigates
// it later. The secret is not part of it.
type SignatureMeta struct {
	// Algorithm is "hmac-sha256".
	Algorithm string `json:"algorithm"`
	// Timestamp is when it was signed, by the courier's clock, in Unix seconds.
	Timestamp int64 `json:"timestamp"`
	// Signature is the header's value: hexadecimal or base64.
	Signature string `json:"signature"`
}

// Payload is what the gateway itself reads from an event's payload. A courier
// may send anything beside it.
type Payload struct {
	// ShipmentID is never empty.
	ShipmentID string
	// OrderID and Status are empty where they are absent or null. An event
	// without a status leaves the shipment's state as it is.
	OrderID string
	Status  string
}

// Shipment is the gateway's view of a shipment: the latest of its events by
// event time.
type Shipment struct {
	ShipmentID    string          `json:"shipmentId"`
	OrderID       string          `json:"orderId"`
	CurrentState  string          `json:"currentState"`
	LastEventID   string          `json:"lastEventId"`
	LastEventType string          `json:"lastEventType"`
	LastEventAt   time.Time       `json:"lastEventAt"`
	Metadata      json.RawMessage `json:"metadata"`
	CreatedAt     time.Time       `json:"createdAt"`
	UpdatedAt     time.Time       `json:"updatedAt"`
}

// Status says how far the worker is with an event.
type Status string

// The ledger's states. An event goes from received through processing to
// processed, failed (to be tried again) or dead_lettered.
const (
	StatusReceived     Status = "received"
	StatusProcessing   Status = "processing"
	StatusProcessed    Status = "processed"
	StatusFailed       Status = "failed"
	StatusDeadLettered Status = "dead_lettered"
)

// Outcome says what a processed event did to its shipment.
type Outcome string

// An event is applied if it is newer than what the shipment shows, by event
// time; else it is recorded as late and changes nothing.
const (
	OutcomeNone    Outcome = ""
	OutcomeApplied Outcome = "applied"
	OutcomeLate    Outcome = "late"
)

// EventStatus is what the gateway tells about one event.
type EventStatus struct {
	EventID        string    `json:"eventId"`
	Source         string    `json:"source"`
	IdempotencyKey string    `json:"idempotencyKey"`
	EventType      string    `json:"eventType"`
	OccurredAt     time.Time `json:"occurredAt"`
	ReceivedAt     time.Time `json:"receivedAt"`
	TraceID        string    `json:"traceId"`
	ShipmentID     string    `json:"shipmentId"`
	Status         Status    `json:"status"`
	Outcome        Outcome   `json:"outcome"`
	// AttemptCount is the number of the last attempt; 0 before the first.
	AttemptCount     int         `json:"attemptCount"`
	LastErrorCode    *string     `json:"lastErrorCode"`
	LastErrorMessage *string     `json:"lastErrorMessage"`
	FirstSeenAt      time.Time   `json:"firstSeenAt"`
	UpdatedAt        time.Time   `json:"updatedAt"`
	DeadLetter       *DeadLetter `json:"deadLetter,omitempty"`
}

// DeadLetter says why the worker gave an event up, and what has been done about
// it since.
type DeadLetter struct {
	ReasonCode    string `json:"reasonCode"`
	ReasonMessage string `json:"reasonMessage"`
	// ReviewStatus is pending, reviewed, replayed or closed.
	ReviewStatus string `json:"reviewStatus" doc:"pending, reviewed, replayed or closed"`
	// Resolution is resolved (processed after all), discarded (given up), or empty
	// while it is not closed.
	Resolution     string    `json:"resolution" doc:"How it was closed: resolved (processed after all) or discarded (given up). Empty while it is not closed."`
	AttemptHistory []Attempt `json:"attemptHistory"`
}

// Attempt is one run of the worker on an event.
type Attempt struct {
	// Attempt is its number, from 1.
	Attempt int `json:"attempt"`
	// Outcome is "failed" for every attempt of a history.
	Outcome      string    `json:"outcome"`
	ErrorCode    string    `json:"errorCode"`
	ErrorMessage string    `json:"errorMessage,omitempty"`
	At           time.Time `json:"at,omitzero"`
}
