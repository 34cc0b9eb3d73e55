package eventing

import (
	"context"
	"errors"
	"time"
)

// RequeueFilter selects sent outbox rows: by event ID, or by the time of their
// sending. At least one of them is needed.
type RequeueFilter struct {
	EventIDs []string
	SentFrom time.Time // inclusive
	SentTo   time.Time // exclusive; zero: no end
}

// Stats are the sizes of a store's tables.
type Stats struct {
	Outbox        map[string]int64 `json:"event_outbox"` // by status
	OldestPending time.Time        `json:"oldest_pending_at"`
	OldestSent    time.Time        `json:"oldest_sent_at"`
	Inbox         int64            `json:"processed_events"`
	Deliveries    map[string]int64 `json:"event_deliveries"`      // by state
	DeadLetters   map[string]int64 `json:"dead_letter_consumers"` // by status
}

// AdminStore is what operators need of a store beside its dead letters.
type AdminStore interface {
	// Stats counts.
	Stats(ctx context.Context) (Stats, error)
	// Requeue makes selected sent rows pending again, or, if dry, only counts them.
	Requeue(ctx context.Context, f RequeueFilter, dry bool) (int, error)
	// Wake tells the dispatchers of this process to look now.
	Wake()
}

// Requeue sends again what has been sent, for a broker that has lost it:
// consumers that have processed an event recognise it by their inbox. It
// reaches as far back as rows are kept (see [PrunerConfig]) and returns how many
// rows are, or if dry would be, pending again.
func Requeue(ctx context.Context, store AdminStore, f RequeueFilter, dry bool) (int, error) {
	if len(f.EventIDs) == 0 && f.SentFrom.IsZero() {
		return 0, errors.New("requeue: name event IDs or the time from which on they were sent")
	}
	n, err := store.Requeue(ctx, f, dry)
	if err == nil && !dry {
		store.Wake()
	}
	return n, err
}
