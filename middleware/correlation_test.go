package middleware_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

func TestCorrelation(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, c := range map[string]struct {
		metadata                  message.Metadata
		correlation, cause, trace string
	}{
		"of an event":          {message.Metadata{"correlation_id": "c", "event_id": "e", "traceparent": parent}, "c", "e", parent},
		"of any other message": {nil, "m1", "m1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ctx context.Context
			_, err := call(middleware.Correlation, c.metadata, func(m *message.Message) ([]*message.Message, error) {
				ctx = m.Context()
				return nil, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			trace, _ := eventing.TraceContext(ctx)
			if eventing.CorrelationID(ctx) != c.correlation || eventing.CausationID(ctx) != c.cause || trace != c.trace {
				t.Errorf("the context has %q, %q, %q", eventing.CorrelationID(ctx), eventing.CausationID(ctx), trace)
			}
		})
	}
}

func TestCorrelationOfProducedMessages(t *testing.T) {
	t.Parallel()
	produced, err := call(middleware.Correlation, message.Metadata{"correlation_id": "c"}, func(m *message.Message) ([]*message.Message, error) {
		out, err := produce("p1", "p2")(m)
		out[1].Metadata.Set("correlation_id", "its own")
		return out, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"c", "its own"} {
		if got := produced[i].Metadata.Get("correlation_id"); got != want {
			t.Errorf("produced message %d has the correlation ID %q, want %q", i, got, want)
		}
	}
}

// Anybody may write metadata: what no event could carry would keep the handler from
// appending.
func TestCorrelationOfMetadataThatNoEventCanCarry(t *testing.T) {
	t.Parallel()
	for _, v := range []string{strings.Repeat("x", 256), "\xff", "a\x00"} {
		_, err := call(middleware.Correlation, message.Metadata{"correlation_id": v, "event_id": v, "traceparent": v}, func(m *message.Message) ([]*message.Message, error) {
			trace, _ := eventing.TraceContext(m.Context())
			if eventing.CorrelationID(m.Context()) != "m1" || eventing.CausationID(m.Context()) != "m1" || trace != "" {
				t.Errorf("%.10q is carried", v)
			}
			return nil, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
