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
	"go.opentelemetry.io/otel/codes"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

// storeless is the configuration of one; adjust changes it.
func storeless(p *topic, adjust func(*middleware.StorelessConfig)) middleware.StorelessConfig {
	cfg := middleware.StorelessConfig{Name: "mail", Publisher: p, PoisonTopic: "poison", Logger: slog.New(slog.DiscardHandler)}
	if adjust != nil {
		adjust(&cfg)
	}
	return cfg
}

func consumeStoreless(t *testing.T, cfg middleware.StorelessConfig) message.HandlerMiddleware {
	t.Helper()
	mw, err := middleware.ConsumeStoreless(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

func TestStorelessRefusesWhatNeedsAStore(t *testing.T) {
	t.Parallel()
	for says, adjust := range map[string]func(*middleware.StorelessConfig){
		"consumer mail: Ordered needs a store": func(c *middleware.StorelessConfig) { c.Policy.Ordered = true },
		"exactly_once needs a store":           func(c *middleware.StorelessConfig) { c.Policy.Guarantee = eventing.ExactlyOnce },
		"other than dead_letter needs a store": func(c *middleware.StorelessConfig) { c.Policy.OnExhausted = []string{eventing.ActionAlert} },
		"a consumer with a store":              func(c *middleware.StorelessConfig) { c.Policy.Retry.Base = time.Hour },
		"more than the 1s":                     func(c *middleware.StorelessConfig) { c.MaxWait = time.Second },
		"Timeout is -1ns":                      func(c *middleware.StorelessConfig) { c.Policy.Timeout = -1 },
		"ShutdownGrace is -1ns":                func(c *middleware.StorelessConfig) { c.ShutdownGrace = -1 },
		"a name has 1 to 255 bytes":            func(c *middleware.StorelessConfig) { c.Name = "" },
		"a publisher and a topic":              func(c *middleware.StorelessConfig) { c.PoisonTopic = "" },
	} {
		if _, err := middleware.ConsumeStoreless(storeless(&topic{}, adjust)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error must say %q: %v", says, err)
		}
	}
	consumeStoreless(t, storeless(&topic{}, func(c *middleware.StorelessConfig) {
		c.Policy = eventing.Policy{Guarantee: eventing.AtLeastOnce, OnExhausted: []string{eventing.ActionDeadLetter}}
	}))
}

func TestStorelessHandlerHasItsEvent(t *testing.T) {
	t.Parallel()
	runs := 0
	m := envelope(t, "e1")
	_, err := consumeStoreless(t, storeless(&topic{}, nil))(func(m *message.Message) ([]*message.Message, error) {
		runs++
		ctx := m.Context()
		if e, ok := eventing.EnvelopeFromContext(m.Context()); !ok || e.ID != "e1" || eventing.CausationID(ctx) != "e1" || eventing.CorrelationID(ctx) != "c" {
			t.Errorf("the context is %v, %+v", ok, e)
		}
		return nil, nil
	})(m)
	if err != nil || runs != 1 {
		t.Errorf("%d runs: %v", runs, err)
	}
	if _, ok := eventing.EnvelopeFromContext(envelope(t, "e1").Context()); ok {
		t.Error("outside of a consumer there is no event")
	}
}

func TestStorelessPoisonsWhatDoesNotDecode(t *testing.T) {
	t.Parallel()
	var p topic
	if _, err := call(consumeStoreless(t, storeless(&p, nil)), nil, func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler must not run")
		return nil, nil
	}); err != nil || len(p.messages) != 1 || p.messages[0].Metadata.Get(middleware.MetadataReasonCode) != string(eventing.ReasonEnvelopeMalformed) {
		t.Errorf("got %v, %v", p.messages, err)
	}
}

// Consumers may share a topic.
func TestStorelessLeavesOthersMessages(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]int{"": 1, "mail": 1, "billing,mail": 1, "billing": 0, "mailing": 0} {
		runs := 0
		m := envelope(t, "e1")
		m.Metadata.Set(eventing.MetadataConsumers, to)
		_, err := consumeStoreless(t, storeless(&topic{}, nil))(func(*message.Message) ([]*message.Message, error) { runs++; return nil, nil })(m)
		if err != nil || runs != want {
			t.Errorf("for %q it runs %d times: %v", to, runs, err)
		}
	}
}

func TestStorelessConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, release, done := 0, make(chan struct{}), make(chan error)
		ctx, stop := context.WithCancel(context.Background())
		h := consumeStoreless(t, storeless(&topic{}, func(c *middleware.StorelessConfig) { c.Policy.Concurrency = 2 }))(
			func(*message.Message) ([]*message.Message, error) { running++; <-release; return nil, nil })
		for i := range 3 {
			m := envelope(t, fmt.Sprint(i))
			m.SetContext(ctx)
			go func() { _, err := h(m); done <- err }()
			synctest.Wait()
		}
		if running != 2 {
			t.Errorf("%d run at a time", running)
		}
		stop() // the third gives up waiting; those that run have their grace
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(release)
		if err := errors.Join(<-done, <-done); err != nil || running != 2 {
			t.Errorf("what succeeds within its grace has succeeded: %v", err)
		}
	})
}

func TestStorelessShutdownGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p topic
		ctx, stop := context.WithCancel(context.Background())
		m := envelope(t, "e1")
		m.SetContext(ctx)
		began := time.Now()
		_, err := consumeStoreless(t, storeless(&p, nil))(func(m *message.Message) ([]*message.Message, error) {
			stop()
			<-m.Context().Done()
			return nil, m.Context().Err()
		})(m)
		if took := time.Since(began); !errors.Is(err, context.Canceled) || took != 10*time.Second || len(p.messages) != 0 {
			t.Errorf("after %v: %v, %v", took, err, p.messages)
		}
	})
}

func TestStorelessObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		runs := 0
		cfg := storeless(&topic{}, func(c *middleware.StorelessConfig) {
			c.Policy = eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 2}, Breaker: eventing.BreakerPolicy{Failures: 2}}
			c.Observer = &eventing.Observer{
				Concluded: func(c eventing.Conclusion, took time.Duration) {
					told = append(told, fmt.Sprintf("%s %s %s %d %s %v", c.Consumer, c.Envelope.ID, c.State, c.Attempts, c.Reason, took))
				},
				Breaker: func(consumer string, s eventing.BreakerState) { told = append(told, consumer+" "+string(s)) },
			}
		})
		h := consumeStoreless(t, cfg)(func(*message.Message) ([]*message.Message, error) {
			if runs++; runs > 2 {
				return nil, nil
			}
			<-time.After(time.Second)
			return nil, errBusy
		})
		for _, id := range []string{"e1", "e2"} {
			if _, err := h(envelope(t, id)); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{
			"mail e1 retrying 1 HANDLER_ERROR 1s", "mail open", "mail e1 dead 2 RETRIES_EXHAUSTED 1s",
			"mail half_open", "mail closed", "mail e2  1  30s",
		}
		if !slices.Equal(told, want) {
			t.Errorf("the observer was told %q, want %q", told, want)
		}
	})
}

// A span of each attempt, linked to those that failed before in this process; a snooze is none.
func TestStorelessTracing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tracing, _, spans := newTracing(t)
		outcomes := []error{errBusy, eventing.RetryAfter(time.Second, errBusy), errBusy, nil}
		var inside []string
		h := consumeStoreless(t, storeless(&topic{}, func(c *middleware.StorelessConfig) { c.Tracer = tracing }))(
			func(m *message.Message) ([]*message.Message, error) {
				parent, _ := eventing.TraceContext(m.Context())
				inside = append(inside, parent)
				return []*message.Message{message.NewMessage("p", nil)}, outcomes[len(inside)-1]
			})
		m := envelope(t, "e1")
		m.Metadata.Set("traceparent", caller)
		produced, err := h(m)
		if err != nil || len(produced) != 1 {
			t.Fatal(produced, err)
		}
		all := spans.GetSpans()
		if len(all) != len(outcomes) {
			t.Fatalf("there are %d spans, want %d", len(all), len(outcomes))
		}
		for i, want := range []struct {
			attempt string
			linked  []int
		}{{"1", nil}, {"2", []int{0}}, {"2", []int{0}}, {"3", []int{0, 2}}} {
			var linked []int
			for _, l := range all[i].Links {
				linked = append(linked, slices.Index(inside, traceParentOf(l.SpanContext)))
			}
			if all[i].Name != "process mail" || traceParentOf(all[i].Parent) != caller || attributesOf(all[i])["waybill.attempt"] != want.attempt || !slices.Equal(linked, want.linked) {
				t.Errorf("run %d is %q, %v, linked to %v", i, all[i].Name, all[i].Attributes, linked)
			}
			if traceParentOf(all[i].SpanContext) != inside[i] || (all[i].Status.Code == codes.Error) != (outcomes[i] != nil) {
				t.Errorf("run %d has the trace context %s and the status %v", i, inside[i], all[i].Status)
			}
		}
		if got := produced[0].Metadata.Get("traceparent"); got != inside[3] {
			t.Errorf("what is produced carries %q, want %q", got, inside[3])
		}
	})
}

// Without a tracer, what a handler appends belongs to its message's trace; what a shutdown interrupts is
// no failed attempt.
func TestStorelessTraceContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tracing, _, spans := newTracing(t)
		for _, tracer := range []eventing.Tracer{nil, tracing} {
			ctx, stop := context.WithCancel(context.Background())
			m := envelope(t, "e1")
			m.Metadata.Set("traceparent", caller)
			m.SetContext(ctx)
			_, err := consumeStoreless(t, storeless(&topic{}, func(c *middleware.StorelessConfig) { c.Tracer = tracer }))(func(m *message.Message) ([]*message.Message, error) {
				if parent, _ := eventing.TraceContext(m.Context()); (parent == caller) != (tracer == nil) || !strings.Contains(parent, traceID) {
					t.Errorf("the trace context is %q", parent)
				}
				stop()
				return nil, errBusy
			})(m)
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if s := spans.one(t, "process mail"); s.Status.Code != codes.Unset || attributesOf(s)["waybill.no_attempt"] != "true" {
			t.Errorf("the status is %v, the attributes are %v", s.Status, s.Attributes)
		}
	})
}
