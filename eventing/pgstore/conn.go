package pgstore

import (
	"context"
	"fmt"
	"time"

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

// Conn is for this module's own packages, which have statements that run on several databases.
func Conn(tx pgx.Tx) sqlstore.Conn { return pgConn{tx} }

// typed tells a connection that is busy from one that is lost.
func (c pgConn) typed(err error) error {
	if pgconn.SafeToRetry(err) && busy(c.q) {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	return typed(err)
}

// busy reports whether a result of a transaction has not been read to its end.
func busy(q querier) bool {
	switch tx := q.(type) {
	case *lazyTx:
		return tx.busy()
	case pgx.Tx:
		return tx.Conn().PgConn().IsBusy()
	}
	return false
}

type pgRows struct{ pgx.Rows }

func (r pgRows) Err() error { return typed(r.Rows.Err()) }

// ownTx begins transactions of the store's own. The server is to end one whose process is
// frozen or gone, and with it the locks that others wait for
// (https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-IDLE-IN-TRANSACTION-SESSION-TIMEOUT);
// not to compile plans, which takes longer than to run them; and to find rows by an index: a plan that reads a whole table,
// made while it was small, is kept when it has grown.
const ownTx = "SET LOCAL idle_in_transaction_session_timeout = '3s'; SET LOCAL jit = off; SET LOCAL enable_seqscan = off"

// ownTxInBatch is ownTx as one statement.
const ownTxInBatch = "SELECT set_config('idle_in_transaction_session_timeout', '3s', true), set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true)"

type pgDB struct {
	pgConn
	pool    *pgxpool.Pool
	batches bool // statements can be batched as they are
}

func newDB(pool *pgxpool.Pool) pgDB {
	// The simple protocol puts a batch together to one text, which is parsed as a whole, before anything begins.
	return pgDB{pgConn{pool}, pool, pool.Config().ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol}
}

func (d pgDB) Begin(ctx context.Context, own bool) (sqlstore.Tx, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, typed(err)
	}
	tx := &lazyTx{pool: d.pool, conn: conn, last: conn.Conn(), since: time.Now(), own: own, batches: d.batches}
	return pgTx{pgConn{tx}, tx}, nil
}

type pgTx struct {
	pgConn
	tx *lazyTx
}

// ExecAll implements [sqlstore.Pipeline].
func (t pgTx) ExecAll(ctx context.Context, statements []sqlstore.Statement) (affected []int64, err error) {
	results, err := t.tx.all(ctx, statements)
	if err != nil {
		return nil, t.typed(err)
	}
	for range statements {
		tag, err := results.Exec()
		if err != nil {
			_ = results.Close() // returns the same
			return nil, t.typed(err)
		}
		affected = append(affected, tag.RowsAffected())
	}
	return affected, t.typed(results.Close())
}

// Defer implements [sqlstore.Deferrer].
func (t pgTx) Defer(statements []sqlstore.Statement) bool {
	if !t.tx.usable() {
		return false
	}
	t.tx.waiting = append(t.tx.waiting, statements...)
	return true
}

func (t pgTx) Commit(ctx context.Context) error   { return t.typed(t.tx.Commit(ctx)) }
func (t pgTx) Rollback(ctx context.Context) error { return t.tx.Rollback(ctx) }
func (t pgTx) Raw() any                           { return pgx.Tx(t.tx) }
func (t pgTx) BeginError() error                  { return typed(t.tx.beginErr) }
