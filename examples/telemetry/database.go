package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/waybill-go/waybill/eventing"
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
}

// database is one database with two kinds of tables: the library's and our own. That
// they are in one is what lets them share a transaction.
type database struct {
	name   string
	events eventStore
	read   *sql.DB
	close  func() error
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
	if err := createTables(ctx, db.events); err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

func openSQLite(ctx context.Context, file string) (*database, error) {
	s, err := sqlitestore.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	return &database{name: "SQLite, " + file, events: s, read: s.Reader(), close: s.Close}, nil
}

// maxConns is for three consumers that handle 8 events at a time, and the
// dispatcher.
const maxConns = 28

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
	return &database{name: "PostgreSQL", events: pgstore.NewSQL(db), read: db, close: db.Close}, nil
}
