package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Replay implements [eventing.DeadLetterStore].
func (s *Store) Replay(ctx context.Context, t eventing.Target, generation int, act eventing.Act) error {
	return s.write(ctx, func(tx *Tx) error {
		dl, err := tx.openFor(t, act, eventing.StatusPending, eventing.StatusReviewed)
		if err != nil {
			return err
		}
		if err := dl.Unchanged(generation); err != nil {
			return err
		}
		if err := tx.replay(dl, act); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultReplaying)
	})
}

// replay sends a dead letter to its consumer again.
func (tx *Tx) replay(dl deadLetter, act eventing.Act) error {
	row := eventing.ReplayRow(dl.DeadLetter, dl.Generation+1, act.At)
	processed := tx.inbox.get(dl.target())
	row.Force = processed != nil && processed.generation < dl.Generation // it died of a forced run
	if err := tx.insert(outboxRow{OutboxRow: row, status: pending}); err != nil {
		return err
	}
	if d := tx.deliveries.get(dl.target()); d != nil {
		again := *d
		again.Generation, again.priorAttempts = row.Generation, d.attempts
		tx.deliveries.put(dl.target(), again)
	}
	dl.Status, dl.Generation, dl.ScheduledAt = eventing.StatusReplayed, row.Generation, time.Time{}
	dl.record(act)
	tx.putDeadLetter(dl)
	return nil
}

// ReplayScheduled implements [eventing.DispatchStore].
func (s *Store) ReplayScheduled(ctx context.Context, now time.Time, limit int) (n int, err error) {
	var scheduled []deadLetter
	if err := s.read(ctx, func(*Tx) {
		for _, e := range s.dead.rows {
			for _, dl := range e.at {
				if dl.due(now) {
					scheduled = append(scheduled, dl)
				}
			}
		}
	}); err != nil {
		return 0, err
	}
	slices.SortFunc(scheduled, func(a, b deadLetter) int { return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), oldestFirst(a, b)) })
	for _, dl := range scheduled[:min(len(scheduled), max(limit, 0))] {
		done := false
		if writeErr := s.write(ctx, func(tx *Tx) error {
			dl, known := tx.deadLetter(dl.target())
			if done = known && dl.due(now); !done {
				return nil // another process was faster
			}
			if err := tx.replay(dl, dl.ScheduledReplay(now)); err != nil {
				return err
			}
			return eventing.Fault(ctx, eventing.FaultReplaying)
		}); writeErr != nil {
			err = errors.Join(err, fmt.Errorf("scheduled replay of %s: %w", dl.target(), writeErr))
			continue
		}
		if done {
			n++
		}
	}
	return n, err
}

// due reports whether it is time for a scheduled replay.
func (dl *deadLetter) due(now time.Time) bool {
	return dl.Status == eventing.StatusReviewed && !dl.ScheduledAt.IsZero() && !dl.ScheduledAt.After(now)
}
