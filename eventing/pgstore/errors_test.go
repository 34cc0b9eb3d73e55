package pgstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-go/waybill/eventing"
)

func state(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }

func TestTyped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want error // nil: neither type
	}{
		{"serialization_failure", state("40001"), eventing.ErrSerialization},
		{"deadlock_detected", state("40P01"), eventing.ErrSerialization},
		{"admin_shutdown", state("57P01"), eventing.ErrUnavailable},
		{"crash_shutdown", state("57P02"), eventing.ErrUnavailable},
		{"cannot_connect_now", state("57P03"), eventing.ErrUnavailable},
		{"connection_failure", state("08006"), eventing.ErrUnavailable},
		{"too_many_connections", state("53300"), eventing.ErrUnavailable},
		{"idle_in_transaction_session_timeout", state("25P03"), eventing.ErrUnavailable},
		{"transaction_timeout", state("25P04"), eventing.ErrUnavailable},
		{"reset by the peer", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, eventing.ErrUnavailable},
		{"closed by the peer", io.ErrUnexpectedEOF, eventing.ErrUnavailable},
		{"a bad connection of database/sql", driver.ErrBadConn, eventing.ErrUnavailable},
		{"unique_violation", state("23505"), nil},
		{"in_failed_sql_transaction", state("25P02"), nil},
		{"query_canceled", state("57014"), nil},
		{"disk_full", state("53100"), nil},
		{"a context that ended", fmt.Errorf("timeout: %w", context.DeadlineExceeded), nil},
		{"a context that was cancelled", context.Canceled, nil},
		{"a transaction that was ended", pgx.ErrTxClosed, nil},
	} {
		got := typed(c.err)
		if !errors.Is(got, c.err) {
			t.Errorf("%s: the cause is lost: %v", c.name, got)
		}
		for _, kind := range []error{eventing.ErrSerialization, eventing.ErrUnavailable} {
			if errors.Is(got, kind) != errors.Is(c.want, kind) {
				t.Errorf("%s: got %v, want it to be: %v", c.name, got, c.want)
			}
		}
		if again := typed(got); again.Error() != got.Error() {
			t.Errorf("%s: typed twice: %v", c.name, again)
		}
	}
	if typed(nil) != nil {
		t.Error("nothing became an error")
	}
}

// A connection may be refused, also by the server, or not come about in time.
func TestTypedUnmade(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = refused.Close() // nobody listens there now
	for name, addr := range map[string]net.Addr{"silent": silent.Addr(), "refused": refused.Addr()} {
		config, err := pgx.ParseConfig("postgres://nobody@" + addr.String() + "/none?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		config.ConnectTimeout = 50 * time.Millisecond
		if _, err := pgx.ConnectConfig(t.Context(), config); !errors.Is(typed(err), eventing.ErrUnavailable) {
			t.Errorf("%s: %v", name, typed(err))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := pgx.ConnectConfig(ctx, config); errors.Is(typed(err), eventing.ErrUnavailable) || !errors.Is(typed(err), context.Canceled) {
			t.Errorf("%s, and the caller has gone: %v", name, typed(err))
		}
	}
}
