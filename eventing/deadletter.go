package eventing

import (
	"cmp"
	"context"
	"time"
)

// Stage says where an event died.
type Stage string

// The stages.
const (
	StageDispatch Stage = "dispatch" // it could not be published; no consumer is concerned yet
	StageDecode   Stage = "decode"   // its bytes do not decode
	StageHandle   Stage = "handle"   // the consumer's handler failed for good
)

// ReviewStatus is the state of a dead letter.
type ReviewStatus string

// The states, in the order pending → reviewed → replayed → closed. A replay
// that fails again goes from replayed to pending.
const (
	StatusPending  ReviewStatus = "pending"
	StatusReviewed ReviewStatus = "reviewed"
	StatusReplayed ReviewStatus = "replayed"
	StatusClosed   ReviewStatus = "closed"
)

// Resolution says how a dead letter was closed.
type Resolution string

// The resolutions.
const (
	Resolved  Resolution = "resolved"  // processed after all
	Discarded Resolution = "discarded" // given up, with a reason
)

// Attempt is one failed attempt of a consumer at an event.
type Attempt struct {
	Attempt      int        `json:"attempt"` // from 1; goes on after a replay
	At           time.Time  `json:"at"`
	Outcome      string     `json:"outcome"` // "failed"
	ErrorCode    ReasonCode `json:"errorCode"`
	ErrorMessage string     `json:"errorMessage"` // at most 1,024 bytes
	// TraceParent is the attempt's span, if it was traced.
	TraceParent string `json:"traceparent,omitempty"`
}

// Act is something that somebody did to a dead letter.
type Act struct {
	Act  string    `json:"act"` // reviewed, scheduled, unscheduled, replayed, forced or discarded
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	Note string    `json:"note,omitempty"`
	// Plan is the ID of the plan that it was part of; empty: of none.
	Plan string `json:"plan,omitempty"`
	// DueAt is the time of a scheduled replay.
	DueAt time.Time `json:"due_at,omitzero"`
}

// DeadLetter is an event that died at one consumer. Consumer is empty for
// stage dispatch and for bytes that the dispatcher could not decode.
type DeadLetter struct {
	EventID      string       `json:"event_id"`
	Consumer     string       `json:"consumer_name"`
	EventType    string       `json:"event_type"`
	Stage        Stage        `json:"stage"`
	Reason       ReasonCode   `json:"reason_code"`
	Message      string       `json:"reason_message"`
	AttemptCount int          `json:"attempt_count"` // the highest attempt in History
	History      []Attempt    `json:"attempt_history"`
	Status       ReviewStatus `json:"status"`
	Resolution   Resolution   `json:"resolution,omitempty"`
	Acts         []Act        `json:"notes"`
	OrderingKey  string       `json:"ordering_key,omitempty"`
	Generation   int          `json:"generation"`
	CreatedAt    time.Time    `json:"created_at"`
	UpdatedAt    time.Time    `json:"updated_at"`
	ExpiresAt    time.Time    `json:"expires_at"`
	ScheduledAt  time.Time    `json:"scheduled_at,omitzero"` // of a reviewed one: when it replays by itself
	Payload      []byte       `json:"-"`                     // the encoded envelope, or undecodable bytes wrapped
	ParkedBehind int          `json:"parked_behind"`         // deliveries that wait for it; 0 once it is closed
}

// DeadLetterFilter selects dead letters. Empty fields select all.
type DeadLetterFilter struct {
	EventID     string
	Consumer    string
	EventType   string
	OrderingKey string // of an ordered consumer
	TenantID    string // of the envelope; what does not decode has none
	Stage       Stage
	Reason      ReasonCode
	Status      ReviewStatus
	OpenOnly    bool
	// Since (inclusive) and Until (exclusive) are times of CreatedAt.
	Since, Until time.Time
	// After is the place of the last one that the caller has: only those after it.
	After Place
	Limit int // default 100, at most 10,000; the oldest first
}

// Place is where a dead letter stands in the order of them all: by the time of its
// creation, then by event and consumer. It stays there for life, so that whoever goes on
// after a place gets each of those after it once, whatever comes and goes meanwhile. One that
// comes has a later place than those of before, as far as the clocks of the workers agree.
type Place struct {
	CreatedAt time.Time
	Target
}

// Place returns where the dead letter stands.
func (d *DeadLetter) Place() Place { return Place{d.CreatedAt, d.Target()} }

// Compare returns -1 if p comes before q, 1 if after, and 0 if they are one.
func (p Place) Compare(q Place) int {
	return cmp.Or(p.CreatedAt.Compare(q.CreatedAt), cmp.Compare(p.EventID, q.EventID), cmp.Compare(p.Consumer, q.Consumer))
}

// AnyGeneration is for acts that do not depend on a dead letter's generation.
const AnyGeneration = -1

// DeadLetterStore keeps dead letters. Each act is one transaction, is recorded, and pushes
// the expiry out to at least [ActRetention] from then. It returns [ErrNotFound] if there is
// no such dead letter, and [ErrState] if its state does not allow the act; those that are
// given a generation, [ErrChanged] if the dead letter has another one. Nothing has
// been written then.
type DeadLetterStore interface {
	// DeadLetters returns what the filter selects, in the order of their places. TenantID
	// is left to the caller.
	DeadLetters(ctx context.Context, f DeadLetterFilter) ([]DeadLetter, error)
	// Review moves pending to reviewed.
	Review(ctx context.Context, t Target, act Act) error
	// Schedule moves pending or reviewed to reviewed, to be replayed at act.DueAt (see
	// DispatchStore.ReplayScheduled); the expiry is pushed out to ActRetention after that.
	// If act.DueAt is zero, it takes the time of a scheduled one back, which stays reviewed.
	Schedule(ctx context.Context, t Target, act Act) error
	// Replay: generation + 1 of the dead letter and of its delivery, whose
	// PriorAttempts become its Attempts (a fresh budget); status replayed; nothing
	// scheduled; and the row that [ReplayRow] makes, forced if the inbox has the event with a
	// generation below that of the dead letter: then it died of a forced run. Allowed
	// from pending and reviewed.
	Replay(ctx context.Context, t Target, generation int, act Act) error
	// Force inserts a forced row like that of a replay for what the consumer's inbox has:
	// ErrNotFound if it has not. The generation is one above those of the inbox row, the dead
	// letter and the outbox rows for this consumer. If there is a dead letter, it has to be
	// closed, stays so, gets the generation and the act; one that is discarded becomes
	// resolved, which its event is. ErrState if there is a delivery, or an outbox row for this
	// consumer of a generation that it has not processed yet: a run is under way.
	// The payload is that of the dead-letter event, or else of the last outbox row of the
	// event; ErrNotFound if neither is kept.
	Force(ctx context.Context, t Target, generation int, act Act) error
	// Discard: the delivery and any pending replay row removed, nothing scheduled, status
	// closed, resolution discarded. Allowed from any state but closed.
	Discard(ctx context.Context, t Target, act Act) error
	// Wake tells the dispatchers of this process to look now.
	Wake()
}

// ActRetention is how long a dead letter is kept at least after somebody acted on it, and
// after the time that its replay is scheduled for.
const ActRetention = 30 * 24 * time.Hour

// Target names a dead letter.
type Target struct {
	EventID  string `json:"event_id"`
	Consumer string `json:"consumer_name"`
}

// Target returns the dead letter's name.
func (d DeadLetter) Target() Target { return Target{EventID: d.EventID, Consumer: d.Consumer} }

func (t Target) String() string {
	if t.Consumer == "" {
		return t.EventID
	}
	return t.EventID + " at " + t.Consumer
}
