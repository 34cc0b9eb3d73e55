package sqlstore

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// One round trip for all that the arrival table asks.
const arrive = `
SELECT coalesce((SELECT generation FROM processed_events WHERE event_id = $1 AND consumer_name = $2), -1),
	d.state, coalesce(d.generation, 0), coalesce(d.attempts, 0), coalesce(d.prior_attempts, 0), d.attempt_history,
	c.status, c.resolution, coalesce(c.generation, 0), coalesce(c.attempt_count, 0), c.attempt_history,
	$3 <> '' AND EXISTS (SELECT 1 FROM event_deliveries o WHERE o.consumer_name = $2 AND o.ordering_key = $3 AND o.event_id <> $1),
	$3 <> '' AND EXISTS (SELECT 1 FROM event_deliveries o WHERE o.consumer_name = $2 AND o.ordering_key = $3 AND o.position < d.position)
FROM (SELECT 1 AS one) AS x
LEFT JOIN event_deliveries d ON d.consumer_name = $2 AND d.event_id = $1
LEFT JOIN dead_letter_consumers c ON c.consumer_name = $2 AND c.event_id = $1`

// Arrive implements [eventing.ConsumerStore].
func (s *Store) Arrive(ctx context.Context, d eventing.Delivery, lease *eventing.Lease, now time.Time) (eventing.Decision, eventing.Run, error) {
	var f eventing.Found
	var state, status, resolution text
	var history, died jsonText[[]eventing.Attempt]
	var deaths int
	run := eventing.Run{Delivery: d, Lease: lease}
	if _, err := one(ctx, s.db, s.sql(arrive), []any{d.EventID, d.Consumer, d.OrderingKey},
		&f.InboxGeneration, &state, &f.Generation, &f.Attempts, &f.PriorAttempts, &history, &status, &resolution, &f.DeadGeneration, &deaths, &died, &f.KeyBusy, &f.Ahead); err != nil {
		return "", run, err
	}
	f.Processed, f.InboxGeneration = f.InboxGeneration >= 0, max(f.InboxGeneration, 0)
	f.State, f.History = eventing.State(state), history.V
	if f.State == eventing.StateNone && d.Generation > 0 { // forced, or the replay of bytes that did not decode: no row went on counting
		f.Attempts, f.PriorAttempts, f.History = deaths, deaths, died.V
	}
	f.Replayed = eventing.ReviewStatus(status) == eventing.StatusReplayed
	f.Discarded = eventing.Resolution(resolution) == eventing.Discarded
	run.Found, run.Attempts, run.PriorAttempts, run.History = f.State, f.Attempts, f.PriorAttempts, f.History
	decision := eventing.Decide(d, f)
	if decision == eventing.DecidePark {
		return decision, run, s.park(ctx, d, f.State, lease, now)
	}
	return decision, run, nil
}

// The position is assigned by the database: a later row has a higher one.
const insertDelivery = `
INSERT INTO event_deliveries (consumer_name, event_id, event_type, ordering_key, partition, state, attempts, prior_attempts, due_at,
	generation, attempt_history, payload, outbox_seq, created_at, updated_at, forced, routing_version)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $14, $15, $16)
ON CONFLICT (consumer_name, event_id) DO NOTHING`

const parkDead = `
UPDATE event_deliveries SET state = 'parked', updated_at = $4, payload = $5, outbox_seq = $6, routing_version = $7
WHERE consumer_name = $1 AND event_id = $2 AND state = 'dead' AND generation = $3`

func (s *Store) park(ctx context.Context, d eventing.Delivery, found eventing.State, lease *eventing.Lease, now time.Time) error {
	return s.retryTx(ctx, func(tx Tx) error {
		if err := s.checkLease(ctx, tx, lease); err != nil {
			return err
		}
		var err error
		if found == eventing.StateDead {
			_, err = tx.Exec(ctx, s.sql(parkDead), d.Consumer, d.EventID, d.Generation, s.time(now), string(d.Payload), nullableInt(d.OutboxSeq), nullable(d.RoutingVersion))
		} else {
			_, err = tx.Exec(ctx, s.sql(insertDelivery), d.Consumer, d.EventID, d.EventType, nullable(d.OrderingKey), d.Partition,
				string(eventing.StateParked), 0, 0, nil, d.Generation, nil, string(d.Payload), nullableInt(d.OutboxSeq), s.time(now), nullableBool(d.Force), nullable(d.RoutingVersion))
		}
		if err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultParking)
	})
}
