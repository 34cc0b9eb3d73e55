//go:build unix

package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/internal/testserver"
)

// The kinds of databases that are used by way of database/sql.
const (
	sqliteFile = "SQLite"
	postgres   = "Postgres"
)

// sqlStore is a store whose transactions are those of database/sql.
type sqlStore interface {
	eventing.OutboxStore[*sql.Tx]
	eventing.DispatchStore
	eventing.ConsumerStore
	eventing.DeadLetterStore
}

// database is one of either kind. Several processes may have it open.
type database struct {
	store       sqlStore
	read, write *sql.DB
	close       func() error
}

const (
	sqliteScheme = "sqlite:"
	connections  = 12 // to Postgres, of each process
)

// newDatabaseURL returns that of an empty database of a kind.
func newDatabaseURL(t *testing.T, kind string) string {
	t.Helper()
	if kind == sqliteFile {
		return sqliteScheme + filepath.Join(t.TempDir(), "waybill.db")
	}
	return testserver.PostgresURL(t)
}

// openDatabase opens a database and brings its schema up to date.
func openDatabase(ctx context.Context, storeURL string) (database, error) {
	if path, ok := strings.CutPrefix(storeURL, sqliteScheme); ok {
		s, err := sqlitestore.Open(ctx, path)
		if err != nil {
			return database{}, err
		}
		return database{s, s.Reader(), s.DB(), s.Close}, nil
	}
	db, err := sql.Open("pgx", storeURL)
	if err != nil {
		return database{}, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections) // else most of the time goes into connecting
	if _, err := pgstore.Migrations().Up(ctx, db); err != nil {
		return database{}, errors.Join(fmt.Errorf("migrate: %w", err), db.Close())
	}
	return database{pgstore.NewSQL(db), db, db, db.Close}, nil
}

// texts returns the only column of a query.
func (d database) texts(ctx context.Context, query string, args ...any) (all []string, err error) {
	rows, err := d.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

// exec runs a statement.
func (d database) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := d.write.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}
