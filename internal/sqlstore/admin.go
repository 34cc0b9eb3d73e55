package sqlstore

import (
	"context"

	"github.com/waybill-go/waybill/eventing"
)

const (
	countOutbox      = `SELECT status, count(*) FROM event_outbox GROUP BY status`
	countDeliveries  = `SELECT state, count(*) FROM event_deliveries GROUP BY state`
	countDeadLetters = `SELECT status, count(*) FROM dead_letter_consumers GROUP BY status`
	countInbox       = `SELECT 'processed', count(*) FROM processed_events`
	oldestRows       = `SELECT (SELECT min(created_at) FROM event_outbox WHERE status = 'pending'), (SELECT min(sent_at) FROM event_outbox WHERE status = 'sent')`
)

// Stats implements [eventing.AdminStore].
func (s *Store) Stats(ctx context.Context) (st eventing.Stats, err error) {
	inbox := map[string]int64{}
	st.Outbox, st.Deliveries, st.DeadLetters = map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, c := range []struct {
		query string
		into  map[string]int64
	}{{countOutbox, st.Outbox}, {countDeliveries, st.Deliveries}, {countDeadLetters, st.DeadLetters}, {countInbox, inbox}} {
		if err := each(ctx, s.db, s.sql(c.query), nil, func(rows Rows) error {
			var name string
			var n int64
			err := rows.Scan(&name, &n)
			c.into[name] = n
			return err
		}); err != nil {
			return st, err
		}
	}
	st.Inbox = inbox["processed"]
	var pending, sent Timestamp
	_, err = one(ctx, s.db, s.sql(oldestRows), nil, &pending, &sent)
	st.OldestPending, st.OldestSent = pending.Time, sent.Time
	return st, err
}

// Later rows have been dispatched before: see completeRow. What adoption has set aside has an
// error, and was never sent.
const requeue = `
UPDATE event_outbox SET status = 'pending', sent_at = NULL, due_at = $2, lane = CASE WHEN lane = 'expedited' THEN 'critical' ELSE lane END
WHERE {in ints seq $1} AND status = 'sent' AND last_error IS NULL
	AND NOT EXISTS (SELECT 1 FROM event_outbox p WHERE p.id = event_outbox.id AND p.status = 'pending')`

// Requeue implements [eventing.AdminStore].
func (s *Store) Requeue(ctx context.Context, seqs []int64) (n int, err error) {
	err = s.retryTx(ctx, func(tx Tx) error {
		changed, err := tx.Exec(ctx, s.sql(requeue), s.d.Ints(seqs), s.time(longAgo))
		n = int(changed)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
