package sqlstore

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/eventing"
)

// Force implements [eventing.DeadLetterStore]. The dead letter and the inbox row are locked in
// the order in which a run that concludes locks them.
func (s *Store) Force(ctx context.Context, t eventing.Target, generation int, a eventing.Act) error {
	return s.retryTx(ctx, func(tx Tx) error {
		d, err := s.lockDeadLetter(ctx, tx, t)
		f := eventing.ToForce{Target: t, Died: err == nil, Status: d.Status, Resolution: d.Resolution, Generation: d.Generation}
		if err != nil && !errors.Is(err, eventing.ErrNotFound) {
			return err
		}
		if err := s.findToForce(ctx, tx, &f); err != nil {
			return err
		}
		d.EventID, d.Consumer = t.EventID, t.Consumer
		if d.Generation, err = f.NextGeneration(generation); err != nil {
			return err
		}
		if f.Died {
			d.Resolution = eventing.Resolved
			err = s.act(ctx, tx, d, a)
		} else {
			err = s.keptPayload(ctx, tx, f, &d)
		}
		if err != nil {
			return err
		}
		if err := s.send(ctx, tx, d, true, a.At); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultForcing)
	})
}

// So that an index has it: see auditEvents.
const lastReplayRow = `SELECT coalesce(max(generation), 0) FROM event_outbox WHERE event_id = $1 AND id <> event_id AND consumer_name = $2`

// findToForce fills in what there is beside the dead letter.
func (s *Store) findToForce(ctx context.Context, tx Tx, f *eventing.ToForce) (err error) {
	if f.Processed, err = one(ctx, tx, s.sql(lockInbox), []any{f.EventID, f.Consumer}, &f.InboxGeneration); err != nil {
		return err
	}
	var state text
	if _, err = one(ctx, tx, s.sql(deliveryState), []any{f.Consumer, f.EventID}, &state); err != nil {
		return err
	}
	f.Delivery = eventing.State(state)
	_, err = one(ctx, tx, s.sql(lastReplayRow), []any{f.EventID, f.Consumer}, &f.Sent)
	return err
}

const deadPayload = `SELECT event_type, payload FROM dead_letter_events WHERE event_id = $1`

// That a row has an error says that its payload may be no envelope.
const sentPayload = `
SELECT event_type, payload FROM (
	SELECT seq, event_type, payload FROM event_outbox WHERE event_id = $1 AND (status <> 'pending' OR id <> event_id) AND partition IS NOT NULL AND last_error IS NULL
	UNION ALL SELECT seq, event_type, payload FROM event_outbox WHERE id = $1 AND status = 'pending' AND id = event_id AND partition IS NOT NULL) AS kept
ORDER BY seq DESC LIMIT 1`

// keptPayload fills in the payload of an event that has not died at this consumer.
func (s *Store) keptPayload(ctx context.Context, tx Tx, f eventing.ToForce, d *eventing.DeadLetter) error {
	for _, query := range []string{deadPayload, sentPayload} {
		if found, err := one(ctx, tx, s.sql(query), []any{d.EventID}, &d.EventType, &d.Payload); found || err != nil {
			return err
		}
	}
	return f.ErrNoPayload()
}
