package store

import (
	"context"
	"database/sql"
	"fmt"
)

// SQLite reads the index of the pending rows that have a partition; for those that have none yet, and are few, another.
const (
	pendingSQLite = `
SELECT (SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'pending' AND partition IS NOT NULL LIMIT $1) AS adopted)
	+ (SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'pending' AND partition IS NULL LIMIT $1) AS unadopted)`
	pendingPostgres = `SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'pending' LIMIT $1) AS pending`
)

// Pending counts the outbox rows that have yet to be sent, up to limit or a little more. It reads an index of these alone,
// and so costs what waits, not what is kept.
func (s *Store) Pending(ctx context.Context, limit int64) (n int64, err error) {
	tx, err := s.Read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, fmt.Errorf("count what is pending: %w", err)
	}
	defer tx.Rollback()
	query := pendingSQLite
	if !s.Embedded {
		query = pendingPostgres
		// While statistics are old, all of the table looks as good as the index.
		if _, err := tx.ExecContext(ctx, `SET LOCAL enable_seqscan = off`); err != nil {
			return 0, fmt.Errorf("count what is pending: %w", err)
		}
	}
	if err := tx.QueryRowContext(ctx, query, limit).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what is pending: %w", err)
	}
	return n, nil
}
