package eventing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors that callers can tell apart with errors.Is.
var (
	// ErrNotFound: no such dead letter, or none that is still open.
	ErrNotFound = errors.New("not found")
	// ErrState: the dead letter's state does not allow this act.
	ErrState = errors.New("not allowed in this state")
	// ErrChanged: the dead letter has another generation than the caller has seen.
	ErrChanged = errors.New("changed since it was looked at")
	// ErrConflict is a store's answer to a conclusion whose delivery is no
	// longer as it was when its run began: somebody else has concluded it.
	// Nothing has been written.
	ErrConflict = errors.New("the delivery was concluded by another run")
	// ErrBrokenTx is a store's answer to a handler that returned nil and left a
	// transaction that cannot commit: a failed statement whose error it ignored, a
	// constraint that is checked at the end, or a commit or rollback of its own. It
	// counts as a failure of the handler.
	ErrBrokenTx = errors.New("the handler left a transaction that cannot commit")
	// ErrLeaseLost is a store's answer to a write under a lease that another
	// holder has taken since. Nothing has been written.
	ErrLeaseLost = errors.New("the lease was taken over")
	// ErrSerialization: the database has rolled a transaction back because of others, by
	// a deadlock or a serialization failure. Nothing has been written; do it again.
	ErrSerialization = errors.New("the transaction collided with another and was rolled back")
	// ErrUnavailable: the connection to the database broke, or could not be made. If
	// that was at a commit, nobody knows whether it has happened.
	ErrUnavailable = errors.New("the database cannot be reached")
)

// InvalidEventError says which field of an event is at fault.
type InvalidEventError struct {
	EventID string // may be empty
	Field   string // as in the envelope's JSON; empty if the whole is at fault
	Problem string
}

func (e *InvalidEventError) Error() string {
	s := "invalid event"
	if e.EventID != "" {
		s += " " + e.EventID
	}
	if e.Field != "" {
		return s + ": " + e.Field + " " + e.Problem
	}
	return s + ": " + e.Problem
}

// ReasonCode says in one word why an attempt failed or an event died. The
// codes of the library are listed below; handlers may add their own with
// [PermanentWithReason] and [WithReason].
type ReasonCode string

// The library's reason codes.
const (
	// ReasonTimeout: the handler's time ran out, or a call that it made.
	ReasonTimeout ReasonCode = "TIMEOUT"
	// ReasonHandlerError: the handler returned an error, of unknown kind.
	ReasonHandlerError ReasonCode = "HANDLER_ERROR"
	// ReasonPanic: the handler panicked.
	ReasonPanic ReasonCode = "HANDLER_PANIC"
	// ReasonBrokenTx: the handler left a transaction that cannot commit.
	ReasonBrokenTx ReasonCode = "TRANSACTION_BROKEN"
	// ReasonRejected: the handler returned a permanent error.
	ReasonRejected ReasonCode = "REJECTED"
	// ReasonRetriesExhausted: the last of the allowed attempts failed.
	ReasonRetriesExhausted ReasonCode = "RETRIES_EXHAUSTED"
	// ReasonTimeoutExhausted: the same, and the last failure was a timeout.
	ReasonTimeoutExhausted ReasonCode = "DOWNSTREAM_TIMEOUT_EXHAUSTED"
	// ReasonEnvelopeMalformed: the message is not an envelope.
	ReasonEnvelopeMalformed ReasonCode = "ENVELOPE_MALFORMED"
	// ReasonPayloadMalformed: the payload does not decode into the handler's type.
	ReasonPayloadMalformed ReasonCode = "PAYLOAD_MALFORMED"
	// ReasonNoHandler: the consumer has no handler for the event's type.
	ReasonNoHandler ReasonCode = "NO_HANDLER"
	// ReasonNoRoute: no consumer is routed for the event's type.
	ReasonNoRoute ReasonCode = "NO_ROUTE"
	// ReasonUnpublishable: the broker takes other messages, but not this one.
	ReasonUnpublishable ReasonCode = "UNPUBLISHABLE"
	// ReasonExpired: a dead letter that nobody looked at in time.
	ReasonExpired ReasonCode = "EXPIRED"
)

type permanentError struct {
	reason ReasonCode
	err    error
}

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

func permanent(reason ReasonCode, err error) error { return &permanentError{reason, err} }

// Permanent marks an error as one that no retry can mend: the event goes to the
// dead letters at once. Permanent(nil) is nil.
func Permanent(err error) error { return PermanentWithReason(ReasonRejected, err) }

// PermanentWithReason is [Permanent] with a reason code of one's own, such as
// "UNKNOWN_STATUS".
func PermanentWithReason(reason ReasonCode, err error) error {
	if err == nil {
		return nil
	}
	return permanent(reason, err)
}

// IsPermanent reports whether no retry can mend the error.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type reasonedError struct {
	reason ReasonCode
	err    error
}

func (e *reasonedError) Error() string { return e.err.Error() }
func (e *reasonedError) Unwrap() error { return e.err }

// WithReason gives an error that passes a reason code of one's own, such as "ECONNREFUSED", which its attempt has in
// the history. It is tried again as without one; once the attempts are spent, the dead letter's code is
// [ReasonRetriesExhausted] all the same, or [ReasonTimeoutExhausted] if reason is [ReasonTimeout]. Permanent errors keep their own.
// WithReason(reason, nil) is nil.
func WithReason(reason ReasonCode, err error) error {
	if err == nil {
		return nil
	}
	return &reasonedError{reason, err}
}

type retryAfterError struct {
	after time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// minSnooze keeps handlers that snooze for no time at all from spinning.
const minSnooze = 100 * time.Millisecond

// RetryAfter snoozes the event: it is handled again after d, at least 100 ms, and this
// attempt does not count. err says why; it must not be nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("snoozed")
	}
	return &retryAfterError{max(d, minSnooze), err}
}

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// SnoozeOf returns for how long a handler's error snoozes its event: see [RetryAfter]. ok is
// false if it does not.
func SnoozeOf(err error) (after time.Duration, ok bool) {
	var snooze *retryAfterError
	if IsPermanent(err) || !errors.As(err, &snooze) {
		return 0, false
	}
	return snooze.after, true
}

// ReasonOf names the kind of a handler's error.
func ReasonOf(err error) ReasonCode {
	var p *permanentError
	var panicked *PanicError
	var reasoned *reasonedError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &p):
		return p.reason
	case errors.As(err, &reasoned):
		return reasoned.reason
	case errors.As(err, &panicked):
		return ReasonPanic
	case errors.Is(err, ErrBrokenTx):
		return ReasonBrokenTx
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ReasonTimeout
	}
	return ReasonHandlerError
}

const maxMessageBytes = 1024

// truncate makes an error's text storable in every database: bounded, UTF-8,
// without NUL.
func truncate(s string) string {
	const ellipsis = "…"
	s = strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), 2*maxMessageBytes)], "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= maxMessageBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessageBytes-len(ellipsis)], "") + ellipsis
}
