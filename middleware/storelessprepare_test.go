package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

// Each attempt is prepared anew, and its failure is the attempt's; the handler knows which one it is.
func TestStorelessPrepare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		note := func(who string, ctx context.Context) {
			a, _ := eventing.AttemptFromContext(ctx)
			told = append(told, fmt.Sprint(who, " ", a.Consumer, " ", a.Number, " ", a.RoutingVersion, " ", eventing.Prepared(ctx)))
		}
		outcomes := []any{errBusy, "boom", eventing.RetryAfter(time.Second, errBusy), nil, nil}
		handled := []error{errBusy, nil}
		h := consumeStoreless(t, storeless(&topic{}, func(c *middleware.StorelessConfig) {
			c.Observer = &eventing.Observer{Concluded: func(c eventing.Conclusion, _ time.Duration) {
				told = append(told, fmt.Sprint(c.State, " ", c.Attempts, " ", c.Reason, " ", c.RoutingVersion))
			}}
			c.Prepare = func(ctx context.Context, e eventing.Envelope) (any, error) {
				note("prepare", ctx)
				outcome := outcomes[0]
				outcomes = outcomes[1:]
				if what, panics := outcome.(string); panics {
					panic(what)
				}
				err, _ := outcome.(error)
				return e.ID, err
			}
		}))(func(m *message.Message) ([]*message.Message, error) {
			note("handle", m.Context())
			err := handled[0]
			handled = handled[1:]
			return nil, err
		})
		m := envelope(t, "e1")
		m.Metadata.Set(eventing.MetadataRoutingVersion, "v1")
		if _, err := h(m); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"prepare mail 1 v1 <nil>", "retrying 1 HANDLER_ERROR v1",
			"prepare mail 2 v1 <nil>", "retrying 2 HANDLER_PANIC v1",
			"prepare mail 3 v1 <nil>", "retrying 2 HANDLER_ERROR v1",
			"prepare mail 3 v1 <nil>", "handle mail 3 v1 e1", "retrying 3 HANDLER_ERROR v1",
			"prepare mail 4 v1 <nil>", "handle mail 4 v1 e1", " 4  v1",
		}
		if !slices.Equal(told, want) {
			t.Errorf("got  %q\nwant %q", told, want)
		}
	})
}

// One timeout is for both.
func TestStorelessPrepareTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reasons []eventing.ReasonCode
		var left []time.Duration
		preparing := 11 * time.Second
		h := consumeStoreless(t, storeless(&topic{}, func(c *middleware.StorelessConfig) {
			c.Policy.Timeout = 10 * time.Second
			c.Observer = &eventing.Observer{Concluded: func(c eventing.Conclusion, _ time.Duration) { reasons = append(reasons, c.Reason) }}
			c.Prepare = func(context.Context, eventing.Envelope) (any, error) {
				<-time.After(preparing)
				preparing -= 5 * time.Second
				return nil, nil
			}
		}))(func(m *message.Message) ([]*message.Message, error) {
			end, _ := m.Context().Deadline()
			left = append(left, time.Until(end))
			return nil, nil
		})
		if _, err := h(envelope(t, "e1")); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(reasons, []eventing.ReasonCode{eventing.ReasonTimeout, ""}) || !slices.Equal(left, []time.Duration{4 * time.Second}) {
			t.Errorf("the attempts ended by %q; the handler had %v", reasons, left)
		}
	})
}
