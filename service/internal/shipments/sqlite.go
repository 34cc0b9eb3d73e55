package shipments

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
)

const (
	sqliteKnown  = `SELECT 1 FROM courier_ledger WHERE idempotency_key = $1 AND envelope_id = $2 AND status = 'processed'`
	sqliteRecord = `INSERT INTO shipment_events (shipment_id, idempotency_key, event_id, outcome, occurred_at, processed_at) VALUES ($1, $2, $3, $4, $5, $6)`
	sqliteLedger = `UPDATE courier_ledger SET status = 'processed', outcome = $3, attempt_count = $4, updated_at = $5, expires_at = $6
WHERE idempotency_key = $1 AND envelope_id = $2`
)

var sqliteUpsert = upsertFor("TEXT")

// sqliteRun has the statements of a transaction: to parse them takes longer than to run them.
type sqliteRun struct {
	s                             *Shipments
	known, upsert, record, ledger *sql.Stmt
}

// SQLite is the projection in a file.
type SQLite struct{ *Shipments }

// Process implements [worker.Projection], in several statements for each event: there is no way to put them into one, and
// no round trip to save.
func (s SQLite) Process(ctx context.Context, tx *sql.Tx, arrivals []courier.Arrival, now, until time.Time) ([]courier.Effect, error) {
	run := sqliteRun{s: s.Shipments}
	for _, p := range []struct {
		into *(*sql.Stmt)
		text string
	}{{&run.known, sqliteKnown}, {&run.upsert, sqliteUpsert}, {&run.record, sqliteRecord}, {&run.ledger, sqliteLedger}} {
		statement, err := tx.PrepareContext(ctx, p.text)
		if err != nil {
			return nil, err
		}
		defer statement.Close()
		*p.into = statement
	}
	effects := make([]courier.Effect, len(arrivals))
	for i := range arrivals {
		var err error
		if effects[i], err = run.process(ctx, &arrivals[i], now, until); err != nil {
			return nil, fmt.Errorf("shipment %s: %w", arrivals[i].Payload.ShipmentID, err)
		}
	}
	return effects, nil
}

func (r *sqliteRun) process(ctx context.Context, a *courier.Arrival, now, until time.Time) (e courier.Effect, err error) {
	var known int
	if err := r.known.QueryRowContext(ctx, a.Event.IdempotencyKey, a.EnvelopeID).Scan(&known); !errors.Is(err, sql.ErrNoRows) {
		return e, err
	}
	e.Outcome = courier.OutcomeApplied
	err = r.upsert.QueryRowContext(ctx, r.s.upsertArgs(a, now)...).Scan(&e.Previous, &e.Current, &e.OrderID)
	if errors.Is(err, sql.ErrNoRows) {
		e.Outcome, err = courier.OutcomeLate, nil
	}
	if err != nil {
		return e, err
	}
	at, processed := r.s.store.Time(courier.VersionOf(a.Event).At), r.s.store.Time(now)
	if _, err := r.record.ExecContext(ctx, a.Payload.ShipmentID, a.Event.IdempotencyKey, a.Event.EventID, string(e.Outcome), at, processed); err != nil {
		return e, err
	}
	_, err = r.ledger.ExecContext(ctx, a.Event.IdempotencyKey, a.EnvelopeID, string(e.Outcome), a.Attempt, processed, r.s.store.Time(until))
	return e, err
}
