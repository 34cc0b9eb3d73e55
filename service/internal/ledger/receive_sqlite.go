package ledger

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/waybill-go/waybill/service/internal/intake"
)

const insertReceivedSQLite = `
INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at,
	trace_id, body_hash, status, first_seen_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'received', ?, ?)
ON CONFLICT (idempotency_key) DO NOTHING`

const selectKnownSQLite = `SELECT idempotency_key, trace_id, body_hash FROM courier_ledger WHERE idempotency_key IN (SELECT value FROM json_each($1))`

func (l *Ledger) enterSQLite(ctx context.Context, tx *sql.Tx, entries []*intake.Entry) (known map[string]intake.Receipt, err error) {
	repeats, err := l.insertSQLite(ctx, tx, entries)
	if err != nil || len(repeats) == 0 {
		return nil, err
	}
	return knownSQLite(ctx, tx, repeats)
}

// insertSQLite enters what is not known, and returns the keys of what was.
func (l *Ledger) insertSQLite(ctx context.Context, tx *sql.Tx, entries []*intake.Entry) (repeats []string, err error) {
	insert, err := tx.PrepareContext(ctx, insertReceivedSQLite)
	if err != nil {
		return nil, err
	}
	defer insert.Close()
	for _, entry := range entries {
		e := &entry.Event
		received := l.store.Time(e.ReceivedAt)
		r, err := insert.ExecContext(ctx, e.IdempotencyKey, entry.Envelope.ID, e.EventID, e.EventType, e.Source, entry.ShipmentID,
			l.store.Time(e.OccurredAt), received, e.TraceID, entry.BodyHash, received, received)
		if err != nil {
			return nil, err
		}
		if n, err := r.RowsAffected(); err != nil {
			return nil, err
		} else if n == 0 {
			repeats = append(repeats, e.IdempotencyKey)
		}
	}
	return repeats, nil
}

func knownSQLite(ctx context.Context, tx *sql.Tx, keys []string) (map[string]intake.Receipt, error) {
	list, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, selectKnownSQLite, string(list))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	known := make(map[string]intake.Receipt, len(keys))
	for rows.Next() {
		var key string
		var first intake.Receipt
		if err := rows.Scan(&key, &first.TraceID, &first.BodyHash); err != nil {
			return nil, err
		}
		known[key] = first
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return known, complete(keys, known)
}
