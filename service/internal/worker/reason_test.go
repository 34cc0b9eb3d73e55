package worker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
)

// mongoError is an error as MongoDB's driver returns them, of its labels.
type mongoError string

func (e mongoError) Error() string { return "labels " + string(e) }

func (e mongoError) HasErrorLabel(label string) bool {
	return slices.Contains(strings.Fields(string(e)), label)
}

// Errors have the codes of their kinds, and only what no retry can mend is permanent.
func TestReasons(t *testing.T) {
	t.Parallel()
	pg, err := sql.Open("pgx", testserver.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	raise := func(state string) error {
		_, err := pg.ExecContext(t.Context(), `DO $$ BEGIN RAISE EXCEPTION 'told to' USING ERRCODE = '`+state+`'; END $$`)
		return err
	}
	_, terminated := pg.ExecContext(t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`)
	_, slow := pg.ExecContext(t.Context(), `SET statement_timeout = 1; SELECT pg_sleep(10)`)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, cancelled := pg.ExecContext(ended, `SELECT 1`)
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, overdue := pg.ExecContext(late, `SELECT 1`)
	for _, c := range []struct {
		name string
		err  error
		want eventing.ReasonCode
	}{
		{"a port that nobody listens on", refused(t), ReasonConnRefused},
		{"a connection that is reset", reset(t), ReasonConnReset},
		{"a server that does not answer", silent(t), eventing.ReasonTimeout},
		{"a connection that is not made in time", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}, eventing.ReasonTimeout},
		{"a deadline of one's own", os.ErrDeadlineExceeded, eventing.ReasonTimeout},
		{"a name that is none", &net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true}, ReasonHostNotFound},
		{"a context that was cancelled", context.Canceled, ReasonCancelled},
		{"a query that was cancelled", cancelled, ReasonCancelled},
		{"a query out of time", overdue, eventing.ReasonTimeout},
		{"a statement_timeout", slow, eventing.ReasonTimeout},
		{"a session that was ended", terminated, ReasonStoreUnavailable},
		{"a full disk", raise("53100"), ReasonStoreUnavailable},
		{"a deadlock", raise("40P01"), ReasonStoreConflict},
		{"a serialization failure", raise("40001"), ReasonStoreConflict},
		{"a lock that is taken", raise("55P03"), ReasonStoreBusy},
		{"a connection of the pool that broke", sql.ErrConnDone, ReasonStoreUnavailable},
		{"what the library's stores say", eventing.ErrUnavailable, ReasonStoreUnavailable},
		{"SQLite's file, locked", locked(t), ReasonStoreBusy},
		{"MongoDB, of its network", mongoError("TransientTransactionError NetworkError"), ReasonStoreUnavailable},
		{"MongoDB, without a primary", mongoError("RetryableWriteError"), ReasonStoreUnavailable},
		{"MongoDB, a conflict", mongoError("TransientTransactionError"), ReasonStoreConflict},
		{"a constraint", raise("23514"), eventing.ReasonHandlerError},
		{"whatever else", errors.New("what?"), eventing.ReasonHandlerError},
	} {
		if c.err == nil {
			t.Errorf("%s: there is no error", c.name)
			continue
		}
		err := reasoned(fmt.Errorf("apply event evt_1: %w", c.err))
		if got := eventing.ReasonOf(err); got != c.want || eventing.IsPermanent(err) || !errors.Is(err, c.err) {
			t.Errorf("%s: %s, permanent: %t, want %s: %v", c.name, got, eventing.IsPermanent(err), c.want, c.err)
		}
	}
}

func refused(t *testing.T) error {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// reset returns the error of a connection whose other side is gone with what it was sent unread.
func reset(t *testing.T) error {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.(*net.TCPConn).SetLinger(0), other.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func silent(t *testing.T) error {
	t.Helper()
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer server.Close()
	defer close(done)
	client := http.Client{Timeout: 10 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

func locked(t *testing.T) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locked.db")
	var holder *sql.Conn
	for range 2 {
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if holder == nil {
			holder = conn
		} else {
			_, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
			return err
		}
		if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
	}
	return nil
}
