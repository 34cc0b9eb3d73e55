package pgstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-go/waybill/eventing"
)

// Errors are told apart by SQLSTATE
// (https://www.postgresql.org/docs/current/errcodes-appendix.html), never by their text.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	txAborted            = "25P02"
	txIdleTooLong        = "25P03" // the server has closed the connection
	txTooLong            = "25P04" // as well
	classIntegrity       = "23"
	classConnection      = "08"
	classShutdown        = "57P" // by an administrator, after a crash, while starting; or the connection was idle for too long
	tooManyConnections   = "53300"
)

// errUnread is of a transaction that cannot be used: its connection has the rest of a
// result to deliver first.
var errUnread = errors.New("a result of the transaction was not read to its end; close it")

func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// typed marks errors that say something about the server, not about the statement.
func typed(err error) error {
	if err == nil || errors.Is(err, eventing.ErrSerialization) || errors.Is(err, eventing.ErrUnavailable) {
		return err
	}
	switch state := sqlState(err); {
	case state == serializationFailure, state == deadlockDetected:
		return fmt.Errorf("%w: %w", eventing.ErrSerialization, err)
	case strings.HasPrefix(state, classConnection), strings.HasPrefix(state, classShutdown),
		state == tooManyConnections, state == txIdleTooLong, state == txTooLong, unmade(err), state == "" && lost(err):
		return fmt.Errorf("%w: %w", eventing.ErrUnavailable, err)
	}
	return err
}

// unmade recognises a connection that could not be made, for whatever reason the server
// or the network gave. Its time may have run out by a setting of its own.
func unmade(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) && !errors.Is(err, context.Canceled)
}

// lost recognises a connection that broke.
func lost(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var network net.Error
	return errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// broken recognises a transaction that an earlier error has aborted, a constraint that
// fails at the commit, a transaction that somebody else has ended, and one that the
// server has, as it took too long.
func broken(err error) bool {
	if state := sqlState(err); state != "" {
		return state == txAborted || state == txIdleTooLong || state == txTooLong || strings.HasPrefix(state, classIntegrity)
	}
	return errors.Is(err, errUnread) || errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, sql.ErrTxDone)
}
