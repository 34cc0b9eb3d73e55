package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// A row that was requeued or adopted is due since long before it was there.
const dueSince = `CASE WHEN due_at > created_at THEN due_at ELSE created_at END`

// outboxBacklog has a row for each partition, and one for what nobody has adopted; where there is
// one index for all partitions, one row for everything. Nothing is read but indexes of pending
// rows, in their order, for as many as are counted: delayed rows are passed over.
func (s *Store) outboxBacklog() string {
	of := func(rows, order, from string, limit int) string {
		due := rows + ` AND (due_at IS NULL OR due_at <= $1) ORDER BY ` + order
		return fmt.Sprintf(`SELECT (SELECT count(*) FROM (SELECT 1%[1]s LIMIT %[3]d) due), (SELECT `+dueSince+`%[1]s LIMIT 1), (SELECT created_at%[2]s LIMIT 1)%[4]s`,
			due, rows+` ORDER BY `+order, limit, from)
	}
	pending := ` FROM event_outbox WHERE status = 'pending' AND partition `
	unadopted := ` UNION ALL ` + of(pending+`IS NULL`, "seq", "", eventing.BacklogPartitionLimit)
	if s.d.WholeLimit {
		return of(pending+`IS NOT NULL`, "seq", "", eventing.Partitions*eventing.BacklogPartitionLimit) + unadopted
	}
	partitions := make([]string, eventing.Partitions)
	for p := range partitions {
		partitions[p] = fmt.Sprintf("(%d)", p)
	}
	// With partition = … ORDER BY seq, and old statistics that know of many pending rows, the primary key looks
	// better than the index that has them alone; a range in its order, it cannot serve.
	return of(pending+`BETWEEN p.column1 AND p.column1`, "partition, seq",
		` FROM (VALUES `+strings.Join(partitions, ", ")+`) AS p`, eventing.BacklogPartitionLimit) + unadopted
}

const (
	// The first condition is for SQLite, which does not see that the second one implies that of the
	// index; the order is for Postgres, which reads all of the index for a minimum while
	// statistics are old.
	oldestSent = `
SELECT sent_at FROM event_outbox WHERE status <> 'pending' AND status = 'sent' AND sent_at IS NOT NULL ORDER BY sent_at LIMIT 1`

	waitingDeliveries = `
SELECT consumer_name, state, count(*), count(DISTINCT COALESCE(ordering_key, event_id))
FROM (SELECT consumer_name, state, ordering_key, event_id FROM event_deliveries WHERE state <> 'dead' LIMIT $1) waiting
GROUP BY consumer_name, state`

	openDeadLetters = `
SELECT consumer_name, count(*)
FROM (SELECT consumer_name FROM dead_letter_consumers WHERE status IN ('pending', 'reviewed', 'replayed') LIMIT $1) open
GROUP BY consumer_name`
)

// Backlog implements [eventing.BacklogStore].
func (s *Store) Backlog(ctx context.Context, now time.Time) (b eventing.Backlog, err error) {
	err = each(ctx, s.db, s.sql(s.outboxBacklog()), []any{s.time(now)}, func(rows Rows) error {
		var due int64
		var since, created Timestamp
		err := rows.Scan(&due, &since, &created)
		b.Due += due
		b.OldestDue, b.OldestPending = earlier(b.OldestDue, since.Time), earlier(b.OldestPending, created.Time)
		return err
	})
	if err != nil {
		return b, err
	}
	var sent Timestamp
	if _, err := one(ctx, s.db, s.sql(oldestSent), nil, &sent); err != nil {
		return b, err
	}
	b.OldestSent = sent.Time
	if b.Deliveries, err = s.waitingDeliveries(ctx); err != nil {
		return b, err
	}
	b.DeadLetters = map[string]int64{}
	err = each(ctx, s.db, s.sql(openDeadLetters), []any{eventing.BacklogLimit}, func(rows Rows) error {
		var consumer string
		var n int64
		err := rows.Scan(&consumer, &n)
		b.DeadLetters[consumer] = n
		return err
	})
	return b, err
}

func (s *Store) waitingDeliveries(ctx context.Context) (map[string]eventing.WaitingDeliveries, error) {
	waiting := map[string]eventing.WaitingDeliveries{}
	err := each(ctx, s.db, s.sql(waitingDeliveries), []any{eventing.BacklogLimit}, func(rows Rows) error {
		var consumer, state string
		var n, keys int64
		if err := rows.Scan(&consumer, &state, &n, &keys); err != nil {
			return err
		}
		w := waiting[consumer]
		switch eventing.State(state) {
		case eventing.StateRetrying:
			w.Retrying = n
		case eventing.StateParked:
			w.Parked, w.ParkedKeys = n, keys
		case eventing.StateNone, eventing.StateDead: // do not wait
		}
		waiting[consumer] = w
		return nil
	})
	return waiting, err
}

// earlier of two times, the zero time being none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
