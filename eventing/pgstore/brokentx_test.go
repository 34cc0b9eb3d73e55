package pgstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/internal/sqltest"
)

const (
	failing  = `SELECT 1/0`
	deferred = `CREATE TEMP TABLE parents (id int PRIMARY KEY); CREATE TEMP TABLE children (id int REFERENCES parents DEFERRABLE INITIALLY DEFERRED); INSERT INTO children VALUES (7)`
)

func TestBrokenTx(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"an ignored error": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, failing)
			return nil
		},
		"a constraint that is checked at the commit": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, deferred)
			return err
		},
		"a result that it has not read": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, `SELECT generate_series(1, 100000)`) //nolint:sqlclosecheck // that is the point
			return err
		},
		"a pause that the server does not allow": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '10ms'`); err != nil {
				return err
			}
			return awaitEnd(ctx, tx.Conn())
		},
		"a commit of its own":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"a rollback of its own": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sqltest.BrokenTx(t, open(t), spoil)
		})
	}
}

// awaitEnd waits until the server has closed a connection, which the connection itself
// does not notice.
func awaitEnd(ctx context.Context, c *pgx.Conn) error {
	other, err := pgx.ConnectConfig(ctx, c.Config())
	if err != nil {
		return err
	}
	defer other.Close(ctx)
	for alive := true; alive && err == nil; {
		err = other.QueryRow(ctx, `SELECT pg_sleep(0.01) IS NOT NULL AND EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)`, int64(c.PgConn().PID())).Scan(&alive)
	}
	return err
}

func TestBrokenSQLTx(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"an ignored error": func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, failing)
			return nil
		},
		"a commit of its own":   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		"a rollback of its own": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sqltest.BrokenTx(t, openSQL(t), spoil)
		})
	}
}
