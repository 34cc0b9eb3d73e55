package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
)

// eventStore is what this program needs of the library's store; those of SQLite and
// PostgreSQL have it.
type eventStore interface {
	eventing.OutboxStore[*sql.Tx]
	eventing.DispatchStore
	eventing.ConsumerStore
	eventing.PruneStore
	eventing.DeadLetterStore
	eventing.AdminStore
}

// database is one database with three kinds of tables: the library's, the event log's and
// our own. That they are in one is what lets them share a transaction.
type database struct {
	name   string
	events eventStore
	log    eventlog.Dialect
	read   *sql.DB // for what is read outside of transactions
	write  *sql.DB
	close  func() error
	// moment is a point in time as the library's tables have it.
	moment func(time.Time) any
}

// openDatabase opens a SQLite file or, by its address, a PostgreSQL database, and
// creates the tables that are missing.
func openDatabase(ctx context.Context, address string) (*database, error) {
	open := openSQLite
	if strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://") {
		open = openPostgres
	} else if scheme, _, isURL := strings.Cut(address, "://"); isURL {
		return nil, fmt.Errorf("a store of %s:// is unknown: give a SQLite file, or a database as postgres://…", scheme)
	}
	db, err := open(ctx, address)
	if err != nil {
		return nil, err
	}
	if _, err = eventlog.Migrations(db.log).Up(ctx, db.write); err == nil {
		err = createTables(ctx, db.events)
	}
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

// sqliteTime is how the library writes points in time where there is no type for them.
const sqliteTime = "2006-01-02T15:04:05.000000Z"

func openSQLite(ctx context.Context, file string) (*database, error) {
	s, err := sqlitestore.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	return &database{
		name: "SQLite, " + file, events: s, log: eventlog.SQLite, read: s.Reader(), write: s.DB(), close: s.Close,
		moment: func(t time.Time) any { return t.UTC().Format(sqliteTime) },
	}, nil
}

// maxConns is for four consumers that handle 8 events at a time, and the
// dispatcher.
const maxConns = 36

func openPostgres(ctx context.Context, address string) (*database, error) {
	db, err := sql.Open("pgx", address)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	if _, err := pgstore.Migrations().Up(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("open PostgreSQL: %w", err), db.Close())
	}
	return &database{
		name: "PostgreSQL", events: pgstore.NewSQL(db), log: eventlog.Postgres, read: db, write: db, close: db.Close,
		moment: func(t time.Time) any { return t },
	}, nil
}

// querier is a database, or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// each calls fn for each row of a query.
func each(ctx context.Context, db querier, query string, args []any, fn func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// texts returns the only column of a query.
func texts(ctx context.Context, db querier, query string, args ...any) (all []string, err error) {
	err = each(ctx, db, query, args, func(scan func(...any) error) error {
		all = append(all, "")
		return scan(&all[len(all)-1])
	})
	return all, err
}

// count returns the only number of a query.
func count(ctx context.Context, db querier, query string, args ...any) (n int, err error) {
	err = db.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}
