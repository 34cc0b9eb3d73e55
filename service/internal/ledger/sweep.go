package ledger

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

// A row may go when it has expired, or is stuck, and nothing can run its event or remembers it.
const forgotten = `(l.expires_at < $1 OR (l.status IN ('processing', 'failed') AND l.updated_at < $3 AND l.expires_at IS NULL)) AND l.status <> 'received'
		AND NOT EXISTS (SELECT 1 FROM processed_events p WHERE p.event_id = l.envelope_id)
		AND NOT EXISTS (SELECT 1 FROM dead_letter_consumers c WHERE c.event_id = l.envelope_id)
		AND NOT EXISTS (SELECT 1 FROM event_deliveries d WHERE d.event_id = l.envelope_id)
		AND NOT EXISTS (SELECT 1 FROM event_outbox o WHERE o.id = l.envelope_id AND o.status = 'pending')
		AND NOT EXISTS (SELECT 1 FROM event_outbox o WHERE o.event_id = l.envelope_id AND o.id <> o.event_id AND o.status = 'pending')`

const (
	sweepSQLite = `
DELETE FROM courier_ledger WHERE idempotency_key IN (SELECT l.idempotency_key FROM courier_ledger l WHERE ` + forgotten + ` LIMIT $2)`

	// Rows are found by when they were first seen, which never changes: were there an index of what does, each update would enter its row
	// into all indexes anew. No row expires before it is as old as final ones are kept.
	// ARRAY, not IN: that is a join, for which the server may read all of the ledger, a thousand times over.
	sweepPostgres = `
DELETE FROM courier_ledger WHERE ctid = ANY(ARRAY(SELECT l.ctid FROM courier_ledger l
	WHERE l.first_seen_at >= coalesce(CAST($4 AS timestamptz), '-infinity') AND l.first_seen_at < $3 AND ` + forgotten + `
	ORDER BY l.first_seen_at LIMIT $2 FOR UPDATE OF l SKIP LOCKED))
RETURNING first_seen_at`
)

// round is how far the sweeps of PostgreSQL are through the rows that are old enough.
type round struct {
	mu    sync.Mutex
	began time.Time
	from  time.Time // what was seen before is either gone, or stays for now; zero: nothing was
}

const (
	// roundEvery is after how long rows that had to stay are looked at again.
	roundEvery = time.Hour
	// lateBy is for how long rows are looked at again each time: the inbox forgets an event somewhat after its row has come of age.
	lateBy = 3 * time.Minute
)

// Sweep removes at most limit rows that have expired, and whose event nothing can run
// and nothing remembers any more: while the inbox or a dead letter does, the same event
// sent anew would be accepted and not run. It returns how many. On PostgreSQL it removes no row of which less than the retention has
// passed since it was first seen, and a row that had to stay may be looked at again an hour later only.
func (l *Ledger) Sweep(ctx context.Context, now time.Time, limit int) (n int64, err error) {
	old := now.Add(-l.retention)
	if !l.store.Embedded {
		return l.sweepOn(ctx, now.Round(0), old.Round(0), limit) // by the wall clock
	}
	err = l.store.Events.InTx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, sweepSQLite, l.store.Time(now), limit, l.store.Time(old))
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	return n, err
}

// sweepOn goes on where the sweep before it ended.
func (l *Ledger) sweepOn(ctx context.Context, now, old time.Time, limit int) (n int64, err error) {
	l.round.mu.Lock()
	defer l.round.mu.Unlock()
	if age := now.Sub(l.round.began); age < 0 || age >= roundEvery {
		l.round.began, l.round.from = now, time.Time{}
	}
	next := l.round.from
	err = l.store.Events.InTx(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, sweepPostgres, l.store.Time(now), limit, l.store.Time(old), l.store.Time(l.round.from))
		if err != nil {
			return err
		}
		defer rows.Close()
		for ; rows.Next(); n++ {
			var seen sqlstore.Timestamp
			if err := rows.Scan(&seen); err != nil {
				return err
			}
			if seen.After(next) {
				next = seen.Time
			}
		}
		return rows.Err()
	})
	if err != nil {
		return 0, err
	}
	if n < int64(limit) {
		next = old.Add(-lateBy)
	}
	l.round.from = next
	return n, nil
}
