package eventing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// RequeueFilter selects sent outbox rows: by event ID, or by the time of their
// sending. At least one of them is needed; an ID narrows the time.
type RequeueFilter struct {
	EventIDs []string
	SentFrom time.Time // inclusive
	SentTo   time.Time // exclusive; zero: no end
}

// Requeued says what [Requeue] did.
type Requeued struct {
	// Rows are, or if dry would be, pending again.
	Rows int `json:"requeued"`
	// Of the event IDs that were asked for, those that have no row any more, or never had;
	// those whose rows have yet to be sent anyway; and those that could not be sent, which
	// have dead letters to replay.
	NotKept []string `json:"not_kept,omitempty"`
	Pending []string `json:"pending,omitempty"`
	Failed  []string `json:"failed,omitempty"`
	// OldestSent is when the oldest sent row was sent that was kept when it began: as far
	// back it reaches (see [AuditReport]). Zero: none was kept.
	OldestSent time.Time `json:"oldest_sent_at,omitzero"`
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
	AuditOutbox
	AuditStore
	BacklogStore
	// Stats counts.
	Stats(ctx context.Context) (Stats, error)
	// Requeue makes rows pending again that are sent and whose ID no pending row has, those
	// of lane [Expedited] critical, in one transaction. It returns how many. seqs are at most
	// [AuditBatch].
	Requeue(ctx context.Context, seqs []int64) (int, error)
	// Wake tells the dispatchers of this process to look now.
	Wake()
}

// Requeue sends again what has been sent, for a broker that has lost it:
// consumers that have processed an event recognise it by their inbox. It
// reaches as far back as rows are kept (see [PrunerConfig]). Of an event that was appended
// again, only the last row is sent.
//
// It works in batches of [AuditBatch] rows, in the order of appending, each in a transaction
// of its own: after an error, or a crash, those before it are pending, and doing it all again
// does no harm.
func Requeue(ctx context.Context, store AdminStore, f RequeueFilter, dry bool) (Requeued, error) {
	if len(f.EventIDs) == 0 && f.SentFrom.IsZero() {
		return Requeued{}, errors.New("requeue: name event IDs or the time from which on they were sent")
	}
	reach, err := store.AuditReach(ctx, f.SentFrom)
	if err != nil {
		return Requeued{}, fmt.Errorf("requeue: %w", err)
	}
	r := requeue{store: store, filter: f, dry: dry, done: Requeued{OldestSent: reach.OldestSent}}
	if len(f.EventIDs) > 0 {
		err = r.events(ctx)
	} else {
		err = eachPage(ctx, store, reach, func(rows []AuditRow) error { return r.page(ctx, rows) })
	}
	if r.done.Rows > 0 && !dry {
		store.Wake()
	}
	if err != nil {
		return r.done, fmt.Errorf("requeue: %w", err)
	}
	return r.done, nil
}

// requeue is one call of Requeue.
type requeue struct {
	store  AdminStore
	filter RequeueFilter
	dry    bool
	done   Requeued
}

// events requeues by ID. All rows are found first: of an ordering key, none may be pending
// before one that was appended earlier.
func (r *requeue) events(ctx context.Context) error {
	ids := slices.Clone(r.filter.EventIDs)
	slices.Sort(ids)
	var seqs []int64
	for batch := range slices.Chunk(slices.Compact(ids), AuditBatch) {
		rows, err := r.store.AuditEvents(ctx, batch)
		if err != nil {
			return err
		}
		seqs = append(seqs, r.selected(rows)...)
		r.explain(batch, rows)
	}
	slices.Sort(seqs)
	return r.rows(ctx, seqs)
}

// page requeues of a page of rows. An event that was appended again may have its last row
// on another.
func (r *requeue) page(ctx context.Context, rows []AuditRow) error {
	seqs := r.selected(rows)
	if len(seqs) == 0 {
		return nil
	}
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.EventID
	}
	slices.Sort(ids)
	all, err := r.store.AuditEvents(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	last := r.selected(all)
	return r.rows(ctx, slices.DeleteFunc(seqs, func(seq int64) bool {
		_, found := slices.BinarySearch(last, seq)
		return !found
	}))
}

// selected returns the rows to send again, of each ID the last; none if one is pending.
func (r *requeue) selected(rows []AuditRow) []int64 {
	f := r.filter
	last := make(map[string]int64, len(rows))
	for _, row := range rows {
		if row.Status == rowSent && !row.Aside && !row.At.Before(f.SentFrom) && (f.SentTo.IsZero() || row.At.Before(f.SentTo)) {
			last[row.ID] = row.Seq
		}
	}
	for _, row := range rows {
		if row.Status == rowPending {
			delete(last, row.ID)
		}
	}
	return slices.Sorted(maps.Values(last))
}

// explain notes which of the IDs have no sent row.
func (r *requeue) explain(ids []string, rows []AuditRow) {
	best := make(map[string]string, len(ids)) // status
	rank := map[string]int{"": 0, rowFailed: 1, rowPending: 2, rowSent: 3}
	for _, row := range rows {
		if rank[row.Status] > rank[best[row.EventID]] {
			best[row.EventID] = row.Status
		}
	}
	for _, id := range ids {
		switch best[id] {
		case "":
			r.done.NotKept = append(r.done.NotKept, id)
		case rowPending:
			r.done.Pending = append(r.done.Pending, id)
		case rowFailed:
			r.done.Failed = append(r.done.Failed, id)
		}
	}
}

// rows makes rows pending again, or counts them.
func (r *requeue) rows(ctx context.Context, seqs []int64) error {
	if r.dry {
		r.done.Rows += len(seqs)
		return nil
	}
	for batch := range slices.Chunk(seqs, AuditBatch) {
		n, err := r.store.Requeue(ctx, batch)
		if r.done.Rows += n; err != nil {
			return err
		}
	}
	return nil
}
