package ledger

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/service/internal/intake"
)

const insertReceivedSQLite = `
INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at,
	trace_id, body_hash, status, first_seen_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'received', ?, ?)
ON CONFLICT (idempotency_key) DO NOTHING`

func (l *Ledger) enterSQLite(ctx context.Context, tx *sql.Tx, entries []*intake.Entry) (known map[string]intake.Receipt, err error) {
	insert, err := tx.PrepareContext(ctx, insertReceivedSQLite) //nolint:sqlclosecheck // it is, although a function has it
	if err != nil {
		return nil, err
	}
	defer insert.Close()
	repeats, err := l.insertSQLite(entries, func(args ...any) (int64, error) {
		r, err := insert.ExecContext(ctx, args...)
		if err != nil {
			return 0, err
		}
		return r.RowsAffected()
	})
	if err != nil || len(repeats) == 0 {
		return nil, err
	}
	return l.knownSQLite(ctx, tx, repeats)
}

// insertSQLite enters what is not known, with what runs [insertReceivedSQLite], and returns the keys of what was.
func (l *Ledger) insertSQLite(entries []*intake.Entry, insert func(args ...any) (int64, error)) (repeats []string, err error) {
	for _, entry := range entries {
		e := &entry.Event
		received := l.store.Time(e.ReceivedAt)
		n, err := insert(e.IdempotencyKey, entry.Envelope.ID, e.EventID, e.EventType, e.Source, entry.ShipmentID,
			l.store.Time(e.OccurredAt), received, e.TraceID, entry.BodyHash, received, received)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			repeats = append(repeats, e.IdempotencyKey)
		}
	}
	return repeats, nil
}

func (l *Ledger) knownSQLite(ctx context.Context, tx *sql.Tx, keys []string) (map[string]intake.Receipt, error) {
	rows, err := tx.QueryContext(ctx, selectKnown+l.store.In("idempotency_key", "$1"), l.store.List(keys))
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
