package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

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
