package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// outboxTable is an outbox that is filled inside the server: sending it ten million
// rows would take most of the benchmark's time.
type outboxTable struct {
	*arena
	rows int // filled so far
}

// fillChunk is how many rows are inserted in a transaction, and how often the
// progress is told.
const fillChunk = 250_000

// Event IDs ascend, as UUIDv7 do.
const fillRows = `
INSERT INTO event_outbox (id, event_id, event_type, payload, status, ordering_key, partition, created_at, sent_at)
SELECT id, id, $3, replace(replace($4, '{id}', id), '{shipment}', ($5::text[])[k]), $6, ($7::text[])[k], ($8::smallint[])[k], now(),
	CASE WHEN $6 = 'pending' THEN NULL ELSE now() END
FROM generate_series($1::bigint, $2::bigint) AS n,
	LATERAL (SELECT '01980000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS id, (n % cardinality($5::text[]) + 1)::integer AS k) AS row`

// fill adds rows of a status. progress may be nil.
func (t *outboxTable) fill(ctx context.Context, rows int, status string, progress *log.Logger) error {
	template, err := makeEvent("{id}", "evt_{id}", "{shipment}")
	if err != nil {
		return err
	}
	var shipments, keys []string
	var partitions []int16
	for k := range orderingKeys {
		e, err := newEvent(k)
		if err != nil {
			return err
		}
		key := e.OrderKey()
		shipments = append(shipments, e.AggregateID)
		keys = append(keys, key)
		partitions = append(partitions, int16(eventing.PartitionOf(key, ""))) //nolint:gosec // G115: below 32
	}
	start := time.Now()
	for done := 0; done < rows; {
		n := min(fillChunk, rows-done)
		if _, err := t.pool.Exec(
			ctx, fillRows, t.rows+1, t.rows+n,
			eventType, string(template.encoded), shipments, status, keys, partitions,
		); err != nil {
			return fmt.Errorf("fill the outbox: %w", err)
		}
		done += n
		t.rows += n
		if progress != nil {
			perRow := time.Since(start) / time.Duration(done)
			progress.Printf("filled %d of %d rows (%s), %v to go", done, rows, status, (perRow * time.Duration(rows-done)).Round(time.Second))
		}
	}
	return nil
}

// clean leaves the table as autovacuum would, soon after it was filled.
func (t *outboxTable) clean(ctx context.Context) error {
	if _, err := t.pool.Exec(ctx, "VACUUM (ANALYZE) event_outbox"); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}
