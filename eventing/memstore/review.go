package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Review implements [eventing.DeadLetterStore].
func (s *Store) Review(ctx context.Context, t eventing.Target, act eventing.Act) error {
	return s.write(ctx, func(tx *Tx) error {
		dl, err := tx.openFor(t, act, eventing.StatusPending)
		if err != nil {
			return err
		}
		dl.Status = eventing.StatusReviewed
		dl.record(act)
		tx.putDeadLetter(dl)
		return nil
	})
}

// Schedule implements [eventing.DeadLetterStore].
func (s *Store) Schedule(ctx context.Context, t eventing.Target, act eventing.Act) error {
	return s.write(ctx, func(tx *Tx) error {
		dl, err := tx.openFor(t, act, eventing.StatusPending, eventing.StatusReviewed)
		if err != nil {
			return err
		}
		if act.DueAt.IsZero() && dl.ScheduledAt.IsZero() {
			return fmt.Errorf("dead letter %s is not scheduled: %w", t, eventing.ErrState)
		}
		dl.Status, dl.ScheduledAt = eventing.StatusReviewed, act.DueAt
		dl.record(act)
		tx.putDeadLetter(dl)
		return eventing.Fault(ctx, eventing.FaultScheduling)
	})
}

// Discard implements [eventing.DeadLetterStore]. What the key holds next is its
// head then.
func (s *Store) Discard(ctx context.Context, t eventing.Target, act eventing.Act) error {
	return s.write(ctx, func(tx *Tx) error {
		dl, err := tx.openFor(t, act, eventing.StatusPending, eventing.StatusReviewed, eventing.StatusReplayed)
		if err != nil {
			return err
		}
		tx.discard(dl, act)
		return eventing.Fault(ctx, eventing.FaultDiscarding)
	})
}

func (tx *Tx) discard(dl deadLetter, act eventing.Act) {
	tx.deliveries.remove(dl.target())
	for _, e := range tx.store.pending {
		row := tx.outbox.get(e.id)
		if row != nil && row.EventID == dl.EventID && row.Consumer == dl.Consumer && row.Generation > 0 {
			tx.outbox.remove(e.id)
		}
	}
	dl.Status, dl.Resolution, dl.ScheduledAt = eventing.StatusClosed, eventing.Discarded, time.Time{}
	dl.record(act)
	tx.putDeadLetter(dl)
}

func (dl *deadLetter) record(act eventing.Act) {
	dl.Acts = append(slices.Clip(dl.Acts), act)
	dl.UpdatedAt = act.At
	for _, at := range []time.Time{act.At, dl.ScheduledAt} {
		if keep := at.Add(eventing.ActRetention); keep.After(dl.ExpiresAt) {
			dl.ExpiresAt = keep
		}
	}
}

// openFor finds the dead letter that somebody wants to act on.
func (tx *Tx) openFor(t eventing.Target, act eventing.Act, allowed ...eventing.ReviewStatus) (deadLetter, error) {
	dl, ok := tx.deadLetter(t)
	switch {
	case !ok:
		return dl, fmt.Errorf("dead letter %s: %w", t, eventing.ErrNotFound)
	case !slices.Contains(allowed, dl.Status):
		return dl, fmt.Errorf("dead letter %s is %s and cannot be %s: %w", t, dl.Status, act.Act, eventing.ErrState)
	}
	return dl, nil
}
