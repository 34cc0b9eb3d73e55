package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

func circuitBreaker(t *testing.T, p eventing.BreakerPolicy) message.HandlerMiddleware {
	t.Helper()
	mw, err := middleware.CircuitBreaker(p)
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

func TestCircuitBreakerPausesTheLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mw, began := circuitBreaker(t, orderBreaker), time.Now()
		at := func(err error) time.Duration {
			var ran time.Duration
			_, got := call(mw, nil, func(*message.Message) ([]*message.Message, error) {
				ran = time.Since(began)
				return nil, err
			})
			if !errors.Is(got, err) {
				t.Errorf("the handler's error goes on: %v", got)
			}
			return ran
		}
		for i, step := range []struct {
			err error
			at  time.Duration
		}{
			{errBusy, 0}, {nil, 0}, {errBusy, 0}, {errRejected, 0}, {errBusy, 0}, {errBusy, 0}, // two in a row: open
			{errBusy, 10 * time.Second},                         // the one that decides
			{eventing.RetryAfter(1, errBusy), 20 * time.Second}, // says nothing, so the next decides
			{nil, 20 * time.Second}, {errBusy, 20 * time.Second}, {nil, 20 * time.Second},
		} {
			if got := at(step.err); got != step.at {
				t.Errorf("attempt %d ran at %v, want %v", i, got, step.at)
			}
		}
	})
}

// A panic that nobody inside has recovered is no verdict, and leaves no breaker that waits
// for one for ever; neither does a shutdown.
func TestCircuitBreakerWithoutAVerdict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mw := circuitBreaker(t, eventing.BreakerPolicy{Failures: 1, OpenFor: time.Second})
		fail := func(*message.Message) ([]*message.Message, error) { return nil, errBusy }
		if _, err := call(mw, nil, fail); !errors.Is(err, errBusy) {
			t.Fatal(err)
		}
		boom := func(*message.Message) ([]*message.Message, error) { panic("boom") }
		if _, err := call(func(h message.HandlerFunc) message.HandlerFunc { return middleware.Recover(mw(h)) }, nil, boom); err == nil {
			t.Error("a panic goes on")
		}
		ctx, stop := context.WithCancel(context.Background())
		m := message.NewMessage("m1", nil)
		m.SetContext(ctx)
		if _, err := mw(func(m *message.Message) ([]*message.Message, error) { stop(); return fail(m) })(m); !errors.Is(err, errBusy) {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := call(mw, nil, produce()); err != nil || time.Since(began) != 0 {
			t.Errorf("the next attempt decides, at once: %v after %v", err, time.Since(began))
		}
	})
}

func TestCircuitBreakerEndsWaitingWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mw := circuitBreaker(t, eventing.BreakerPolicy{Failures: 1})
		if _, err := call(mw, nil, func(*message.Message) ([]*message.Message, error) { return nil, errBusy }); !errors.Is(err, errBusy) {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		m := message.NewMessage("m1", nil)
		m.SetContext(ctx)
		_, err := mw(func(*message.Message) ([]*message.Message, error) {
			t.Error("the handler must not run")
			return nil, nil
		})(m)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestCircuitBreakerRefusesNegativeNumbers(t *testing.T) {
	t.Parallel()
	for _, p := range []eventing.BreakerPolicy{{Failures: -1}, {OpenFor: -1}} {
		if _, err := middleware.CircuitBreaker(p); err == nil {
			t.Errorf("%+v must be refused", p)
		}
	}
}
