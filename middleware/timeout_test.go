package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

func TestTimeout(t *testing.T) {
	t.Parallel()
	overrun := func(m *message.Message) ([]*message.Message, error) {
		<-time.After(2 * time.Second)
		return produce("p1")(m)
	}
	stuck := func(m *message.Message) ([]*message.Message, error) {
		<-m.Context().Done()
		return nil, m.Context().Err()
	}
	quick := func(m *message.Message) ([]*message.Message, error) {
		<-time.After(time.Second - 1)
		return produce("p1")(m)
	}
	for name, c := range map[string]struct {
		h        message.HandlerFunc
		err      error
		produced int
	}{
		"one that heeds its context ends":                     {stuck, context.DeadlineExceeded, 0},
		"one that overran its time has failed":                {overrun, context.DeadlineExceeded, 0},
		"one that is in time is left alone":                   {quick, nil, 1},
		"an error is the handler's, not that of the deadline": {func(*message.Message) ([]*message.Message, error) { return nil, errBusy }, errBusy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if produced, err := call(middleware.Timeout(time.Second), nil, c.h); !errors.Is(err, c.err) || len(produced) != c.produced {
					t.Errorf("got %v, %v", produced, err)
				}
			})
		})
	}
}

// A message may be tried again: the deadline of one run must not be that of the next.
func TestTimeoutGivesTheContextBack(t *testing.T) {
	t.Parallel()
	m := message.NewMessage("m1", nil)
	m.SetContext(context.Background())
	for range 2 {
		if _, err := middleware.Timeout(time.Hour)(produce())(m); err != nil {
			t.Errorf("each run has its own time: %v", err)
		}
	}
	if m.Context() != context.Background() {
		t.Error("afterwards the message has the context that it had")
	}
}

// A driver may say that a statement was cancelled, and not why.
func TestTimeoutSaysThatItWasTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, its := range []error{errBusy, errRejected} {
			_, err := call(middleware.Timeout(time.Second), nil, func(m *message.Message) ([]*message.Message, error) {
				<-m.Context().Done()
				return nil, its
			})
			if !errors.Is(err, its) || !errors.Is(err, context.DeadlineExceeded) || eventing.IsPermanent(err) != eventing.IsPermanent(its) {
				t.Errorf("the error is both: %v", err)
			}
		}
	})
}

// A shutdown is not the handler's time running out.
func TestTimeoutLeavesASuccessAtShutdown(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	m := message.NewMessage("m1", nil)
	m.SetContext(ctx)
	produced, err := middleware.Timeout(time.Hour)(func(m *message.Message) ([]*message.Message, error) {
		stop()
		return produce("p1")(m)
	})(m)
	if err != nil || len(produced) != 1 {
		t.Errorf("got %v, %v", produced, err)
	}
}

// As neighbours, either may be outside.
func TestTimeoutAndRecoverCommute(t *testing.T) {
	t.Parallel()
	timeout := middleware.Timeout(time.Second)
	for name, h := range map[string]message.HandlerFunc{
		"success": produce("p1"),
		"failure": func(*message.Message) ([]*message.Message, error) { return nil, errBusy },
		"panic":   func(*message.Message) ([]*message.Message, error) { panic("boom") },
		"hangs":   func(m *message.Message) ([]*message.Message, error) { <-m.Context().Done(); return nil, nil },
		"hangs, and panics of it": func(m *message.Message) ([]*message.Message, error) {
			<-m.Context().Done()
			panic("boom")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var of [2]string
				for i, mw := range []message.HandlerMiddleware{
					func(h message.HandlerFunc) message.HandlerFunc { return timeout(middleware.Recover(h)) },
					func(h message.HandlerFunc) message.HandlerFunc { return middleware.Recover(timeout(h)) },
				} {
					m := message.NewMessage("m1", nil)
					produced, err := mw(h)(m)
					var panicked *eventing.PanicError
					of[i] = fmt.Sprintf("%d, panic %v, permanent %v, context %v", len(produced), errors.As(err, &panicked), eventing.IsPermanent(err), m.Context().Err())
				}
				if of[0] != of[1] {
					t.Errorf("%s is not %s", of[0], of[1])
				}
			})
		})
	}
}
