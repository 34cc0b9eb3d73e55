// Package life tells what became of an event, from the database alone: from intake to
// shipment, with each attempt at it and each act of an operator.
package life

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// Event is an event with all that is known of it, seen at one moment.
type Event struct {
	EnvelopeID string `json:"event_id"`
	// The following are of the ledger; empty if it does not know the event, which then did not come
	// through the intake, or has expired there.
	CourierEventID string         `json:"courier_event_id,omitempty"`
	Source         string         `json:"source,omitempty"`
	IdempotencyKey string         `json:"idempotency_key,omitempty"`
	ShipmentID     string         `json:"shipment_id,omitempty"`
	TraceID        string         `json:"trace_id,omitempty"`
	OccurredAt     time.Time      `json:"occurred_at,omitzero"`
	Status         courier.Status `json:"ledger_status,omitempty"`
	Attempts       int            `json:"attempt_count"`
	LastErrorCode  string         `json:"last_error_code,omitempty"`
	LastError      string         `json:"last_error_message,omitempty"`

	EventType string            `json:"event_type"`
	Standing  eventing.Standing `json:"standing"`
	// DueAt is when it goes on by itself: the next attempt, or a delayed or scheduled sending. Zero: not by time.
	DueAt    time.Time `json:"due_at,omitzero"`
	Steps    []Step    `json:"steps"`              // in the order of time
	Shipment *Shipment `json:"shipment,omitempty"` // as it is now
	// Payload is what the courier has sent, or the envelope's, if something still has it; read only if asked for.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Shipment is what the projection has, without what else couriers say of it.
type Shipment struct {
	State       string    `json:"current_state"`
	OrderID     string    `json:"order_id"`
	LastEventID string    `json:"last_event_id"`
	LastEventAt time.Time `json:"last_event_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// What a step is. Acts on dead letters are called as in [eventing.Act].
const (
	Accepted  = "accepted"  // by the intake
	Appended  = "appended"  // to the outbox
	Sent      = "sent"      // the broker has it; in process: all of it is done
	Aside     = "aside"     // a row that was settled, but sent nothing
	Failed    = "failed"    // left the outbox, but the event is a dead letter
	Attempt   = "attempt"   // that failed
	Died      = "died"      // for the first time; code, message and attempt are of the last time
	Processed = "processed" // the inbox has it
	Applied   = "applied"   // to its shipment
	Late      = "late"      // came after a newer event: recorded, not applied
)

// rank orders steps of one moment; an act comes before what it causes.
var rank = map[string]int{Accepted: 1, Appended: 2, Attempt: 3, Died: 4, Applied: 5, Late: 5, Processed: 6, Sent: 7, Aside: 7, Failed: 7}

// Step is something that happened to an event. Fields that do not belong to it are empty.
type Step struct {
	At       time.Time `json:"at"`
	What     string    `json:"what"`
	Consumer string    `json:"consumer_name,omitempty"` // of an outbox row: whom alone it is for
	BodyHash string    `json:"body_hash,omitempty"`     // the first digits
	Row      int64     `json:"outbox_seq,omitempty"`
	Replay   int       `json:"replay,omitempty"` // its generation
	Attempt  int       `json:"attempt,omitempty"`
	Code     string    `json:"error_code,omitempty"`
	Message  string    `json:"message,omitempty"`
	By       string    `json:"by,omitempty"`
	Plan     string    `json:"plan,omitempty"`
	DueAt    time.Time `json:"due_at,omitzero"`
}

// add adds a step, at the precision that databases keep.
func (e *Event) add(s Step) {
	s.At = s.At.Truncate(time.Microsecond)
	e.Steps = append(e.Steps, s)
}

// inOrder sorts the steps. An attempt may be in a delivery and in a dead letter.
func (e *Event) inOrder() {
	slices.SortStableFunc(e.Steps, func(a, b Step) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(rank[a.What], rank[b.What]), cmp.Compare(a.Row, b.Row))
	})
	e.Steps = slices.CompactFunc(e.Steps, func(a, b Step) bool { return a.What == Attempt && a == b })
}
