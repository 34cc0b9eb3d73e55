package eventing

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
}

// Act is something that somebody did to a dead letter.
type Act struct {
	Act  string    `json:"act"` // reviewed, replayed, discarded …
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	Note string    `json:"note,omitempty"`
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
	Payload      []byte       `json:"-"` // the encoded envelope, or undecodable bytes wrapped
	ParkedBehind int          `json:"parked_behind"`
}

// DeadLetterFilter selects dead letters. Empty fields select all.
type DeadLetterFilter struct {
	EventID  string
	Consumer string
	Status   ReviewStatus
	OpenOnly bool
	Limit    int // default 100, at most 10,000; the oldest first
}

// DeadLetterStore keeps dead letters. Each act is recorded, and pushes the expiry out
// to at least [ActRetention] from then.
type DeadLetterStore interface {
	DeadLetters(ctx context.Context, f DeadLetterFilter) ([]DeadLetter, error)
	// Review moves pending to reviewed and records the act. ErrState otherwise.
	Review(ctx context.Context, t Target, act Act) error
	// Replay, in one transaction: generation + 1 of the dead letter and of its
	// delivery, whose PriorAttempts become its Attempts (a fresh budget); status
	// replayed; and the row that [ReplayRow] makes. Allowed from pending and
	// reviewed: ErrState otherwise.
	Replay(ctx context.Context, t Target, act Act) error
	// Discard, in one transaction: the delivery and any pending replay row removed,
	// status closed, resolution discarded. Allowed from any state but closed:
	// ErrState otherwise.
	Discard(ctx context.Context, t Target, act Act) error
	// Wake tells the dispatchers of this process to look now.
	Wake()
}

// ActRetention is how long a dead letter is kept at least after somebody reviewed,
// replayed or discarded it.
const ActRetention = 30 * 24 * time.Hour

// Target names a dead letter.
type Target struct {
	EventID  string
	Consumer string
}

// Target returns the dead letter's name.
func (d DeadLetter) Target() Target { return Target{EventID: d.EventID, Consumer: d.Consumer} }

func (t Target) String() string {
	if t.Consumer == "" {
		return t.EventID
	}
	return t.EventID + " at " + t.Consumer
}

// DeadLetters is the operator's access to the dead letters of a store. Acts are
// recorded with who, when and why.
type DeadLetters struct {
	store DeadLetterStore
	now   func() time.Time
}

// DeadLettersOption adjusts a [DeadLetters].
type DeadLettersOption func(*DeadLetters)

// WithClock sets the clock by which acts are dated. Default: time.Now.
func WithClock(now func() time.Time) DeadLettersOption {
	return func(d *DeadLetters) { d.now = now }
}

// NewDeadLetters returns the dead letters of a store.
func NewDeadLetters(store DeadLetterStore, opts ...DeadLettersOption) *DeadLetters {
	d := &DeadLetters{store, time.Now}
	for _, o := range opts {
		o(d)
	}
	return d
}

// List returns the dead letters that the filter selects, the oldest first.
func (d *DeadLetters) List(ctx context.Context, f DeadLetterFilter) ([]DeadLetter, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, 10_000)
	return d.store.DeadLetters(ctx, f)
}

// Review marks a pending dead letter as looked at.
func (d *DeadLetters) Review(ctx context.Context, t Target, by, note string) error {
	act, err := d.act("reviewed", by, note)
	if err != nil {
		return err
	}
	return d.store.Review(ctx, t, act)
}

// Replay sends a pending or reviewed dead letter to its consumer again, with a
// fresh budget of attempts. Other consumers do not see it. When it succeeds,
// the dead letter closes as resolved; when it fails for good, it is pending
// again.
func (d *DeadLetters) Replay(ctx context.Context, t Target, by, note string) error {
	act, err := d.act("replayed", by, note)
	if err != nil {
		return err
	}
	if err := d.store.Replay(ctx, t, act); err != nil {
		return err
	}
	d.store.Wake()
	return nil
}

// Discard gives an open dead letter up; note must say why. The consumer will
// not handle the event any more, and what was parked behind it goes on.
func (d *DeadLetters) Discard(ctx context.Context, t Target, by, note string) error {
	if strings.TrimSpace(note) == "" {
		return errors.New("discard a dead letter: a note that says why is needed")
	}
	act, err := d.act("discarded", by, note)
	if err != nil {
		return err
	}
	return d.store.Discard(ctx, t, act)
}

const maxNoteBytes = 4096

func (d *DeadLetters) act(what, by, note string) (Act, error) {
	if strings.TrimSpace(by) == "" {
		return Act{}, errors.New("act on a dead letter: by is empty; say who does it")
	}
	if len(note) > maxNoteBytes || len(by) > maxNameBytes {
		return Act{}, fmt.Errorf("act on a dead letter: the note may have %d bytes, the name %d", maxNoteBytes, maxNameBytes)
	}
	return Act{Act: what, By: by, At: d.now().UTC(), Note: note}, nil
}
