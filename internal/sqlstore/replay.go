package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Replay implements [eventing.DeadLetterStore].
func (s *Store) Replay(ctx context.Context, t eventing.Target, generation int, a eventing.Act) error {
	return s.retryTx(ctx, func(tx Tx) error {
		d, err := s.lockDeadLetter(ctx, tx, t)
		if err != nil {
			return err
		}
		if d.Status != eventing.StatusPending && d.Status != eventing.StatusReviewed {
			return notAllowed(t, "replaying it", d)
		}
		if err := d.Unchanged(generation); err != nil {
			return err
		}
		if err := s.replay(ctx, tx, d, a); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultReplaying)
	})
}

const renewBudget = `
UPDATE event_deliveries SET generation = $3, prior_attempts = attempts
WHERE consumer_name = $1 AND event_id = $2 AND state = 'dead'`

// replay sends a locked dead letter to its consumer again, with a generation that
// tells this replay from all earlier ones.
func (s *Store) replay(ctx context.Context, tx Tx, d eventing.DeadLetter, a eventing.Act) error {
	var processed int
	found, err := one(ctx, tx, s.sql(inboxGeneration), []any{d.EventID, d.Consumer}, &processed)
	if err != nil {
		return err
	}
	forced := found && processed < d.Generation // it died of a forced run
	d.Generation++
	d.Status, d.ScheduledAt = eventing.StatusReplayed, time.Time{}
	if err := s.act(ctx, tx, d, a); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql(renewBudget), d.Consumer, d.EventID, d.Generation); err != nil {
		return err
	}
	return s.send(ctx, tx, d, forced, a.At)
}

const markForced = `UPDATE event_outbox SET forced = true WHERE id = $1 AND status = 'pending'`

// send inserts the row of a replay. That it is forced is written after it, which is rare:
// so appending has no column for it.
func (s *Store) send(ctx context.Context, tx Tx, d eventing.DeadLetter, forced bool, now time.Time) error {
	row := eventing.ReplayRow(d, d.Generation, now)
	if err := s.AppendRows(ctx, tx, []eventing.OutboxRow{row}); err != nil || !forced {
		return err
	}
	_, err := tx.Exec(ctx, s.sql(markForced), row.ID)
	return err
}

const scheduled = `SELECT event_id, consumer_name FROM dead_letter_consumers WHERE scheduled_at <= $1 ORDER BY scheduled_at LIMIT $2`

// ReplayScheduled implements [eventing.DispatchStore].
func (s *Store) ReplayScheduled(ctx context.Context, now time.Time, limit int) (n int, err error) {
	var due []eventing.Target
	if err := each(ctx, s.db, s.sql(scheduled), []any{s.time(now), limit}, func(rows Rows) error {
		due = append(due, eventing.Target{})
		return rows.Scan(&due[len(due)-1].EventID, &due[len(due)-1].Consumer)
	}); err != nil {
		return 0, err
	}
	for _, t := range due {
		done, replayErr := s.replayIfDue(ctx, t, now)
		if replayErr != nil {
			err = errors.Join(err, fmt.Errorf("scheduled replay of %s: %w", t, replayErr))
			continue // one that fails must not keep the others waiting
		}
		n += boolToInt(done)
	}
	return n, err
}

// replayIfDue replays a scheduled dead letter, unless somebody was faster.
func (s *Store) replayIfDue(ctx context.Context, t eventing.Target, now time.Time) (done bool, err error) {
	err = s.retryTx(ctx, func(tx Tx) error {
		done = false
		d, err := s.lockDeadLetter(ctx, tx, t)
		if errors.Is(err, eventing.ErrNotFound) {
			return nil
		}
		if err != nil || d.Status != eventing.StatusReviewed || d.ScheduledAt.IsZero() || d.ScheduledAt.After(now) {
			return err
		}
		done = true
		if err := s.replay(ctx, tx, d, d.ScheduledReplay(now)); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultReplaying)
	})
	return done && err == nil, err
}
