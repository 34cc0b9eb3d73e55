package sqlstore

import (
	"context"

	"github.com/waybill-go/waybill/eventing"
)

const claim = `
SELECT ` + outboxColumns + `
FROM event_outbox o
WHERE status = 'pending' AND {in ints partition $1} AND (due_at IS NULL OR due_at <= $2) AND NOT {in ints seq $3}
	AND (generation > 0 OR NOT EXISTS (SELECT 1 FROM dead_letter_consumers h
		WHERE h.holds_key = o.ordering_key AND h.status <> 'closed'))
ORDER BY seq LIMIT $4`

// Claim implements [eventing.DispatchStore].
func (s *Store) Claim(ctx context.Context, r eventing.ClaimRequest) (claimed []eventing.OutboxRow, err error) {
	args := []any{s.ints(r.Partitions), s.time(r.Now), s.d.Ints(r.Exclude), r.Limit}
	err = each(ctx, s.db, s.sql(claim), args, func(rows Rows) error {
		claimed = append(claimed, eventing.OutboxRow{})
		return scanOutboxRow(rows, &claimed[len(claimed)-1])
	})
	return claimed, err
}

const settleHeld = `
WHERE {in ints seq $1} AND status = 'pending'
	AND EXISTS (SELECT 1 FROM event_leases l WHERE l.scope = '` + eventing.DispatchScope + `'
		AND l.partition = event_outbox.partition AND l.holder = $2 AND l.lease_until > $3)`

const settle = `UPDATE event_outbox SET status = 'sent', sent_at = $3, attempts = attempts + 1` + settleHeld

const settleByCompletion = `UPDATE event_outbox SET sent_at = $3, attempts = attempts + 1,
	status = CASE WHEN EXISTS (SELECT 1 FROM dead_letter_consumers c
		WHERE c.event_id = event_outbox.event_id AND c.stage <> 'dispatch' AND c.status IN ('pending', 'reviewed')
			AND (event_outbox.consumer_name IS NULL OR c.consumer_name = event_outbox.consumer_name))
		THEN 'failed' ELSE 'sent' END` + settleHeld

const closePublished = `
UPDATE dead_letter_consumers SET status = 'closed', resolution = 'resolved', updated_at = $2
WHERE event_id = $1 AND consumer_name = '' AND status = 'replayed'`

// Settle implements [eventing.DispatchStore].
func (s *Store) Settle(ctx context.Context, r eventing.SettleRequest) (n int, err error) {
	seqs := make([]int64, len(r.Rows)) // not the IDs: those of hand-written rows need not be text
	for i, row := range r.Rows {
		seqs[i] = row.Seq
	}
	query := settle
	if r.ByCompletion {
		query = settleByCompletion
	}
	err = s.inTx(ctx, func(tx Tx) error {
		marked, err := tx.Exec(ctx, s.sql(query), s.d.Ints(seqs), r.Holder, s.time(r.Now))
		if err != nil {
			return err
		}
		n = int(marked)
		for _, row := range r.Rows {
			if row.Generation == 0 || row.Consumer != "" {
				continue
			}
			if _, err := tx.Exec(ctx, s.sql(closePublished), row.EventID, s.time(r.Now)); err != nil {
				return err
			}
		}
		return eventing.Fault(ctx, eventing.FaultSettling)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

const failRow = `
UPDATE event_outbox SET status = 'failed', sent_at = $3, attempts = attempts + 1, last_error = $4` + settleHeld

// FailDispatch implements [eventing.DispatchStore].
func (s *Store) FailDispatch(ctx context.Context, f eventing.DispatchFailure) error {
	return s.inTx(ctx, func(tx Tx) error {
		marked, err := tx.Exec(ctx, s.sql(failRow), s.d.Ints([]int64{f.Row.Seq}), f.Holder, s.time(f.Now), f.Message)
		if err != nil || marked == 0 {
			return err
		}
		dl := death{
			eventID: f.Row.EventID, consumer: f.Row.Consumer, eventType: f.Row.EventType, payload: f.Row.Payload,
			stage: eventing.StageDispatch, reason: f.Reason, message: f.Message, orderingKey: f.Row.OrderingKey,
			generation: f.Row.Generation, now: f.Now, until: f.DeadLetterUntil,
		}
		if f.HoldKey {
			dl.holdsKey = f.Row.OrderingKey
		}
		if err := s.recordDeath(ctx, tx, dl); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultDispatchFailing)
	})
}
