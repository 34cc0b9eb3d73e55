package ledger

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

// A row is at least as old as the time for which final ones are kept before it can expire. PostgreSQL finds such rows by when they
// were first seen, which never changes: with an index of what does, each update would enter its row into all indexes anew.
const expired = `
DELETE FROM courier_ledger WHERE idempotency_key IN (SELECT l.idempotency_key FROM courier_ledger l
	WHERE l.first_seen_at >= $4 AND l.first_seen_at < $3
		AND (l.expires_at < $1 OR (l.status IN ('processing', 'failed') AND l.updated_at < $3 AND l.expires_at IS NULL)) AND l.status <> 'received'
		AND NOT EXISTS (SELECT 1 FROM processed_events p WHERE p.event_id = l.envelope_id)
		AND NOT EXISTS (SELECT 1 FROM dead_letter_consumers c WHERE c.event_id = l.envelope_id)
		AND NOT EXISTS (SELECT 1 FROM event_deliveries d WHERE d.event_id = l.envelope_id)
		AND NOT EXISTS (SELECT 1 FROM event_outbox o WHERE o.id = l.envelope_id AND o.status = 'pending')
		AND NOT EXISTS (SELECT 1 FROM event_outbox o WHERE o.event_id = l.envelope_id AND o.id <> o.event_id AND o.status = 'pending')
	ORDER BY l.first_seen_at LIMIT $2)
RETURNING first_seen_at`

// round is how far the sweeps are through the rows that are old enough.
type round struct {
	mu    sync.Mutex
	began time.Time
	from  time.Time // what was seen before is either gone, or stays for now
}

// roundEvery is after how long rows that had to stay are looked at again.
const roundEvery = time.Hour

// Sweep removes at most limit rows that have expired, and whose event nothing can run
// and nothing remembers any more: while the inbox or a dead letter does, the same event
// sent anew would be accepted and not run. It returns how many. A row that stayed at a time when others of
// its age went is looked at again within the hour.
func (l *Ledger) Sweep(ctx context.Context, now time.Time, limit int) (n int64, err error) {
	l.round.mu.Lock()
	defer l.round.mu.Unlock()
	if age := now.Sub(l.round.began); age < 0 || age >= roundEvery {
		l.round.began, l.round.from = now, time.Unix(0, 0)
	}
	old := now.Add(-l.retention)
	var last time.Time
	err = l.store.Events.InTx(ctx, func(tx *sql.Tx) error {
		n = 0
		rows, err := tx.QueryContext(ctx, expired, l.store.Time(now), limit, l.store.Time(old), l.store.Time(l.round.from))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var seen sqlstore.Timestamp
			if err := rows.Scan(&seen); err != nil {
				return err
			}
			n++
			if seen.After(last) {
				last = seen.Time
			}
		}
		return rows.Err()
	})
	switch {
	case err != nil:
		return 0, err
	case n < int64(limit):
		last = old
	}
	l.round.from = last
	return n, nil
}
