package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

func retry(t *testing.T, policy eventing.RetryPolicy) message.HandlerMiddleware {
	t.Helper()
	mw, err := middleware.Retry(middleware.RetryConfig{Policy: policy, Logger: slog.New(slog.DiscardHandler), Random: func() float64 { return 0.5 }})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

func TestRetryWaitsByItsPolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy, began := eventing.RetryPolicy{MaxAttempts: 4, Base: time.Second, Multiplier: 3, Jitter: 0.2}, time.Now()
		var at []time.Duration
		_, err := call(retry(t, policy), nil, func(*message.Message) ([]*message.Message, error) {
			at = append(at, time.Since(began))
			return nil, errBusy
		})
		want := []time.Duration{0, 1100 * time.Millisecond, 4400 * time.Millisecond, 14300 * time.Millisecond}
		if !slices.Equal(at, want) {
			t.Errorf("the attempts are at %v, want %v", at, want)
		}
		if !eventing.IsPermanent(err) || !errors.Is(err, errBusy) || !strings.Contains(err.Error(), "4 attempts") {
			t.Errorf("the last error is for good, and says why: %v", err)
		}
	})
}

// A handler that always snoozes is not asked for ever: what does not fit any more counts.
func TestSnoozesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs, began := 0, time.Now()
		_, err := call(retry(t, eventing.RetryPolicy{MaxAttempts: 3}), nil, func(*message.Message) ([]*message.Message, error) {
			runs++
			return nil, eventing.RetryAfter(25*time.Second, errBusy)
		})
		if took := time.Since(began); runs != 2+3 || took != 2*25*time.Second+1*time.Second+2*time.Second || !eventing.IsPermanent(err) {
			t.Errorf("%d runs in %v end with %v", runs, took, err)
		}
	})
}

func TestRetryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]func(ctx context.Context, stop func()) error{
		"in a wait":                   func(_ context.Context, stop func()) error { time.AfterFunc(time.Millisecond, stop); return errBusy },
		"in an attempt":               func(ctx context.Context, stop func()) error { stop(); return ctx.Err() },
		"in one that fails for good":  func(_ context.Context, stop func()) error { stop(); return errRejected },
		"in one that fails otherwise": func(_ context.Context, stop func()) error { stop(); return errBusy },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(context.Background())
				m, runs, began := message.NewMessage("m1", nil), 0, time.Now()
				m.SetContext(ctx)
				_, err := retry(t, eventing.RetryPolicy{})(func(m *message.Message) ([]*message.Message, error) {
					runs++
					return nil, h(m.Context(), stop)
				})(m)
				if !errors.Is(err, context.Canceled) || eventing.IsPermanent(err) || runs != 1 || time.Since(began) >= time.Second {
					t.Errorf("after %d runs in %v: %v", runs, time.Since(began), err)
				}
			})
		})
	}
}

// What has succeeded has succeeded, even if the shutdown came first.
func TestRetryKeepsASuccessAtShutdown(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	m := message.NewMessage("m1", nil)
	m.SetContext(ctx)
	produced, err := middleware.Timeout(time.Hour)(retry(t, eventing.RetryPolicy{})(func(m *message.Message) ([]*message.Message, error) {
		stop()
		return produce("p1")(m)
	}))(m)
	if err != nil || len(produced) != 1 {
		t.Errorf("got %v, %v", produced, err)
	}
}

func TestEachAttemptHasTheMessageAsItCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		_, err := call(retry(t, eventing.RetryPolicy{MaxAttempts: 2}), message.Metadata{"k": "v"}, func(m *message.Message) ([]*message.Message, error) {
			if runs++; m.Metadata.Get("k") != "v" || m.Context().Err() != nil {
				t.Errorf("attempt %d has %v", runs, m.Metadata)
			}
			ctx, cancel := context.WithCancel(m.Context())
			m.SetContext(ctx) // as Watermill's Timeout leaves it
			cancel()
			clear(m.Metadata)
			m.Ack()
			return nil, errBusy
		})
		if runs != 2 || !eventing.IsPermanent(err) {
			t.Errorf("%d runs: %v", runs, err)
		}
	})
}

func TestRetryRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	for says, cfg := range map[string]middleware.RetryConfig{
		"more than the 1m0s": {Policy: eventing.RetryPolicy{MaxAttempts: 8}},
		"more than the 15s":  {Policy: eventing.RetryPolicy{Jitter: 0.1}, MaxWait: 15 * time.Second}, // 15 s without its jitter
		"MaxAttempts is -1":  {Policy: eventing.RetryPolicy{MaxAttempts: -1}},
		"MaxWait is -1ns":    {MaxWait: -1},
	} {
		if _, err := middleware.Retry(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error must say %q: %v", says, err)
		}
	}
	if _, err := middleware.Retry(middleware.RetryConfig{Policy: eventing.RetryPolicy{MaxAttempts: 8}, MaxWait: 127 * time.Second}); err != nil {
		t.Errorf("what fits exactly is kept: %v", err)
	}
}

// Whoever wraps an error of the handler does not hide what it asks for.
func TestRetryLooksIntoErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		_, err := call(retry(t, eventing.RetryPolicy{}), nil, func(*message.Message) ([]*message.Message, error) {
			runs++
			return nil, fmt.Errorf("bill: %w", errRejected)
		})
		if runs != 1 || !eventing.IsPermanent(err) {
			t.Errorf("%d runs: %v", runs, err)
		}
	})
}
