package pgstore

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

// One statement of fixed text for any number of rows: it is planned once. The sequence
// is drawn in the order of the rows.
const insertMany = `
INSERT INTO event_outbox (id, event_id, event_type, payload, ordering_key, partition, created_at, due_at, consumer_name, generation, lane)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::timestamptz[], $8::timestamptz[],
	$9::text[], $10::integer[], $11::text[])`

// appendMany inserts many rows at once.
func appendMany(ctx context.Context, c sqlstore.Conn, rows []eventing.OutboxRow) error {
	n := len(rows)
	ids, eventIDs, types, payloads := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	keys, consumers, lanes := make([]*string, n), make([]*string, n), make([]*string, n)
	partitions, generations := make([]int16, n), make([]int32, n)
	created, due := make([]time.Time, n), make([]*time.Time, n)
	for i := range rows {
		r := &rows[i]
		ids[i], eventIDs[i], types[i], payloads[i] = r.ID, r.EventID, r.EventType, string(r.Payload)
		keys[i], consumers[i], lanes[i] = nullable(&r.OrderingKey), nullable(&r.Consumer), nullable((*string)(&r.Lane))
		partitions[i], generations[i] = int16(r.Partition), int32(r.Generation) //nolint:gosec // both are small
		created[i] = r.CreatedAt
		if !r.DueAt.IsZero() {
			due[i] = &r.DueAt
		}
	}
	_, err := c.Exec(ctx, insertMany, ids, eventIDs, types, payloads, keys, partitions, created, due, consumers, generations, lanes)
	return err
}

func nullable(s *string) *string {
	if *s == "" {
		return nil
	}
	return s
}
