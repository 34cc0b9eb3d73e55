package eventing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	base := errors.New("base")
	for _, c := range []struct {
		err       error
		permanent bool
		reason    ReasonCode
	}{
		{base, false, ReasonHandlerError},
		{Permanent(base), true, ReasonRejected},
		{fmt.Errorf("wrapped: %w", Permanent(base)), true, ReasonRejected},
		{PermanentWithReason("UNKNOWN_STATUS", base), true, "UNKNOWN_STATUS"},
		{errors.Join(base, Permanent(base)), true, ReasonRejected},
		{RetryAfter(time.Second, base), false, ReasonHandlerError},
		{context.DeadlineExceeded, false, ReasonTimeout},
		{fmt.Errorf("call: %w", os.ErrDeadlineExceeded), false, ReasonTimeout},
		{&net.DNSError{IsTimeout: true}, false, ReasonTimeout},
		{&net.DNSError{}, false, ReasonHandlerError},
		{&PanicError{Value: "x"}, false, ReasonPanic},
	} {
		if IsPermanent(c.err) != c.permanent || ReasonOf(c.err) != c.reason {
			t.Errorf("%v: want permanent %v and %s, got %v and %s", c.err, c.permanent, c.reason, IsPermanent(c.err), ReasonOf(c.err))
		}
	}
	if Permanent(nil) != nil || PermanentWithReason("X", nil) != nil {
		t.Error("no error is no permanent error")
	}
	if !errors.Is(Permanent(base), base) || !errors.Is(RetryAfter(1, base), base) || Permanent(base).Error() != "base" {
		t.Error("marking an error keeps it")
	}
	if RetryAfter(time.Second, nil) == nil {
		t.Error("a snooze without a reason is still one")
	}
	for want, err := range map[string]error{
		"invalid event e1: payload is missing": &InvalidEventError{EventID: "e1", Field: "payload", Problem: "is missing"},
		"invalid event: not an envelope":       &InvalidEventError{Problem: "not an envelope"},
		"handler panicked: x":                  &PanicError{Value: "x"},
	} {
		if err.Error() != want {
			t.Errorf("want %q, got %q", want, err)
		}
	}
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "short", strings.Repeat("x", 1024), strings.Repeat("x", 5000), strings.Repeat("é", 2000), "a\x00b", "\xff", strings.Repeat("\xffx", 1000), strings.Repeat("\x00", 1024),
	} {
		got := truncate(s)
		if len(got) > maxMessageBytes {
			t.Errorf("an error's text in the store has at most %d bytes, got %d", maxMessageBytes, len(got))
		}
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("and every database can store it: %q", got)
		}
	}
	if truncate("short") != "short" {
		t.Error("a short text stays as it is")
	}
}

func TestFault(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	ctx := WithFaults(context.Background(), func(p FaultPoint) error {
		if p == FaultClaimed {
			return boom
		}
		return nil
	})
	var crash *crashError
	if err := Fault(ctx, FaultClaimed); !errors.As(err, &crash) || !errors.Is(err, boom) {
		t.Errorf("a fault is told from other errors and says its cause, got %v", err)
	}
	if err := errors.Join(Fault(ctx, FaultPublished), Fault(context.Background(), FaultClaimed)); err != nil {
		t.Errorf("no fault, no error; got %v", err)
	}
}

func TestWithReason(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	err := fmt.Errorf("call the bank: %w", WithReason("ECONNREFUSED", cause))
	if ReasonOf(err) != "ECONNREFUSED" || IsPermanent(err) || !errors.Is(err, cause) {
		t.Errorf("it has its reason, its cause, and passes: %s, %v", ReasonOf(err), err)
	}
	if got := ReasonOf(WithReason("ECONNREFUSED", PermanentWithReason("UNKNOWN_STATUS", cause))); got != "UNKNOWN_STATUS" {
		t.Errorf("a permanent error keeps its own, got %s", got)
	}
	if WithReason("ECONNREFUSED", nil) != nil {
		t.Error("no error, no reason")
	}
}
