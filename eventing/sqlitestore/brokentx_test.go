package sqlitestore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/waybill-go/waybill/internal/sqltest"
)

func TestBrokenTx(t *testing.T) {
	t.Parallel()
	exec := func(statement string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}
	}
	for name, spoil := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"a constraint that is checked at the commit": exec(`CREATE TABLE parents (id INTEGER PRIMARY KEY);
			CREATE TABLE children (id INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED); INSERT INTO children VALUES (7)`),
		"a commit of its own":   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		"a rollback of its own": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sqltest.BrokenTx(t, open(t), spoil)
		})
	}
}
