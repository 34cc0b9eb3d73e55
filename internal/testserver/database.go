package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresURLEnv names a server to use instead of a private one.
const postgresURLEnv = "WAYBILL_TEST_POSTGRES_URL"

// databaseTimeout is for making or dropping one database.
const databaseTimeout = 30 * time.Second

// PostgresURL returns the URL of a new, empty Postgres database, dropped when
// the test ends, with whatever connections are left. The database is on the
// server that the tests of this binary share or, if WAYBILL_TEST_POSTGRES_URL
// is set, on that one (Postgres 13 or newer; its user has to have CREATEDB).
// There, nothing is touched but the new database, named waybill_test_…; a test
// that is killed leaves it behind.
//
// A server that cannot be had fails the test; -short skips it.
func PostgresURL(tb testing.TB) string {
	tb.Helper()
	dbURL, drop := createDatabase(tb)
	tb.Cleanup(func() {
		if err := drop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return dbURL
}

// KeptPostgresURL is [PostgresURL] for a database that several tests use one after
// the other: it is dropped by [Exit].
func KeptPostgresURL(tb testing.TB) string {
	tb.Helper()
	dbURL, drop := createDatabase(tb)
	kept.Lock()
	defer kept.Unlock()
	kept.drops = append(kept.drops, drop)
	return dbURL
}

// kept are the databases that Exit drops.
var kept struct {
	sync.Mutex
	drops []func(context.Context) error
}

func dropKept() (err error) {
	kept.Lock()
	defer kept.Unlock()
	for _, drop := range kept.drops {
		err = errors.Join(err, drop(context.Background()))
	}
	kept.drops = nil
	return err
}

// createDatabase returns the URL of a new database, and what drops it.
func createDatabase(tb testing.TB) (dbURL string, drop func(context.Context) error) {
	tb.Helper()
	skipIfShort(tb, "Postgres")
	admin := os.Getenv(postgresURLEnv)
	if admin == "" {
		server, err := sharedPostgres.get()
		if err != nil {
			tb.Fatalf("postgres for the tests (set %s to use another): %v", postgresURLEnv, err)
		}
		admin = server.URL()
	}
	name, dbURL, err := newDatabase(admin)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), databaseTimeout)
	defer cancel()
	if err := execOn(ctx, admin, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		tb.Fatalf("create a database for the test: %v", err)
	}
	return dbURL, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
		defer cancel()
		return execOn(ctx, admin, "DROP DATABASE "+name+" WITH (FORCE)")
	}
}

// PrivatePostgres starts a server for this test alone, which it may stop, kill
// and start again; it is gone when the test ends. -short skips the test.
func PrivatePostgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	skipIfShort(tb, "Postgres")
	server, err := StartPostgres(tb.Context(), "")
	if err != nil {
		tb.Fatalf("postgres for the test: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Errorf("close the test's postgres: %v", err)
		}
	})
	return server
}

// newDatabase makes up a name that needs no quoting, and its URL.
func newDatabase(admin string) (name, dbURL string, err error) {
	u, err := url.Parse(admin)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// The URL itself holds a password: it is not shown, nor is err.
		return "", "", fmt.Errorf("%s is not of the form postgres://user:password@host:port/database", postgresURLEnv)
	}
	name = "waybill_test_" + strings.ToLower(rand.Text())
	u.Path = "/" + name
	return name, u.String(), nil
}

func execOn(ctx context.Context, dbURL, sql string) error {
	conn, err := pgx.Connect(ctx, dbURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}
