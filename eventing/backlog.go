package eventing

import (
	"context"
	"time"
)

// BacklogLimit is where a [Backlog]'s counts end: of rows of an outbox partition, and of
// deliveries and dead letters of the whole store. Whoever has so many has a problem that the exact
// number says nothing more about.
const (
	BacklogPartitionLimit = 500
	BacklogLimit          = 100_000
)

// Backlog is what waits in a store: cheap enough to be asked for every few seconds, other than
// [Stats], which counts whole tables.
type Backlog struct {
	// Due is how many outbox rows are pending whose time has come, counted up to
	// [BacklogPartitionLimit] in each partition.
	Due int64
	// OldestDue is since when the row that is due longest could have been sent: when it was appended, or
	// fell due if it was delayed. Zero: nothing is due.
	OldestDue time.Time
	// OldestPending is when the oldest pending row was appended, delayed or not. Zero: none is.
	OldestPending time.Time
	// OldestSent is when the oldest row was sent that is kept: as far back [Requeue] reaches.
	OldestSent time.Time
	// Deliveries are those that wait, by consumer: up to [BacklogLimit] of all.
	Deliveries map[string]WaitingDeliveries
	// DeadLetters are the open ones, those on their way as replays included, by consumer; "" has those that
	// could not be dispatched. Up to [BacklogLimit] of all.
	DeadLetters map[string]int64
}

// WaitingDeliveries are those of a consumer that are not dead.
type WaitingDeliveries struct {
	Retrying   int64
	Parked     int64
	ParkedKeys int64 // how many ordering keys the parked ones are of
}

// BacklogStore tells what waits in it.
type BacklogStore interface {
	// Backlog looks at this moment, without holding anybody up.
	Backlog(ctx context.Context, now time.Time) (Backlog, error)
}
