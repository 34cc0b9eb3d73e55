package store

import (
	"context"
	"fmt"
)

// What is pending is read from indexes of the pending rows alone: of SQLite, one has those with a partition, another
// those that have none yet; of Postgres, one has all, by partition.
const (
	boundSQLite = `
SELECT coalesce((SELECT max(seq) FROM event_outbox) + 1 - min(first), 0) FROM (
	SELECT min(seq) AS first FROM event_outbox WHERE status = 'pending' AND partition IS NOT NULL
	UNION ALL SELECT min(seq) FROM event_outbox WHERE status = 'pending' AND partition IS NULL) AS firsts`
	countSQLite = `
SELECT (SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'pending' AND partition IS NOT NULL LIMIT $1) AS adopted)
	+ (SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'pending' AND partition IS NULL LIMIT $1) AS unadopted)`

	// A range, as with = and an order by seq alone the primary key may look better.
	boundPostgres = `
SELECT coalesce((SELECT max(seq) FROM event_outbox) + 1 - min(first), 0) FROM (
	SELECT (SELECT seq FROM event_outbox WHERE status = 'pending' AND partition BETWEEN p AND p ORDER BY partition, seq LIMIT 1) AS first
	FROM generate_series(0, 31) AS p
	UNION ALL SELECT (SELECT seq FROM event_outbox WHERE status = 'pending' AND partition IS NULL ORDER BY seq LIMIT 1)) AS firsts`
	countPostgres = `SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'pending' LIMIT $1) AS pending`
)

// PendingAtMost returns how many outbox rows have yet to be sent at most: all since the oldest of them. It costs next to
// nothing, however many there are.
func (s *Store) PendingAtMost(ctx context.Context) (int64, error) {
	if s.Embedded {
		return s.pending(ctx, boundSQLite)
	}
	return s.pending(ctx, boundPostgres)
}

// Pending counts the outbox rows that have yet to be sent, up to limit or a little more. It costs what waits, not what is
// kept; some seconds for a million rows that are new.
func (s *Store) Pending(ctx context.Context, limit int64) (int64, error) {
	if s.Embedded {
		return s.pending(ctx, countSQLite, limit)
	}
	return s.pending(ctx, countPostgres, limit)
}

func (s *Store) pending(ctx context.Context, query string, args ...any) (n int64, err error) {
	if err := s.Read.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what is pending: %w", err)
	}
	return n, nil
}
