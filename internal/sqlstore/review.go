package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Review implements [eventing.DeadLetterStore].
func (s *Store) Review(ctx context.Context, t eventing.Target, a eventing.Act) error {
	return s.retryTx(ctx, func(tx Tx) error {
		d, err := s.lockDeadLetter(ctx, tx, t)
		if err != nil {
			return err
		}
		if d.Status != eventing.StatusPending {
			return notAllowed(t, "reviewing it", d)
		}
		d.Status = eventing.StatusReviewed
		return s.act(ctx, tx, d, a)
	})
}

// Schedule implements [eventing.DeadLetterStore].
func (s *Store) Schedule(ctx context.Context, t eventing.Target, a eventing.Act) error {
	return s.retryTx(ctx, func(tx Tx) error {
		d, err := s.lockDeadLetter(ctx, tx, t)
		switch {
		case err != nil:
			return err
		case d.Status != eventing.StatusPending && d.Status != eventing.StatusReviewed:
			return notAllowed(t, "scheduling its replay", d)
		case a.DueAt.IsZero() && d.ScheduledAt.IsZero():
			return fmt.Errorf("dead letter %s is not scheduled: taking the time back is %w", t, eventing.ErrState)
		}
		d.Status, d.ScheduledAt = eventing.StatusReviewed, a.DueAt
		if err := s.act(ctx, tx, d, a); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultScheduling)
	})
}

const (
	deleteDelivery       = `DELETE FROM event_deliveries WHERE consumer_name = $1 AND event_id = $2`
	deleteReplayOnItsWay = `
DELETE FROM event_outbox WHERE event_id = $2 AND id <> event_id AND status = 'pending' AND generation > 0 AND coalesce(consumer_name, '') = $1`
)

// Discard implements [eventing.DeadLetterStore].
func (s *Store) Discard(ctx context.Context, t eventing.Target, a eventing.Act) error {
	_, err := s.discard(ctx, t, a, func(eventing.DeadLetter) bool { return true })
	return err
}

// discard discards a dead letter, if it is still so once it is locked.
func (s *Store) discard(ctx context.Context, t eventing.Target, a eventing.Act, so func(eventing.DeadLetter) bool) (done bool, err error) {
	err = s.retryTx(ctx, func(tx Tx) error {
		done = false
		d, err := s.lockDeadLetter(ctx, tx, t)
		if err != nil {
			return err
		}
		if d.Status == eventing.StatusClosed {
			return notAllowed(t, "discarding it", d)
		}
		if !so(d) {
			return nil
		}
		d.Status, d.Resolution, d.ScheduledAt = eventing.StatusClosed, eventing.Discarded, time.Time{}
		if err := s.act(ctx, tx, d, a); err != nil {
			return err
		}
		for _, q := range []string{deleteDelivery, deleteReplayOnItsWay} {
			if _, err := tx.Exec(ctx, s.sql(q), t.Consumer, t.EventID); err != nil {
				return err
			}
		}
		done = true
		return eventing.Fault(ctx, eventing.FaultDiscarding)
	})
	return done && err == nil, err
}
