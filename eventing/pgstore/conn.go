package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

// querier is what a pool and a transaction have in common.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// pgConn types the errors of what it wraps.
type pgConn struct{ q querier }

func (c pgConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := c.q.Exec(ctx, query, args...)
	return tag.RowsAffected(), c.typed(err)
}

func (c pgConn) Query(ctx context.Context, query string, args ...any) (sqlstore.Rows, error) {
	rows, err := c.q.Query(ctx, query, args...)
	if err != nil {
		return nil, c.typed(err)
	}
	return pgRows{rows}, nil
}

// typed tells a connection that is busy from one that is lost.
func (c pgConn) typed(err error) error {
	if tx, ok := c.q.(pgx.Tx); ok && pgconn.SafeToRetry(err) && tx.Conn().PgConn().IsBusy() {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	return typed(err)
}

type pgRows struct{ pgx.Rows }

func (r pgRows) Err() error { return typed(r.Rows.Err()) }

// ownTx begins transactions of the store's own. The server is to end one whose process is
// frozen or gone, and with it the locks that others wait for
// (https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-IDLE-IN-TRANSACTION-SESSION-TIMEOUT),
// and not to compile plans, which takes longer than to run them.
const ownTx = "SET LOCAL idle_in_transaction_session_timeout = '3s'; SET LOCAL jit = off"

type pgDB struct {
	pgConn
	pool *pgxpool.Pool
}

func (d pgDB) Begin(ctx context.Context, own bool) (sqlstore.Tx, error) {
	var options pgx.TxOptions
	if own {
		options.BeginQuery = "begin; " + ownTx
	}
	tx, err := d.pool.BeginTx(ctx, options)
	if err != nil {
		return nil, typed(err)
	}
	return pgTx{pgConn{tx}, tx}, nil
}

type pgTx struct {
	pgConn
	tx pgx.Tx
}

func (t pgTx) Commit(ctx context.Context) error   { return t.typed(t.tx.Commit(ctx)) }
func (t pgTx) Rollback(ctx context.Context) error { return t.tx.Rollback(ctx) }
func (t pgTx) Raw() any                           { return t.tx }
