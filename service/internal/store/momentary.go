package store

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// Momentary reports whether an error is of the connection or of the database's state, rather
// than of what was to be stored: the same may succeed later.
func Momentary(err error) bool {
	if errors.Is(err, eventing.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var network net.Error
	if errors.As(err, &network) {
		return true
	}
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return len(state.SQLState()) == 5 && slices.Contains(momentaryClasses, state.SQLState()[:2])
	}
	var coded interface{ Code() int }
	return errors.As(err, &coded) && slices.Contains(momentaryCodes, coded.Code()&0xff)
}

// momentaryClasses are those of SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html):
// connection, transaction state, rollback, resources, prerequisites, intervention, system, internal.
var momentaryClasses = []string{"08", "25", "40", "53", "55", "57", "58", "XX"}

// momentaryCodes are those of SQLite (https://www.sqlite.org/rescode.html): PERM, BUSY, LOCKED,
// NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL.
var momentaryCodes = []int{3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15}
