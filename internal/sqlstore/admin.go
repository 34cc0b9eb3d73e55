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

const selectedSent = ` WHERE status = 'sent' AND ($1 = 0 OR {in event_id $2})
	AND (CAST($3 AS {timestamp}) IS NULL OR sent_at >= $3) AND (CAST($4 AS {timestamp}) IS NULL OR sent_at < $4)`

// Requeue implements [eventing.AdminStore].
func (s *Store) Requeue(ctx context.Context, f eventing.RequeueFilter, dry bool) (n int, err error) {
	args := []any{len(f.EventIDs), s.list(f.EventIDs), s.time(f.SentFrom), s.time(f.SentTo)}
	if dry {
		_, err = one(ctx, s.db, s.sql(`SELECT count(*) FROM event_outbox`+selectedSent), args, &n)
		return n, err
	}
	err = s.inTx(ctx, func(tx Tx) error {
		changed, err := tx.Exec(ctx, s.sql(`UPDATE event_outbox SET status = 'pending', sent_at = NULL`+selectedSent), args...)
		n = int(changed)
		return err
	})
	return n, err
}
