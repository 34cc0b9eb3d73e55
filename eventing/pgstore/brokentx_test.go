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
		"a commit of its own":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"a rollback of its own": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sqltest.BrokenTx(t, open(t), spoil)
		})
	}
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
