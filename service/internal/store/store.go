// Package store opens the gateway's database by its URL.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib" // it is the driver "pgx", too

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

// Library is all that the library's store offers, but transactions.
type Library interface {
	eventing.DispatchStore
	eventing.ConsumerStore
	eventing.DeadLetterStore
	eventing.PruneStore
	eventing.AdminStore
	// Wake has the dispatchers of this process look.
	Wake()
}

// Events is the library's store on an SQL database.
type Events interface {
	Library
	eventing.OutboxStore[*sql.Tx]
}

// Store is the gateway's database: the library's tables and the gateway's own.
type Store struct {
	// Events is the library's part.
	Events Events
	// Read is for statements that only read.
	Read *sql.DB
	// Embedded: a file of this process, not a server.
	Embedded bool
	// Postgres is the library's part with pgx, on the same connections: quicker. It is nil on SQLite.
	Postgres *pgstore.Store
	// Intake is as Postgres, on connections of its own.
	Intake *pgstore.Store

	schema     Schema
	close      func() error
	timestamps func(time.Time) any
	forUpdate  string
}

// ErrAddress is the error for an address of no database that the gateway can
// work with.
var ErrAddress = errors.New("the address (STORE_URL) must be sqlite:FILE, postgres://… or mongodb://HOST/DATABASE")

// Open opens sqlite:FILE or postgres://…, without touching its schema but for a
// SQLite file's, which it makes if it is missing and brings up to date. The
// caller closes the store.
func Open(ctx context.Context, address string) (*Store, error) { return open(ctx, address, byIndex) }

// open has connected make each session of PostgreSQL ready, unless that is nil.
func open(ctx context.Context, address string, connected prepare) (*Store, error) {
	scheme, where, err := split(address)
	if err != nil {
		return nil, err
	}
	if scheme == schemeSQLite {
		return openSQLite(ctx, where)
	}
	return openPostgres(ctx, where, connected)
}

// OpenExisting is [Open] for those who work on what others have stored: that
// there is nothing yet is an error, not a reason to make an empty database.
func OpenExisting(ctx context.Context, address string) (*Store, error) {
	if err := existing(address); err != nil {
		return nil, err
	}
	s, err := open(ctx, address, nil)
	if err != nil {
		return nil, err
	}
	if _, err := s.Read.ExecContext(ctx, `SELECT 1 FROM courier_ledger LIMIT 0`); err != nil {
		return nil, errors.Join(unusable(address, "gateway's", "gateway migrate up", err), s.Close())
	}
	return s, nil
}

// unusable says why a look at a table has failed.
func unusable(address, whose, command string, err error) error {
	const undefinedTable = "42P01"
	var state interface{ SQLState() string }
	if Momentary(err) || errors.As(err, &state) && state.SQLState() != undefinedTable {
		return fmt.Errorf("the database %q: %w", Masked(address), err)
	}
	return fmt.Errorf("the database %q has none of the %s tables; make them with: %s: %w", Masked(address), whose, command, err)
}

// The schemes of addresses.
const (
	schemeSQLite   = "sqlite"
	schemePostgres = "postgres"
)

// split returns the scheme of an address, and the file's path or the server's
// address.
func split(address string) (scheme, where string, err error) {
	scheme, rest, _ := strings.Cut(address, ":")
	switch {
	case scheme == schemeSQLite && rest != "":
		return schemeSQLite, strings.TrimPrefix(rest, "//"), nil
	case Unescaped(address):
		return "", "", fmt.Errorf("the database %q: %w, special characters of the password as %%XX", Masked(address), ErrAddress)
	case scheme == "postgres", scheme == "postgresql":
		return schemePostgres, address, nil
	}
	return "", "", fmt.Errorf("the database %q: %w", Masked(address), ErrAddress)
}

// existing checks that a SQLite file is there; a server answers for itself.
func existing(address string) error {
	scheme, path, err := split(address)
	if err != nil || scheme != schemeSQLite {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("the database %q: %w; a file is looked for in the current folder: run this where the application runs, or give the whole path", Masked(address), err)
	}
	return nil
}

func openSQLite(ctx context.Context, path string) (*Store, error) {
	store, err := openSQLiteFile(ctx, path)
	if err != nil {
		return nil, err
	}
	schema, err := OpenSchema(ctx, schemeSQLite+":"+path, false) // on a connection of its own, for what the steps sort
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	_, err = schema.Up(ctx)
	if err = errors.Join(err, schema.Close()); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// openSQLiteFile leaves the schema as it is.
func openSQLiteFile(ctx context.Context, path string) (*Store, error) {
	s, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return &Store{
		Events: s, Read: s.Reader(), Embedded: true, schema: Schema{s.DB(), migrationsOf(schemeSQLite)}, close: s.Close,
		timestamps: func(t time.Time) any {
			if t.IsZero() {
				return nil
			}
			return t.UTC().Format(sqlstore.TimeLayout)
		},
	}, nil
}

// Connections to PostgreSQL.
const (
	maxConns       = 24
	maxIntakeConns = 2
	connIdleTime   = 5 * time.Minute
)

func openPostgres(ctx context.Context, address string, connected prepare) (*Store, error) {
	pool, err := openPool(ctx, address, connected, maxConns)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("no connection to the database %q; is its server up, and the address right? %w", Masked(address), err)
	}
	intake, err := openPool(ctx, address, connected, maxIntakeConns)
	if err != nil {
		pool.Close()
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	return &Store{
		Events: pgstore.NewSQL(db), Read: db, Postgres: pgstore.New(pool), Intake: pgstore.New(intake), schema: Schema{db, migrationsOf(schemePostgres)},
		close: func() error {
			defer pool.Close()
			defer intake.Close()
			return db.Close()
		},
		timestamps: func(t time.Time) any {
			if t.IsZero() {
				return nil
			}
			return t.UTC()
		},
		forUpdate: " FOR UPDATE",
	}, nil
}

// prepare makes a session ready.
type prepare = func(context.Context, *pgx.Conn) error

// byIndex has the sessions of a process that stays find rows by indexes. Else a plan that reads a whole table, because that was
// small when the plan was made, is kept when it has grown, until its statistics are new: for a minute or more. What no index leads
// to is read as a whole nevertheless; plans that cost as much as the server makes of that are not to be compiled (JIT).
func byIndex(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `SELECT set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)`)
	return err
}

// openPool makes a pool that connects when it is first used.
func openPool(ctx context.Context, address string, connected prepare, conns int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("the database %q is not an address of PostgreSQL", Masked(address))
	}
	config.MaxConns, config.MaxConnIdleTime, config.AfterConnect = conns, connIdleTime, connected
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("the database %q: %w", Masked(address), err)
	}
	return pool, nil
}

// Close closes the database.
func (s *Store) Close() error { return s.close() }

// Ping checks that the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.Read.PingContext(ctx) }

// Migrate brings the schema up to date and returns the steps that it applied.
func (s *Store) Migrate(ctx context.Context) (applied []string, err error) { return s.schema.Up(ctx) }

// Time encodes a point in time as an argument; the zero time is NULL. Scan one
// with [sqlstore.Timestamp].
func (s *Store) Time(t time.Time) any { return s.timestamps(t) }

// ForUpdate is what a SELECT ends with that locks its rows.
func (s *Store) ForUpdate() string { return s.forUpdate }

// Busy reports whether err says that another process has kept a SQLite file locked for longer
// than we wait.
func Busy(err error) bool {
	const sqliteBusy = 5 // the low byte; the others tell its kinds apart
	var coded interface{ Code() int }
	return errors.As(err, &coded) && coded.Code()&0xff == sqliteBusy
}

// Masked returns an address without its password, and without its query if that may have one,
// or another secret. Of what is no URL it returns the scheme at most.
func Masked(address string) string {
	scheme, rest, _ := strings.Cut(address, ":")
	if strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz+") != "" {
		return "…"
	}
	u, err := url.Parse(address)
	if err != nil || Unescaped(address) || rest != "" && scheme != schemeSQLite && !strings.HasPrefix(rest, "//") || u.User == nil && scheme != schemeSQLite && strings.Contains(address, "@") { // mistyped
		return scheme + ":…"
	}
	if secret(u.RawQuery) {
		u.RawQuery = "…"
	}
	return u.Redacted()
}

// Unescaped reports whether a part of the password could be taken for host and path, as it has a character that must be
// written as %XX: the @ comes after the path has begun, or there are several, of which parsers choose differently.
func Unescaped(address string) bool {
	address, _, _ = strings.Cut(address, "?")
	_, rest, server := strings.Cut(address, "://")
	_, path, _ := strings.Cut(strings.ReplaceAll(rest, "#", "/"), "/")
	return server && !strings.HasPrefix(address, schemeSQLite) && (strings.Contains(path, "@") || strings.Count(rest, "@") > 1)
}

// secret reports whether a query, of which pairs may be mistyped, has a word for a secret in it.
func secret(query string) bool {
	decoded, err := url.QueryUnescape(query)
	return err != nil || Secret(decoded)
}

// Secret reports whether a part of an address has a word for a secret in it.
func Secret(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc([]string{"password", "secret", "token"}, func(word string) bool { return strings.Contains(text, word) })
}
