// Package pgstore keeps outbox, inbox and dead letters in PostgreSQL (12 or
// later), with pgx, or with database/sql and a driver of one's choice.
package pgstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

// Store is a store over a pgx pool. Its transactions are [pgx.Tx].
type Store struct {
	*sqlstore.Store

	pool *pgxpool.Pool
}

var _ eventing.OutboxStore[pgx.Tx] = (*Store)(nil)

// New returns a store on a database that [Migrate] has prepared. Whoever made
// the pool closes it.
func New(pool *pgxpool.Pool) *Store {
	return &Store{sqlstore.New(pgDB{pgConn{pool}, pool}, dialect), pool}
}

// InTx runs fn in a transaction.
func (s *Store) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return sqlstore.InTx(ctx, pgDB{pgConn{s.pool}, s.pool}, func(tx sqlstore.Tx) error { return fn(tx.Raw().(pgx.Tx)) })
}

// AppendRows inserts pending rows.
func (s *Store) AppendRows(ctx context.Context, tx pgx.Tx, rows []eventing.OutboxRow) error {
	return s.Store.AppendRows(ctx, pgConn{tx}, rows)
}

// LockKeys takes an advisory lock on each key until the transaction ends.
func (s *Store) LockKeys(ctx context.Context, tx pgx.Tx, keys []string) error {
	return s.Store.LockKeys(ctx, pgConn{tx}, keys)
}

// Ping checks that the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// SQLStore is a store over database/sql. Its transactions are [*sql.Tx], so it
// works with whatever can hand out one: GORM, sqlx, bun, ent.
type SQLStore struct{ sqlstore.SQLStore }

// NewSQL returns a store on a database that [Migrate] has prepared.
func NewSQL(db *sql.DB) *SQLStore {
	return &SQLStore{sqlstore.SQLStore{Store: sqlstore.New(sqlstore.NewSQLDB(db, db), sqlDialect)}}
}

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the steps of the schema.
func Migrations() sqlstore.Migrations {
	files, _ := fs.Sub(migrations, "migrations") // the folder is compiled in
	return sqlstore.Migrations{Dialect: goose.DialectPostgres, FS: files, Table: "waybill_schema_version"}
}

// Migrate brings the schema up to date. Processes that call it together do so
// one after the other.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	db := stdlib.OpenDBFromPool(pool)
	_, err := Migrations().Up(ctx, db)
	if closeErr := db.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("migrate: %w", closeErr)
	}
	return err
}

var dialect = sqlstore.Dialect{
	Timestamp:     "timestamptz",
	ForUpdate:     "FOR UPDATE",
	ForShare:      "FOR SHARE",
	SkipLocked:    "FOR UPDATE SKIP LOCKED",
	RowsPerInsert: 500,
	In:            func(expr, parameter string) string { return expr + " = ANY(CAST(" + parameter + " AS text[]))" },
	InInts:        func(expr, parameter string) string { return expr + " = ANY(CAST(" + parameter + " AS bigint[]))" },
	List:          func(values []string) any { return append([]string{}, values...) },
	Ints:          func(values []int64) any { return append([]int64{}, values...) },
	Time: func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UTC()
	},
	Broken:   broken,
	LockKeys: lockKeys(func(values []string) any { return values }),
}

// broken recognises, by SQLSTATE
// (https://www.postgresql.org/docs/current/errcodes-appendix.html), a transaction that
// an earlier error has aborted and a constraint that fails at the commit; and, by the
// drivers' errors, a transaction that somebody else has ended.
func broken(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		const aborted, integrity = "25P02", "23"
		return state.SQLState() == aborted || strings.HasPrefix(state.SQLState(), integrity)
	}
	return errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, sql.ErrTxDone)
}

// sqlDialect passes lists as text, which every driver of database/sql can.
var sqlDialect = func() sqlstore.Dialect {
	d := dialect
	d.List = func(values []string) any { return textArray(values) }
	d.Ints = func(values []int64) any {
		list := make([]string, len(values))
		for i, v := range values {
			list[i] = strconv.FormatInt(v, 10)
		}
		return textArray(list)
	}
	d.LockKeys = lockKeys(func(values []string) any { return textArray(values) })
	return d
}()

// textArray writes an array literal
// (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
func textArray(values []string) string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + quote.Replace(v) + `"`)
	}
	b.WriteByte('}')
	return b.String()
}

// lockKeys locks in the order of the list, which is sorted.
func lockKeys(list func([]string) any) func(context.Context, sqlstore.Conn, []string) error {
	return func(ctx context.Context, c sqlstore.Conn, keys []string) error {
		_, err := c.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended(k, 0)) FROM unnest(CAST($1 AS text[])) AS k`, list(keys))
		return err
	}
}
