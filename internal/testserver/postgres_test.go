package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func query(t *testing.T, dbURL, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dbURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var value string
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func mustExec(t *testing.T, dbURL, sql string) {
	t.Helper()
	if err := execOn(t.Context(), dbURL, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// left counts the test databases on a server.
const left = `SELECT count(*)::text FROM pg_database WHERE datname LIKE 'waybill\_test\_%'`

func TestDatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	outer := PostgresURL(t)
	t.Run("parallel", func(t *testing.T) {
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				dbURL := PostgresURL(t)
				mustExec(t, dbURL, "CREATE TABLE mine (id text)") // fails where there is one
				mustExec(t, dbURL, fmt.Sprintf("INSERT INTO mine VALUES ('%d')", i))
				if got, want := query(t, dbURL, "SELECT string_agg(id, ',') FROM mine"), fmt.Sprint(i); got != want {
					t.Errorf("rows %q, want %q", got, want)
				}
			})
		}
	})
	if got := query(t, outer, left); got != "1" {
		t.Errorf("%s test databases are left, want the outer test's alone", got)
	}
}

func TestGivenServer(t *testing.T) { // sets the environment: not parallel
	server := PrivatePostgres(t)
	mustExec(t, server.URL(), "CREATE DATABASE precious")
	t.Setenv(postgresURLEnv, server.URL())
	var conn *pgx.Conn
	t.Run("uses it", func(t *testing.T) {
		dbURL := PostgresURL(t)
		mustExec(t, dbURL, "CREATE TABLE x ()")
		if got := query(t, server.URL(), left); got != "1" {
			t.Errorf("%s test databases on the given server, want 1", got)
		}
		var err error
		if conn, err = pgx.Connect(t.Context(), dbURL); err != nil { // left open: the drop has to force it
			t.Fatal(err)
		}
	})
	_ = conn.Close(t.Context()) // the server has ended it
	if got := query(t, server.URL(), left); got != "0" {
		t.Errorf("%s test databases are left", got)
	}
	if got := query(t, server.URL(), "SELECT count(*)::text FROM pg_database WHERE datname IN ('precious', 'postgres')"); got != "2" {
		t.Errorf("%s of the user's 2 databases are left", got)
	}
}

func TestGivenServerNeedsURL(t *testing.T) {
	t.Parallel()
	for _, given := range []string{"host=localhost password=hush", "mysql://hush@x/", "postgres://u:hush@x:port/"} {
		_, _, err := newDatabase(given)
		if err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), postgresURLEnv) {
			t.Errorf("%s: %v", given, err)
		}
	}
}

func TestKillAndStart(t *testing.T) {
	t.Parallel()
	server := PrivatePostgres(t)
	dbURL := server.URL()
	mustExec(t, dbURL, "CREATE TABLE kept (id text)")
	for _, end := range []struct {
		name      string
		stop      func() error
		recovered int // how often the server has had to recover by then
	}{{"stop", server.Stop, 0}, {"kill", server.Kill, 1}} {
		mustExec(t, dbURL, fmt.Sprintf("INSERT INTO kept VALUES ('%s')", end.name))
		if err := errors.Join(end.stop(), end.stop()); err != nil { // the second does nothing
			t.Fatal(err)
		}
		if err := execOn(t.Context(), dbURL, "SELECT 1"); err == nil {
			t.Fatalf("after %s the server takes connections", end.name)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); err == nil {
			t.Error("a running server was started")
		}
		log, err := os.ReadFile(server.core.path("log")) // all of it
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(log), "automatic recovery in progress"); got != end.recovered {
			t.Errorf("%d recoveries after %s, want %d:\n%s", got, end.name, end.recovered, server.core.log())
		}
	}
	if got := query(t, dbURL, "SELECT string_agg(id, ',' ORDER BY id) FROM kept"); got != "kill,stop" {
		t.Errorf("rows %q survived, want kill,stop", got)
	}
	for setting, want := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
		"max_connections": "200", "shared_buffers": "128MB", "listen_addresses": "127.0.0.1",
	} {
		if got := query(t, dbURL, "SHOW "+setting); got != want {
			t.Errorf("%s = %s, want %s", setting, got, want)
		}
	}
}

func TestPasswordIsNeeded(t *testing.T) {
	t.Parallel()
	dbURL := PostgresURL(t)
	u, err := url.Parse(dbURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), "wrong")
	if err := execOn(t.Context(), u.String(), "SELECT 1"); err == nil {
		t.Error("connected with a wrong password")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	server := PrivatePostgres(t)
	if err := errors.Join(server.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(server.core.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder after Close: %v", err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", server.port))
	if err != nil {
		t.Fatalf("port after Close: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Start(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("Start after Close: %v", err)
	}
}

func TestFailedStartSaysWhy(t *testing.T) {
	t.Parallel()
	server := PrivatePostgres(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", server.port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = server.Start(t.Context())
	if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("Start on a taken port: %v", err)
	}
}

func TestStartIsBoundedByContext(t *testing.T) {
	t.Parallel()
	skipIfShort(t, "Postgres")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := StartPostgres(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("StartPostgres with an ended context: %v", err)
	}
}

// BenchmarkDatabase measures what each test pays for a database of its own.
func BenchmarkDatabase(b *testing.B) {
	PostgresURL(b) // starts the server
	server, err := sharedPostgres.get()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		name, _, err := newDatabase(server.URL())
		if err != nil {
			b.Fatal(err)
		}
		for _, sql := range []string{"CREATE DATABASE " + name + " TEMPLATE template0", "DROP DATABASE " + name + " WITH (FORCE)"} {
			if err := execOn(b.Context(), server.URL(), sql); err != nil {
				b.Fatal(err)
			}
		}
	}
}
