package sqlstore

import (
	"context"

	"github.com/waybill-go/waybill/eventing"
)

// Replay implements [eventing.DeadLetterStore].
func (s *Store) Replay(ctx context.Context, t eventing.Target, a eventing.Act) error {
	return s.inTx(ctx, func(tx Tx) error {
		d, err := s.lockDeadLetter(ctx, tx, t)
		if err != nil {
			return err
		}
		if d.Status != eventing.StatusPending && d.Status != eventing.StatusReviewed {
			return notAllowed(t, "replaying it", d)
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
	d.Generation++
	d.Status = eventing.StatusReplayed
	if err := s.act(ctx, tx, d, a); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql(renewBudget), d.Consumer, d.EventID, d.Generation); err != nil {
		return err
	}
	return s.AppendRows(ctx, tx, []eventing.OutboxRow{eventing.ReplayRow(d, d.Generation, a.At)})
}

const (
	deleteDelivery       = `DELETE FROM event_deliveries WHERE consumer_name = $1 AND event_id = $2`
	deleteReplayOnItsWay = `
DELETE FROM event_outbox WHERE event_id = $2 AND status = 'pending' AND generation > 0 AND coalesce(consumer_name, '') = $1`
)

// Discard implements [eventing.DeadLetterStore].
func (s *Store) Discard(ctx context.Context, t eventing.Target, a eventing.Act) error {
	_, err := s.discard(ctx, t, a, func(eventing.DeadLetter) bool { return true })
	return err
}

// discard discards a dead letter, if it is still so once it is locked.
func (s *Store) discard(ctx context.Context, t eventing.Target, a eventing.Act, so func(eventing.DeadLetter) bool) (done bool, err error) {
	err = s.inTx(ctx, func(tx Tx) error {
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
		d.Status, d.Resolution = eventing.StatusClosed, eventing.Discarded
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
