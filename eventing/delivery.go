package eventing

import (
	"context"
	"time"
)

// State is the state of a delivery in trouble.
type State string

// The states of a delivery. A delivery that is in no trouble has no row.
const (
	StateNone     State = ""
	StateRetrying State = "retrying" // failed; runs again when due
	StateParked   State = "parked"   // waits behind an earlier delivery of its key
	StateDead     State = "dead"     // has a dead letter; runs again only by a replay
)

// Delivery is one event on its way into one consumer.
type Delivery struct {
	Consumer    string
	EventID     string
	EventType   string
	OrderingKey string // of an ordered consumer; never empty then. Else empty
	Partition   int
	Generation  int    // of the replay that brought it; 0: none
	Force       bool   // it runs although the inbox has the event, with a lower generation
	OutboxSeq   int64  // of the row that settles by this delivery's completion; 0: none
	Payload     []byte // the encoded envelope
	// RoutingVersion is that of the table that sent it; empty: it had none. It is kept in the delivery
	// row, and is that of the last replay.
	RoutingVersion string
}

// Found is what a store has about a delivery, read at one moment.
type Found struct {
	Processed       bool // an inbox row exists
	InboxGeneration int  // of that row
	// The delivery row; State is StateNone if there is none.
	State         State
	Generation    int
	Attempts      int // recorded so far
	PriorAttempts int // of them, those before the last replay
	History       []Attempt
	// The dead letter.
	Discarded      bool
	Replayed       bool // its status is replayed
	DeadGeneration int  // 0 if there is none
	// KeyBusy: another delivery of (consumer, ordering key) exists; Ahead: one
	// with a lower position than this delivery's.
	KeyBusy bool
	Ahead   bool
}

// Decision is what to do with a message that arrived.
type Decision string

// The decisions.
const (
	DecideAck  Decision = "ack"  // it has been dealt with, or will be
	DecidePark Decision = "park" // store it behind the others of its key, then ack
	DecideRun  Decision = "run"
)

// Decide is the arrival table: what to do with a message, given what the store
// has about its delivery. A store calls it on what it read in one transaction.
func Decide(d Delivery, f Found) Decision {
	replay := d.Generation > 0
	// A forced run goes past the inbox, unless it, or a later one, has been there already.
	forced := d.Force && d.Generation > f.InboxGeneration && d.Generation >= f.DeadGeneration
	switch {
	case f.Processed && !forced, f.Discarded:
		return DecideAck
	case f.State == StateRetrying, f.State == StateParked:
		return DecideAck // redelivered from the store
	case f.State == StateDead && (!replay || d.Generation != f.Generation || !f.Replayed):
		return DecideAck
	case f.State == StateDead && f.Ahead:
		return DecidePark
	case f.State == StateNone && f.KeyBusy:
		return DecidePark
	}
	return DecideRun
}

// Run is one run of a handler on a delivery, and what has to hold when it ends:
// the store concludes it only if the delivery is still as it was found.
type Run struct {
	Delivery
	Found         State // of the delivery row when the run began
	Attempts      int   // recorded before this run
	PriorAttempts int
	History       []Attempt
	ClaimToken    string // of a redelivery to an unordered consumer
	Lease         *Lease // of the partition, if ordered
}

// Success is a run whose handler has succeeded, or is about to.
type Success struct {
	Run
	Now time.Time
	// InboxUntil is when the inbox row expires.
	InboxUntil time.Time
	// DeadLetterUntil is the expiry of a dead letter that closes by this.
	DeadLetterUntil time.Time
	// ClaimUntil is how long a store without transactions keeps others from running Effect, if this
	// process dies meanwhile; zero: as it sees fit.
	ClaimUntil time.Time
	// Effect runs first in the transaction: the handler, if it is transactional.
	// Finish runs last. Either may be nil; an error rolls back and is returned
	// as it is.
	Effect, Finish func(ctx context.Context, tx any) error
}

// Failure is a run whose handler has failed.
type Failure struct {
	Run
	Now   time.Time
	State State // StateRetrying or StateDead
	// DueAt is when a retry is due.
	DueAt time.Time
	// Attempts and History are as they are to be recorded, this run included. A
	// snooze leaves them unchanged.
	Attempts int
	History  []Attempt
	// Of a dead letter.
	Stage           Stage
	Reason          ReasonCode
	Message         string
	DeadLetterUntil time.Time
	// Finish runs last in the transaction; it may be nil.
	Finish func(ctx context.Context, tx any) error
}

// DueRequest asks for deliveries to run again.
type DueRequest struct {
	Consumer string
	Ordered  bool
	Now      time.Time
	Limit    int
	Exclude  []string // event IDs that are running here
	// Unordered: the claim's token and end.
	ClaimToken string
	ClaimUntil time.Time
	// Ordered: the leases that the worker holds.
	Leases []Lease
}

// ConsumerStore keeps what consumers have processed, and the deliveries in
// trouble. All of its writes that carry a Lease check that its token is still
// current, so that a holder who has been taken over from writes nothing:
// [ErrLeaseLost].
type ConsumerStore interface {
	LeaseStore
	BatchStore
	// Arrive reads what it has about a delivery and decides by [Decide]. If that
	// is to park, it stores the delivery as parked, behind all others of its
	// consumer (a dead one that is replayed out of turn becomes parked where it
	// is), in one transaction with the check of the lease. The found state,
	// attempts and history come back in the Run; for a generation above 0 whose delivery
	// has no row, those of the dead letter, as attempts before this replay.
	Arrive(ctx context.Context, d Delivery, lease *Lease, now time.Time) (Decision, Run, error)
	// Succeed concludes a successful run in one transaction: Effect; the lease; the
	// inbox row, which a forced run may find with a lower generation and raises to its
	// own; removal of the delivery row, which must be as it was found; an open
	// dead letter of the delivery closed as resolved; Finish. It returns
	// [ErrConflict], everything rolled back, if another inbox row exists already or the
	// delivery row is not as it was found; and [ErrBrokenTx] if Effect returned nil but
	// left a transaction that cannot commit. tx is the store's transaction type.
	Succeed(ctx context.Context, s Success) error
	// Fail records a failed run in one transaction, which leaves an inbox row that a forced
	// run has found as it is: the lease; the delivery row
	// inserted or, if it is as it was found, its attempts too, updated; if dead, the dead letter
	// opened or opened again (status pending), and the outbox row of OutboxSeq, if
	// it is sent, marked failed; else the expiry of an open dead letter of the
	// delivery pushed out to DeadLetterUntil; Finish. It returns [ErrConflict] as
	// Succeed does, and [ErrBrokenTx] if Finish left a transaction that cannot commit.
	Fail(ctx context.Context, f Failure) error
	// Quarantine opens a dead letter of stage decode for bytes that are no envelope,
	// or, if it is replayed, opens it again, the attempts and the history going on; in
	// any other state it does nothing. f.EventID and f.Payload are as [Undecodable]
	// makes them. There is no delivery row. The outbox row is treated as by Fail.
	Quarantine(ctx context.Context, f Failure) error
	// Due returns deliveries to run now, the longest waiting first. Unordered:
	// retrying ones that are due, and parked ones (from when the consumer was
	// ordered), that are not claimed; they are claimed until ClaimUntil.
	// Ordered: of each key in the leased partitions only the delivery with the lowest
	// position, if it is retrying and due, or parked.
	Due(ctx context.Context, r DueRequest) ([]Run, error)
	// Forget, only if an inbox row exists: removes the delivery row, and closes
	// the dead letter as resolved; but neither of a forced run above the inbox row's
	// generation.
	Forget(ctx context.Context, r Run, now time.Time) error
}
