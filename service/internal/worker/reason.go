package worker

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/waybill-go/waybill/eventing"
)

// Reason codes of events that no retry can mend.
const (
	ReasonInvalidStatus  eventing.ReasonCode = "INVALID_STATUS"
	ReasonInvalidPayload eventing.ReasonCode = "INVALID_PAYLOAD"
	// ReasonIdempotencyConflict is of an event whose idempotency key the ledger has with another body.
	ReasonIdempotencyConflict eventing.ReasonCode = "IDEMPOTENCY_CONFLICT"
)

// Reason codes of errors that pass, beside the library's: whatever ran out of time is its TIMEOUT, and
// what is not known its HANDLER_ERROR.
const (
	ReasonConnRefused      eventing.ReasonCode = "ECONNREFUSED"
	ReasonConnReset        eventing.ReasonCode = "ECONNRESET"
	ReasonHostNotFound     eventing.ReasonCode = "ENOTFOUND"
	ReasonHostUnreachable  eventing.ReasonCode = "EHOSTUNREACH"
	ReasonCancelled        eventing.ReasonCode = "CANCELLED"
	ReasonStoreUnavailable eventing.ReasonCode = "STORE_UNAVAILABLE"
	ReasonStoreConflict    eventing.ReasonCode = "STORE_CONFLICT"
	ReasonStoreBusy        eventing.ReasonCode = "STORE_BUSY"
)

// reasoned gives an error the code of its kind, which the attempt and the ledger show.
func reasoned(err error) error {
	if code := reasonOf(err); code != "" {
		return eventing.WithReason(code, err)
	}
	return err
}

// reasonOf tells errors apart by what they can do, so that no driver is linked for it: most specific first, as
// a database's error may wrap that of its connection. It is "" for what the library tells apart itself.
func reasonOf(err error) eventing.ReasonCode {
	if ranOut(err) {
		return eventing.ReasonTimeout
	}
	var notFound *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonConnRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return ReasonConnReset
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return ReasonHostUnreachable
	case errors.As(err, &notFound):
		return ReasonHostNotFound
	case errors.Is(err, context.Canceled):
		return ReasonCancelled
	}
	return storeReason(err)
}

const queryCancelled = "57014" // PostgreSQL's statement_timeout among other reasons

// ranOut also recognises what did, where it is wrapped beside other errors.
func ranOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) ||
		errors.As(err, &timeout) && timeout.Timeout() || sqlState(err) == queryCancelled
}

// storeReason tells the errors of databases apart: PostgreSQL's by SQLSTATE
// (https://www.postgresql.org/docs/current/errcodes-appendix.html), MongoDB's by label
// (https://www.mongodb.com/docs/manual/reference/error-codes/), SQLite's by the low byte of its code
// (https://www.sqlite.org/rescode.html).
func storeReason(err error) eventing.ReasonCode {
	switch state := sqlState(err); {
	case errors.Is(err, eventing.ErrSerialization), strings.HasPrefix(state, "40"), labelled(err, "TransientTransactionError") && !labelled(err, "NetworkError"):
		return ReasonStoreConflict
	case state == "55P03": // a lock that was not waited for
		return ReasonStoreBusy
	case errors.Is(err, eventing.ErrUnavailable), errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57P"), strings.HasPrefix(state, "53"), strings.HasPrefix(state, "58"),
		labelled(err, "NetworkError"), labelled(err, "RetryableWriteError"):
		return ReasonStoreUnavailable
	}
	var sqlite interface{ Code() int }
	if errors.As(err, &sqlite) {
		switch sqlite.Code() & 0xff {
		case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
			return ReasonStoreBusy
		case 7, 8, 10, 13, 14: // SQLITE_NOMEM, _READONLY, _IOERR, _FULL, _CANTOPEN
			return ReasonStoreUnavailable
		}
	}
	return ""
}

func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

func labelled(err error, label string) bool {
	var labels interface{ HasErrorLabel(string) bool }
	return errors.As(err, &labels) && labels.HasErrorLabel(label)
}
