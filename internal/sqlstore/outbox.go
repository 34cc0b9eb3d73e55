package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/eventing"
)

const outboxColumns = `seq, id, event_id, event_type, payload, ordering_key, partition, created_at, due_at, consumer_name, generation`

func scanOutboxRow(rows Rows, r *eventing.OutboxRow) error {
	var key, consumer text
	var created, due Timestamp
	var partition *int // NULL in a hand-written row
	if err := rows.Scan(&r.Seq, &r.ID, &r.EventID, &r.EventType, &r.Payload, &key, &partition, &created, &due, &consumer, &r.Generation); err != nil {
		return err
	}
	r.OrderingKey, r.Consumer, r.CreatedAt, r.DueAt = string(key), string(consumer), created.Time, due.Time
	if partition != nil {
		r.Partition = *partition
	}
	return nil
}

// AppendRows inserts pending rows.
func (s *Store) AppendRows(ctx context.Context, c Conn, rows []eventing.OutboxRow) error {
	for part := range slices.Chunk(rows, s.d.RowsPerInsert) {
		args := make([]any, 0, len(part)*insertRowValues)
		for _, r := range part {
			args = append(args, r.ID, r.EventID, r.EventType, string(r.Payload), nullable(r.OrderingKey), r.Partition,
				s.time(r.CreatedAt), s.time(r.DueAt), nullable(r.Consumer), r.Generation)
		}
		if _, err := c.Exec(ctx, s.insertRows(len(part)), args...); err != nil {
			return err
		}
	}
	return nil
}

const (
	insertRow       = `INSERT INTO event_outbox (id, event_id, event_type, payload, ordering_key, partition, created_at, due_at, consumer_name, generation) VALUES `
	insertRowValues = 10
)

// insertRows returns the statement that inserts n rows.
func (s *Store) insertRows(n int) string {
	if q, ok := s.inserts.Load(n); ok {
		return q.(string)
	}
	var b strings.Builder
	b.WriteString(insertRow)
	for i := range n * insertRowValues {
		switch {
		case i == 0:
			b.WriteByte('(')
		case i%insertRowValues == 0:
			b.WriteString("), (")
		default:
			b.WriteByte(',')
		}
		if s.d.Positional {
			b.WriteByte('?')
		} else {
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(i + 1))
		}
	}
	b.WriteByte(')')
	s.inserts.Store(n, b.String())
	return b.String()
}

// LockKeys holds off other transactions that lock one of the keys.
func (s *Store) LockKeys(ctx context.Context, c Conn, keys []string) error {
	if s.d.LockKeys == nil {
		return nil
	}
	return s.d.LockKeys(ctx, c, keys)
}
