package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/eventing"
)

// SQLConn adapts database/sql. Typed, unless it is nil, gives errors their types.
type SQLConn struct {
	Typed func(error) error
	C     interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
}

// Exec implements [Conn].
func (c SQLConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := c.C.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, c.typed(err)
	}
	return r.RowsAffected()
}

// Query implements [Conn].
func (c SQLConn) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := c.C.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller does
	if err != nil {
		return nil, c.typed(err)
	}
	return sqlRows{rows, c}, nil
}

func (c SQLConn) typed(err error) error {
	if c.Typed == nil {
		return err
	}
	return c.Typed(err)
}

type sqlRows struct {
	*sql.Rows
	c SQLConn
}

func (r sqlRows) Err() error { return r.c.typed(r.Rows.Err()) }

func (r sqlRows) Close() { _ = r.Rows.Close() } // what went wrong is in Err

// sqlTx is a transaction on a connection of its own.
type sqlTx struct {
	SQLConn
	tx   *sql.Tx
	conn *sql.Conn
}

// Commit implements [Tx].
func (t sqlTx) Commit(context.Context) error {
	return errors.Join(t.typed(t.tx.Commit()), t.conn.Close())
}

// Rollback implements [Tx].
func (t sqlTx) Rollback(context.Context) error { return errors.Join(t.tx.Rollback(), t.conn.Close()) }

// Raw implements [Tx].
func (t sqlTx) Raw() any { return t.tx }

// SQLDB adapts a database: reads may have a pool of their own.
type SQLDB struct {
	SQLConn
	Write *sql.DB
	OwnTx string // what begins the store's own transactions; may be empty
}

// NewSQLDB adapts a database.
func NewSQLDB(read, write *sql.DB, typed func(error) error) SQLDB {
	return SQLDB{SQLConn: SQLConn{typed, read}, Write: write}
}

// Begin implements [DB]. Waiting for a connection ends with ctx; the transaction
// does not, lest a commit turn into a rollback while it runs.
func (d SQLDB) Begin(ctx context.Context, own bool) (Tx, error) {
	conn, err := d.Write.Conn(ctx)
	if err != nil {
		return nil, d.typed(err)
	}
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, errors.Join(d.typed(err), conn.Close())
	}
	t := sqlTx{SQLConn{d.Typed, tx}, tx, conn}
	if own && d.OwnTx != "" {
		if _, err := t.Exec(ctx, d.OwnTx); err != nil {
			return nil, errors.Join(err, t.Rollback(ctx))
		}
	}
	return t, nil
}

// SQLStore is a [Store] whose transactions are those of database/sql.
type SQLStore struct{ *Store }

var _ eventing.OutboxStore[*sql.Tx] = SQLStore{}

// InTx runs fn in a transaction.
func (s SQLStore) InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return InTx(ctx, s.db, func(tx Tx) error { return fn(tx.Raw().(*sql.Tx)) })
}

// AppendRows inserts pending rows.
func (s SQLStore) AppendRows(ctx context.Context, tx *sql.Tx, rows []eventing.OutboxRow) error {
	return s.Store.AppendRows(ctx, SQLConn{s.d.Typed, tx}, rows)
}

// LockKeys holds off other transactions that lock one of the keys.
func (s SQLStore) LockKeys(ctx context.Context, tx *sql.Tx, keys []string) error {
	return s.Store.LockKeys(ctx, SQLConn{s.d.Typed, tx}, keys)
}
