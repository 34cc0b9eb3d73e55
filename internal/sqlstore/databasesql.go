package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/eventing"
)

// SQLConn adapts database/sql.
type SQLConn struct {
	C interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
}

// Exec implements [Conn].
func (c SQLConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := c.C.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Query implements [Conn].
func (c SQLConn) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := c.C.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller does
	if err != nil {
		return nil, err
	}
	return sqlRows{rows}, nil
}

type sqlRows struct{ *sql.Rows }

func (r sqlRows) Close() { _ = r.Rows.Close() } // what went wrong is in Err

// sqlTx is a transaction on a connection of its own.
type sqlTx struct {
	SQLConn
	tx   *sql.Tx
	conn *sql.Conn
}

// Commit implements [Tx].
func (t sqlTx) Commit(context.Context) error { return errors.Join(t.tx.Commit(), t.conn.Close()) }

// Rollback implements [Tx].
func (t sqlTx) Rollback(context.Context) error { return errors.Join(t.tx.Rollback(), t.conn.Close()) }

// Raw implements [Tx].
func (t sqlTx) Raw() any { return t.tx }

// SQLDB adapts a database: reads may have a pool of their own.
type SQLDB struct {
	SQLConn
	Write *sql.DB
}

// NewSQLDB adapts a database.
func NewSQLDB(read, write *sql.DB) SQLDB { return SQLDB{SQLConn{read}, write} }

// Begin implements [DB]. Waiting for a connection ends with ctx; the transaction
// does not, lest a commit turn into a rollback while it runs.
func (d SQLDB) Begin(ctx context.Context) (Tx, error) {
	conn, err := d.Write.Conn(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return sqlTx{SQLConn{tx}, tx, conn}, nil
}

// SQLStore is a [Store] whose transactions are those of database/sql.
type SQLStore struct{ *Store }

var _ eventing.OutboxStore[*sql.Tx] = SQLStore{}

// InTx runs fn in a transaction.
func (s SQLStore) InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.inTx(ctx, func(tx Tx) error { return fn(tx.Raw().(*sql.Tx)) })
}

// AppendRows inserts pending rows.
func (s SQLStore) AppendRows(ctx context.Context, tx *sql.Tx, rows []eventing.OutboxRow) error {
	return s.Store.AppendRows(ctx, SQLConn{tx}, rows)
}

// LockKeys holds off other transactions that lock one of the keys.
func (s SQLStore) LockKeys(ctx context.Context, tx *sql.Tx, keys []string) error {
	return s.Store.LockKeys(ctx, SQLConn{tx}, keys)
}
