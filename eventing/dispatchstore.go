package eventing

import (
	"context"
	"time"
)

// DispatchStore is what a [Dispatcher] needs of a store.
type DispatchStore interface {
	LeaseStore
	// Adopt takes in rows whose partition is null, the oldest first, each in a
	// transaction that is conditional on the row's being still unadopted, and
	// returns how many it took:
	//   - the payload fails [CompleteRow] (not asked of synthetic event IDs that
	//     have dead letters): status failed, and a dead letter of stage decode
	//     without a consumer, under the ID that [Undecodable] derives;
	//   - the event has open dead letters: each whose delivery is dead, or which
	//     has no delivery, is replayed (see DeadLetterStore.Replay; also if it is
	//     replayed already), and the row is deleted;
	//   - all of its dead letters are closed: status sent, under a row ID of its own,
	//     so that the hand-written one is free again;
	//   - else the row that CompleteRow returns takes its place.
	// A row that fails does not keep it from the others; the error tells of all.
	Adopt(ctx context.Context, r AdoptRequest) (int, error)
	// Claim finds what there is to do. It locks nothing: the leases do.
	Claim(ctx context.Context, r ClaimRequest) (Claimed, error)
	// Settle marks rows that are still pending, and whose partition the holder
	// has leased until after Now, as sent, or with Delete deletes them; if
	// ByCompletion, it marks as failed where a consumer has a pending or reviewed
	// dead letter of the event (of stage handle or decode; of a row with a Consumer,
	// only that one's counts). A settled row of generation > 0 without a Consumer
	// closes the event's replayed dead letter without a consumer as resolved. It
	// returns how many it settled. What remains of them has the RoutingVersion.
	Settle(ctx context.Context, r SettleRequest) (int, error)
	// Expedite marks rows of the critical lane, under the same conditions, as
	// published to their unordered consumers: their lane is [Expedited] then.
	Expedite(ctx context.Context, r SettleRequest) error
	// FailDispatch, in one transaction, if the row is still pending and its partition
	// held: status failed, the RoutingVersion, and a dead letter of stage dispatch for the row's Consumer.
	FailDispatch(ctx context.Context, f DispatchFailure) error
	// ReplayScheduled replays dead letters that are scheduled until now, those that are due
	// for the longest first, and at most limit (see DeadLetterStore.Replay; the act is of
	// "scheduler"). Each has a transaction of its own, conditional on its being due still:
	// of several processes, one replays it. It returns how many it replayed. One that fails
	// does not keep it from the others; the error tells of all. If nothing is due, it is one
	// cheap query.
	ReplayScheduled(ctx context.Context, now time.Time, limit int) (int, error)
	// Sleep returns a channel that gets a value when somebody calls Wake.
	Sleep() (woken <-chan struct{}, stop func())
}

// Listener is a [DispatchStore] that can tell of appends in other processes.
type Listener interface {
	// Listen has the store wake its sleepers when another process has appended. It
	// calls listening once it is sure to hear of them, and returns with an error as
	// soon as it is not, or with nil when ctx ends.
	Listen(ctx context.Context, listening func()) error
}

// ClaimRequest says where to look for rows.
type ClaimRequest struct {
	Now        time.Time
	Partitions []PartitionClaim
	// Critical is how many rows of the critical lane to look for, in all of the
	// partitions.
	Critical  int
	Unadopted bool // look for rows whose partition is null, too
	Writers   bool // tell how far the sequence is, and which transactions are under way
}

// MaxPartitionClaim is how many rows of a partition are claimed at a time at most.
const MaxPartitionClaim = 256

// PartitionClaim says where to look in a partition.
type PartitionClaim struct {
	Partition int
	After     int64   // Seq of a row: those up to it need not be looked at
	Limit     int     // of the rows, at most MaxPartitionClaim; 0: only critical ones
	Exclude   []int64 // Seq of rows in flight
}

// Claimed is what there is to do, all of it seen at one moment.
type Claimed struct {
	// Rows are pending and due, for each partition the first of them, in the order of
	// Seq. Left out are those whose ordering key is held by an open dead letter (see
	// DispatchFailure.HoldKey), but never a replay.
	Rows []OutboxRow
	// Critical are pending rows that are due, of the critical lane and not yet
	// expedited, in the order of Seq. They may be among Rows, too.
	Critical []OutboxRow
	// Unadopted: there are rows to adopt.
	Unadopted bool
	// Unsure: pending rows that are not among Rows may be in a later look, before those
	// that are: a pending row has a due time, as requeued and adopted ones do too, or an
	// ordering key is held.
	Unsure bool
	// Writers name the transactions that may have drawn a Seq up to Drawn and not yet
	// committed, after the rows were seen. Where one cannot commit before another that drew
	// a smaller Seq, there are none, and Drawn is that of a row that has committed. Only if
	// asked for.
	Writers []string
	// Drawn is the highest Seq that had been drawn before Writers were found out.
	Drawn int64
}

// SettleRequest names rows that have been handed over.
type SettleRequest struct {
	Holder       string
	Now          time.Time
	Rows         []OutboxRow
	ByCompletion bool // the consumers have concluded too
	Delete       bool
	// RoutingVersion is that of the table that routed the rows; empty: it has none.
	RoutingVersion string
}

// DispatchFailure is a row that cannot be published.
type DispatchFailure struct {
	Row     OutboxRow
	Holder  string
	Reason  ReasonCode
	Message string
	// HoldKey: later rows of the ordering key wait until the dead letter is closed.
	HoldKey bool
	// RoutingVersion is that of the table that routed the row, or had no route for it; empty: it has none.
	RoutingVersion string
	Now            time.Time
	// DeadLetterUntil is the expiry of the dead letter.
	DeadLetterUntil time.Time
}
