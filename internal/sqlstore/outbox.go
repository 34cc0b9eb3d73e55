package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/eventing"
)

// OutboxColumns are what a rowScanner scans. A row's ID is mostly its event's.
const OutboxColumns = `seq, CASE WHEN id = event_id THEN '' ELSE id END, event_id, event_type, payload, coalesce(ordering_key, ''), coalesce(partition, -1),
	created_at, coalesce(consumer_name, ''), generation, coalesce(lane, ''), coalesce(forced, false)`

// rowScanner scans OutboxColumns, and more after them, into a row of its own. What it
// scans into is the same for each row: a claim has thousands.
type rowScanner struct {
	row     eventing.OutboxRow
	created Timestamp
	dest    []any
}

func newRowScanner(more ...any) *rowScanner {
	s := &rowScanner{}
	r := &s.row
	s.dest = append([]any{
		&r.Seq, &r.ID, &r.EventID, &r.EventType, &r.Payload, &r.OrderingKey, &r.Partition, &s.created, &r.Consumer, &r.Generation, (*string)(&r.Lane), &r.Force,
	}, more...)
	return s
}

func (s *rowScanner) scan(rows Rows) error {
	s.row.Payload = nil // not to be overwritten
	err := rows.Scan(s.dest...)
	s.row.CreatedAt = s.created.Time
	if s.row.ID == "" {
		s.row.ID = s.row.EventID
	}
	return err
}

// AppendRows inserts pending rows.
func (s *Store) AppendRows(ctx context.Context, c Conn, rows []eventing.OutboxRow) error {
	if err := s.insert(ctx, c, rows); err != nil || s.Announce == nil || len(rows) == 0 {
		return err
	}
	return s.Announce(ctx, c)
}

func (s *Store) insert(ctx context.Context, c Conn, rows []eventing.OutboxRow) error {
	if s.d.AppendMany != nil && len(rows) > 1 {
		return s.d.AppendMany(ctx, c, rows)
	}
	for part := range slices.Chunk(rows, s.d.RowsPerInsert) {
		args := make([]any, 0, len(part)*insertRowValues)
		for _, r := range part {
			args = append(args, r.ID, r.EventID, r.EventType, string(r.Payload), nullable(r.OrderingKey), r.Partition,
				s.time(r.CreatedAt), s.time(r.DueAt), nullable(r.Consumer), r.Generation, nullable(string(r.Lane)))
		}
		if _, err := c.Exec(ctx, s.insertRows(len(part)), args...); err != nil {
			return err
		}
	}
	return nil
}

const (
	insertRow       = `INSERT INTO event_outbox (id, event_id, event_type, payload, ordering_key, partition, created_at, due_at, consumer_name, generation, lane) VALUES `
	insertRowValues = 11
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
