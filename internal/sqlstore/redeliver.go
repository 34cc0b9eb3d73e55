package sqlstore

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

const deliveryColumns = `event_id, event_type, ordering_key, partition, state, attempts, prior_attempts, generation, attempt_history, payload, coalesce(outbox_seq, 0), coalesce(forced, false),
	coalesce(routing_version, '')`

const claimDue = `
UPDATE event_deliveries SET claim_token = $2, claim_until = $3
WHERE consumer_name = $1 AND {in event_id $4} RETURNING ` + deliveryColumns

const findDue = `
SELECT event_id FROM event_deliveries
WHERE consumer_name = $1 AND (state = 'parked' OR (state = 'retrying' AND due_at <= $2)) AND (claim_until IS NULL OR claim_until <= $2) AND NOT {in event_id $3}
ORDER BY due_at, position LIMIT $4 {skip locked}`

// Of each key only the head: while anything is before it, a delivery waits.
const heads = `
SELECT ` + deliveryColumns + ` FROM event_deliveries d
WHERE consumer_name = $1 AND (state = 'parked' OR (state = 'retrying' AND due_at <= $2)) AND NOT {in event_id $3} AND {in ints partition $5}
	AND NOT EXISTS (SELECT 1 FROM event_deliveries e
		WHERE e.consumer_name = d.consumer_name AND e.ordering_key = d.ordering_key AND e.position < d.position)
ORDER BY position LIMIT $4`

// Due implements [eventing.ConsumerStore].
func (s *Store) Due(ctx context.Context, r eventing.DueRequest) ([]eventing.Run, error) {
	if !r.Ordered {
		return s.claimDue(ctx, r)
	}
	if len(r.Leases) == 0 {
		return nil, nil
	}
	leases := make(map[int]*eventing.Lease, len(r.Leases))
	partitions := make([]int, len(r.Leases))
	for i := range r.Leases {
		leases[r.Leases[i].Partition] = &r.Leases[i]
		partitions[i] = r.Leases[i].Partition
	}
	var runs []eventing.Run
	args := []any{r.Consumer, s.time(r.Now), s.list(r.Exclude), r.Limit, s.ints(partitions)}
	err := each(ctx, s.db, s.sql(heads), args, func(rows Rows) error {
		run, err := scanRun(rows, r.Consumer)
		run.Lease = leases[run.Partition]
		runs = append(runs, run)
		return err
	})
	return runs, err
}

// claimDue claims retries of an unordered consumer: whoever dies with one leaves
// it to the others when the claim ends.
func (s *Store) claimDue(ctx context.Context, r eventing.DueRequest) (runs []eventing.Run, err error) {
	args := []any{r.Consumer, s.time(r.Now), s.list(r.Exclude), r.Limit}
	var due int
	if found, err := one(ctx, s.db, s.sql(dueExists), []any{r.Consumer, s.time(r.Now)}, &due); err != nil || !found {
		return nil, err // nearly always: no transaction for it
	}
	err = s.retryTx(ctx, func(tx Tx) error {
		runs = nil
		var ids []string
		if err := each(ctx, tx, s.sql(findDue), args, func(rows Rows) error {
			ids = append(ids, "")
			return rows.Scan(&ids[len(ids)-1])
		}); err != nil || len(ids) == 0 {
			return err
		}
		return each(ctx, tx, s.sql(claimDue), []any{r.Consumer, r.ClaimToken, s.time(r.ClaimUntil), s.list(ids)}, func(rows Rows) error {
			run, err := scanRun(rows, r.Consumer)
			run.ClaimToken = r.ClaimToken
			runs = append(runs, run)
			return err
		})
	})
	return runs, err
}

const dueExists = `SELECT 1 FROM event_deliveries WHERE consumer_name = $1 AND (state = 'parked' OR (state = 'retrying' AND due_at <= $2)) LIMIT 1`

func scanRun(rows Rows, consumer string) (eventing.Run, error) {
	r := eventing.Run{Delivery: eventing.Delivery{Consumer: consumer}}
	var key text
	var state string
	var history jsonText[[]eventing.Attempt]
	err := rows.Scan(&r.EventID, &r.EventType, &key, &r.Partition, &state, &r.Attempts, &r.PriorAttempts, &r.Generation, &history, &r.Payload, &r.OutboxSeq, &r.Force, &r.RoutingVersion)
	r.OrderingKey, r.Found, r.History = string(key), eventing.State(state), history.V
	return r, err
}

const inboxGeneration = `SELECT generation FROM processed_events WHERE event_id = $1 AND consumer_name = $2`

// What a forced run above the inbox row's generation has to do is not done.
const (
	forgetDelivery   = `DELETE FROM event_deliveries WHERE consumer_name = $1 AND event_id = $2 AND (forced IS NULL OR generation <= $3)`
	forgetDeadLetter = resolve + ` AND generation <= $5`
)

// Forget implements [eventing.ConsumerStore].
func (s *Store) Forget(ctx context.Context, r eventing.Run, now time.Time) error {
	return s.retryTx(ctx, func(tx Tx) error {
		var generation int
		found, err := one(ctx, tx, s.sql(inboxGeneration), []any{r.EventID, r.Consumer}, &generation)
		if err != nil || !found {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql(forgetDeadLetter), r.Consumer, r.EventID, s.time(now), nil, generation); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.sql(forgetDelivery), r.Consumer, r.EventID, generation)
		return err
	})
}
