// Package pgstore keeps outbox, inbox and dead letters in PostgreSQL (13 or
// later), with pgx, or with database/sql and a driver of one's choice.
package pgstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"slices"

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

	db pgDB
}

var (
	_ eventing.OutboxStore[pgx.Tx] = (*Store)(nil)
	_ eventing.Listener            = (*Store)(nil)
	_ eventing.Listener            = (*SQLStore)(nil)
)

// New returns a store on a database that [Migrate] has prepared. Whoever made
// the pool closes it.
func New(pool *pgxpool.Pool) *Store {
	db := newDB(pool)
	s := &Store{sqlstore.New(db, dialect), db}
	s.Announce = newBell(db.pgConn).ring
	return s
}

// InTx runs fn in a transaction, which begins at the server with the first statement, in the same round trip. Before
// that, fn holds a connection of the pool. What fn appends is written with the transaction's next statement or, if none
// follows, in one round trip with COMMIT. If it cannot be written, that statement fails, and InTx does.
func (s *Store) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return sqlstore.InTx(ctx, s.db, func(tx sqlstore.Tx) error {
		lazy := tx.(pgTx).tx
		lazy.defers = true
		return fn(lazy)
	})
}

// AppendRows inserts pending rows, at once or, in a transaction of [Store.InTx], later.
func (s *Store) AppendRows(ctx context.Context, tx pgx.Tx, rows []eventing.OutboxRow) error {
	if lazy, ok := tx.(*lazyTx); ok && lazy.deferring() {
		return s.Store.AppendRows(ctx, deferredConn{pgConn{tx}, lazy}, slices.Clone(rows)) // the caller may use his again
	}
	return s.Store.AppendRows(ctx, pgConn{tx}, rows)
}

// ExecLater runs a statement whose result nobody needs, as what is appended is written: with the transaction's next
// statement or, if none follows, in one round trip with COMMIT. If it fails, that does, and InTx. So a transaction of what
// the application has to say, and of the event that tells of it, can be a single round trip.
//
// What args point to must not change until then. It is one statement, and must not end the transaction, as CALL of a procedure
// with a COMMIT would. Of many, 16 wait; the next has them done first. That ctx ends does not keep it from being done later.
//
// It runs at once in transactions that are not of [Store.InTx], such as those of handlers, and if it has no args: then it may be several statements.
func (s *Store) ExecLater(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
	if lazy, ok := tx.(*lazyTx); ok && lazy.deferring() && !alone(args) {
		_, err := deferredConn{pgConn{tx}, lazy}.Exec(ctx, query, slices.Clone(args)...) // the caller may use the list again
		return err
	}
	_, err := tx.Exec(ctx, query, args...)
	return err
}

// LockKeys takes an advisory lock on each key until the transaction ends.
func (s *Store) LockKeys(ctx context.Context, tx pgx.Tx, keys []string) error {
	return s.Store.LockKeys(ctx, pgConn{tx}, keys)
}

// Listen implements [eventing.Listener], on a connection of its own that it takes from
// the pool and does not give back.
func (s *Store) Listen(ctx context.Context, listening func()) error {
	pooled, err := s.db.pool.Acquire(ctx)
	if err != nil {
		return typed(err)
	}
	return listen(ctx, pooled.Hijack(), s.db.pgConn, listening, s.Wake)
}

// Ping checks that the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.pool.Ping(ctx) }

// SQLStore is a store over database/sql. Its transactions are [*sql.Tx], so it
// works with whatever can hand out one: GORM, sqlx, bun.
type SQLStore struct {
	sqlstore.SQLStore

	db *sql.DB
}

// NewSQL returns a store on a database that [Migrate] has prepared.
func NewSQL(db *sql.DB) *SQLStore {
	adapted := sqlstore.NewSQLDB(db, db, typed)
	adapted.OwnTx = ownTx
	s := &SQLStore{sqlstore.SQLStore{Store: sqlstore.New(adapted, sqlDialect)}, db}
	s.Announce = newBell(sqlstore.SQLConn{Typed: typed, C: db}).ring
	return s
}

// Listen implements [eventing.Listener], on a connection of its own beside those of the
// database. It is [errors.ErrUnsupported] with a driver other than pgx.
func (s *SQLStore) Listen(ctx context.Context, listening func()) error {
	own, err := connectLike(ctx, s.db)
	if err != nil {
		return typed(err)
	}
	return listen(ctx, own, sqlstore.SQLConn{Typed: typed, C: s.db}, listening, s.Wake)
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
