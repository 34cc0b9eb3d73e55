package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/service/internal/intake"
)

// One statement of fixed text for any number of rows: it is planned once.
const insertNewPostgres = `
INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at,
	trace_id, body_hash, status, first_seen_at, updated_at)
SELECT key, envelope, event, type, source, shipment, occurred, received, trace, hash, 'received', received, received
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[], $9::text[], $10::text[])
	AS entry (key, envelope, event, type, source, shipment, occurred, received, trace, hash)`

const insertReceivedPostgres = insertNewPostgres + `
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING idempotency_key`

func (l *Ledger) enterPostgres(ctx context.Context, tx pgx.Tx, entries []*intake.Entry) (known map[string]intake.Receipt, err error) {
	rows, err := tx.Query(ctx, insertReceivedPostgres, columnsOf(entries)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	entered := make(map[string]struct{}, len(entries))
	for rows.Next() {
		entered[string(rows.RawValues()[0])] = struct{}{} // a text is its bytes
	}
	if err := rows.Err(); err != nil || len(entered) == len(entries) {
		return nil, err
	}
	return l.knownPostgres(ctx, tx, missing(entries, entered))
}

// enterNewPostgres has it fail if one of the entries is known.
func (l *Ledger) enterNewPostgres(ctx context.Context, tx pgx.Tx, entries []*intake.Entry) (known map[string]intake.Receipt, err error) {
	return nil, l.store.Intake.ExecLater(ctx, tx, insertNewPostgres, columnsOf(entries)...)
}

// columnsOf are the parameters of [insertNewPostgres].
func columnsOf(entries []*intake.Entry) []any {
	const columns = 8
	n := len(entries)
	texts := make([]string, columns*n)
	column := func(i int) []string { return texts[i*n : (i+1)*n] }
	keys, envelopes, events, types, sources, shipments, traces, hashes := column(0), column(1), column(2), column(3), column(4), column(5), column(6), column(7)
	occurred, received := make([]time.Time, n), make([]time.Time, n)
	for i := range entries {
		e := &entries[i].Event
		keys[i], envelopes[i], events[i], types[i], sources[i] = e.IdempotencyKey, entries[i].Envelope.ID, e.EventID, e.EventType, e.Source
		shipments[i], traces[i], hashes[i] = entries[i].ShipmentID, e.TraceID, entries[i].BodyHash
		occurred[i], received[i] = e.OccurredAt.UTC(), e.ReceivedAt.UTC()
	}
	return []any{keys, envelopes, events, types, sources, shipments, occurred, received, traces, hashes}
}

// missing returns the keys of the entries that are not in entered.
func missing(entries []*intake.Entry, entered map[string]struct{}) (keys []string) {
	for i := range entries {
		if _, ok := entered[entries[i].Event.IdempotencyKey]; !ok {
			keys = append(keys, entries[i].Event.IdempotencyKey)
		}
	}
	return keys
}

func (l *Ledger) knownPostgres(ctx context.Context, tx pgx.Tx, keys []string) (map[string]intake.Receipt, error) {
	rows, err := tx.Query(ctx, selectKnown+l.store.In("idempotency_key", "$1"), l.store.List(keys))
	if err != nil {
		return nil, err
	}
	known := make(map[string]intake.Receipt, len(keys))
	var key string
	var first intake.Receipt
	if _, err := pgx.ForEachRow(rows, []any{&key, &first.TraceID, &first.BodyHash}, func() error {
		known[key] = first
		return nil
	}); err != nil {
		return nil, err
	}
	return known, complete(keys, known)
}
