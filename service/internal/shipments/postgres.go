package shipments

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// postgresOne does all of [Postgres.Process] for one event in one round trip. Its parts see
// the ledger as it was before: a twin that is about to commit is found by the inbox, whose key both insert.
var postgresOne = `WITH known AS (` + processed + `),
changed AS (` + upsertFor("timestamptz") + `),
recorded AS (
	INSERT INTO shipment_events (shipment_id, idempotency_key, event_id, outcome, occurred_at, processed_at)
	SELECT $1, $11, $2, CASE WHEN EXISTS (SELECT 1 FROM changed) THEN 'applied' ELSE 'late' END, $4, $9 WHERE NOT EXISTS (SELECT 1 FROM known)),
concluded AS (
	UPDATE courier_ledger SET status = 'processed', outcome = CASE WHEN EXISTS (SELECT 1 FROM changed) THEN 'applied' ELSE 'late' END,
		attempt_count = $12, updated_at = $9, expires_at = $13
	WHERE idempotency_key = $11 AND envelope_id = $10 AND status <> 'processed')
SELECT EXISTS (SELECT 1 FROM known), c.previous, c.current_state, c.order_id FROM (SELECT 1) AS one LEFT JOIN changed c ON true`

// Postgres is the projection in PostgreSQL.
type Postgres struct{ *Shipments }

// Process implements [worker.Projection].
func (s Postgres) Process(ctx context.Context, tx pgx.Tx, arrivals []courier.Arrival, now, until time.Time) ([]courier.Effect, error) {
	if len(arrivals) > 1 {
		return s.processBatch(ctx, tx, arrivals, now, until)
	}
	effects := make([]courier.Effect, len(arrivals))
	for i := range arrivals {
		var err error
		if effects[i], err = s.processOne(ctx, tx, &arrivals[i], now, until); err != nil {
			return nil, err
		}
	}
	return effects, nil
}

func (s *Shipments) processOne(ctx context.Context, tx pgx.Tx, a *courier.Arrival, now, until time.Time) (e courier.Effect, err error) {
	args := append(s.upsertArgs(a, now), a.Attempt, s.store.Time(until))
	var known bool
	var previous, current, order *string
	if err := tx.QueryRow(ctx, postgresOne, args...).Scan(&known, &previous, &current, &order); err != nil {
		return e, fmt.Errorf("shipment %s: %w", a.Payload.ShipmentID, err)
	}
	switch {
	case known:
	case previous != nil:
		e = courier.Effect{Outcome: courier.OutcomeApplied, Previous: *previous, Current: *current, OrderID: *order}
	default:
		e.Outcome = courier.OutcomeLate
	}
	return e, nil
}
