package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

//go:embed migrations
var migrations embed.FS

// migrationsOf returns the steps of the library's tables and of the gateway's
// own.
func migrationsOf(scheme string) []sqlstore.Migrations {
	library, dialect := sqlitestore.Migrations(), goose.DialectSQLite3
	if scheme == schemePostgres {
		library, dialect = pgstore.Migrations(), goose.DialectPostgres
	}
	files, _ := fs.Sub(migrations, "migrations/"+scheme) // the folder is compiled in
	return []sqlstore.Migrations{library, {Dialect: dialect, FS: files, Table: "gateway_schema_version"}}
}

// MigrationSQL returns the statements of all steps, in the dialect of the
// address, and those that record the steps as applied. It connects to nothing.
func MigrationSQL(address string) (string, error) {
	scheme, _, err := split(address)
	if err != nil {
		return "", err
	}
	return sqlOf(migrationsOf(scheme))
}

func sqlOf(steps []sqlstore.Migrations) (string, error) {
	var all strings.Builder
	for _, m := range steps {
		text, err := m.SQL()
		if err != nil {
			return "", err
		}
		all.WriteString(text)
		if err := recordSteps(&all, m); err != nil {
			return "", err
		}
	}
	return all.String(), nil
}

// recordSteps writes what goose would: otherwise the gateway would apply again, at
// its next start, what somebody has applied by hand.
func recordSteps(out *strings.Builder, m sqlstore.Migrations) error {
	versions, err := database.NewStore(m.Dialect, m.Table)
	if err != nil {
		return err
	}
	var create statement
	if err := versions.CreateVersionTable(context.Background(), &create); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s;\nINSERT INTO %s (version_id, is_applied) VALUES (0, true)", strings.ReplaceAll(strings.TrimSpace(create.text), "\n\t", "\n"), m.Table)
	names, err := fs.Glob(m.FS, "*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, ", (%d, true)", version)
	}
	out.WriteString(";\n\n")
	return nil
}

// statement keeps what it is asked to run.
type statement struct {
	*sql.DB // none: goose runs nothing else
	text    string
}

// ExecContext implements [database.DBTxConn].
func (s *statement) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	s.text = query
	return driver.RowsAffected(0), nil
}

// Schema is the schema of a database that may not have been prepared yet.
type Schema struct {
	db    *sql.DB
	steps []sqlstore.Migrations
}

// OpenSchema opens a database, but changes nothing in it. A SQLite file that is
// missing is made if create says so, and an error otherwise. The caller closes
// the schema.
func OpenSchema(ctx context.Context, address string, create bool) (*Schema, error) {
	scheme, where, err := split(address)
	if err != nil {
		return nil, err
	}
	driverName := "pgx"
	if scheme == schemeSQLite {
		if !create {
			if err := existing(address); err != nil {
				return nil, err
			}
		}
		driverName, where = "sqlite", "file:"+(&url.URL{Path: where}).EscapedPath()+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driverName, where)
	if err != nil {
		return nil, fmt.Errorf("the database %q is not an address of a database", Masked(address))
	}
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the database %q: %w", Masked(address), err), db.Close())
	}
	return &Schema{db, migrationsOf(scheme)}, nil
}

// Close closes the database.
func (s Schema) Close() error { return s.db.Close() }

// Up applies the steps that are missing and returns them. Processes that call it
// together do so one after the other.
func (s Schema) Up(ctx context.Context) (applied []string, err error) {
	for _, m := range s.steps {
		steps, err := m.Up(ctx, s.db)
		applied = append(applied, steps...)
		if err != nil {
			return applied, err
		}
	}
	return applied, nil
}

// Status lists the steps, and which of them have been applied.
func (s Schema) Status(ctx context.Context) (all []sqlstore.Migration, err error) {
	for _, m := range s.steps {
		steps, err := m.Status(ctx, s.db)
		if err != nil {
			return nil, err
		}
		all = append(all, steps...)
	}
	return all, nil
}
