package pgstore

import (
	"context"
	"slices"
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

// The same for rows of events that are appended for the first time, to be sent at once: most are.
const insertPlain = `
INSERT INTO event_outbox (id, event_id, event_type, payload, ordering_key, partition, created_at)
SELECT id, id, type, payload, key, partition, created
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::timestamptz[]) AS row (id, type, payload, key, partition, created)`

// outboxColumns are the values of many rows.
type outboxColumns struct {
	ids, eventIDs, types, payloads []string
	keys, consumers, lanes         []*string
	partitions                     []int16
	generations                    []int32
	created                        []time.Time
	due                            []*time.Time
}

func columnsOf(rows []eventing.OutboxRow) outboxColumns {
	n := len(rows)
	c := outboxColumns{
		ids: make([]string, n), eventIDs: make([]string, n), types: make([]string, n), payloads: make([]string, n),
		keys: make([]*string, n), consumers: make([]*string, n), lanes: make([]*string, n),
		partitions: make([]int16, n), generations: make([]int32, n), created: make([]time.Time, n), due: make([]*time.Time, n),
	}
	for i := range rows {
		r := &rows[i]
		c.ids[i], c.eventIDs[i], c.types[i], c.payloads[i] = r.ID, r.EventID, r.EventType, string(r.Payload)
		c.keys[i], c.consumers[i], c.lanes[i] = nullable(&r.OrderingKey), nullable(&r.Consumer), nullable((*string)(&r.Lane))
		c.partitions[i], c.generations[i] = int16(r.Partition), int32(r.Generation) //nolint:gosec // both are small
		c.created[i] = r.CreatedAt
		if !r.DueAt.IsZero() {
			c.due[i] = &r.DueAt
		}
	}
	return c
}

// appendMany inserts many rows at once.
func appendMany(ctx context.Context, conn sqlstore.Conn, rows []eventing.OutboxRow) (err error) {
	c := columnsOf(rows)
	if slices.ContainsFunc(rows, special) {
		_, err = conn.Exec(ctx, insertMany, c.ids, c.eventIDs, c.types, c.payloads, c.keys, c.partitions, c.created, c.due, c.consumers, c.generations, c.lanes)
	} else {
		_, err = conn.Exec(ctx, insertPlain, c.ids, c.types, c.payloads, c.keys, c.partitions, c.created)
	}
	return err
}

// special reports whether a row has values that [insertPlain] does not write.
func special(r eventing.OutboxRow) bool {
	return r.ID != r.EventID || !r.DueAt.IsZero() || r.Consumer != "" || r.Generation != 0 || r.Lane != ""
}

// appendManyText is appendMany for any driver: the lists go as text.
func appendManyText(ctx context.Context, conn sqlstore.Conn, rows []eventing.OutboxRow) error {
	c := columnsOf(rows)
	partitions, generations := make([]int64, len(rows)), make([]int64, len(rows))
	created, due := make([]string, len(rows)), make([]*string, len(rows))
	for i := range rows {
		partitions[i], generations[i] = int64(c.partitions[i]), int64(c.generations[i])
		created[i] = c.created[i].UTC().Format(time.RFC3339Nano)
		if c.due[i] != nil {
			at := c.due[i].UTC().Format(time.RFC3339Nano)
			due[i] = &at
		}
	}
	_, err := conn.Exec(ctx, insertMany, textArray(c.ids), textArray(c.eventIDs), textArray(c.types), textArray(c.payloads), nullableArray(c.keys),
		intArray(partitions), textArray(created), nullableArray(due), nullableArray(c.consumers), intArray(generations), nullableArray(c.lanes))
	return err
}

func nullable(s *string) *string {
	if *s == "" {
		return nil
	}
	return s
}
