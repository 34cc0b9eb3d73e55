package sqlstore

import (
	"context"
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

// rowsPerInsert keeps an INSERT below the databases' bounds on parameters.
const rowsPerInsert = 500

// AppendRows inserts pending rows.
func (s *Store) AppendRows(ctx context.Context, c Conn, rows []eventing.OutboxRow) error {
	for len(rows) > 0 {
		n := min(len(rows), rowsPerInsert)
		if err := s.insertRows(ctx, c, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

const insertRow = `INSERT INTO event_outbox (id, event_id, event_type, payload, ordering_key, partition, created_at, due_at, consumer_name, generation) VALUES `

const insertRowValues = 10

var insertOneRow = insertRow + placeholders(0, insertRowValues)

func (s *Store) insertRows(ctx context.Context, c Conn, rows []eventing.OutboxRow) error {
	args := make([]any, 0, len(rows)*insertRowValues)
	query := insertOneRow
	if len(rows) > 1 {
		var b strings.Builder
		b.WriteString(insertRow)
		for i := range rows {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(placeholders(i*insertRowValues, insertRowValues))
		}
		query = b.String()
	}
	for _, r := range rows {
		args = append(args, r.ID, r.EventID, r.EventType, string(r.Payload), nullable(r.OrderingKey), r.Partition,
			s.time(r.CreatedAt), s.time(r.DueAt), nullable(r.Consumer), r.Generation)
	}
	_, err := c.Exec(ctx, query, args...)
	return err
}

// placeholders returns "($from+1,…,$from+n)".
func placeholders(from, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString([]string{",", "("}[boolToInt(i == 0)])
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(from + i + 1))
	}
	b.WriteByte(')')
	return b.String()
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// LockKeys holds off other transactions that lock one of the keys.
func (s *Store) LockKeys(ctx context.Context, c Conn, keys []string) error {
	if s.d.LockKeys == nil {
		return nil
	}
	return s.d.LockKeys(ctx, c, keys)
}
