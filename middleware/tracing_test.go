package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	caller  = "00-" + traceID + "-b7ad6b7169203331-01"
)

// spans are what a provider has exported.
type spans struct{ *tracetest.InMemoryExporter }

func newTracing(t *testing.T) (*middleware.Tracing, *sdktrace.TracerProvider, spans) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	t.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
	return middleware.NewTracing(tp, "test"), tp, spans{exporter}
}

// one returns the span of a name.
func (s spans) one(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	var names []string
	for _, span := range s.GetSpans() {
		names = append(names, span.Name)
		if span.Name == name {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans are named %q, of %q", len(found), name, names)
	}
	return found[0]
}

func attributesOf(s tracetest.SpanStub) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

func traceParentOf(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-%s", sc.TraceID(), sc.SpanID(), sc.TraceFlags())
}

func TestTracingOfAppends(t *testing.T) {
	t.Parallel()
	const elsewhere = "00-11111111111111111111111111111111-2222222222222222-01"
	id, err := trace.TraceIDFromHex(traceID)
	if err != nil {
		t.Fatal(err)
	}
	caught := trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	for name, c := range map[string]struct {
		carried        string // by the context
		active         bool   // a span, of the caller's trace
		parent, linked bool   // it is
		want           string // the parent, otherwise
	}{
		"nothing":                     {},
		"carried":                     {carried: caller, want: caller},
		"no trace context":            {carried: "00-nonsense-01"},
		"no span in it":               {carried: "00-" + traceID + "-0000000000000000-01"},
		"a span":                      {active: true, parent: true},
		"a span of the carried trace": {active: true, carried: caller, parent: true},
		"a span and another trace":    {active: true, carried: elsewhere, linked: true, want: elsewhere},
		"a span and no trace context": {active: true, carried: "00-nonsense-01", parent: true},
	} {
		tracing, tp, spans := newTracing(t)
		ctx := context.Background()
		if c.active {
			ctx, _ = tp.Tracer("").Start(trace.ContextWithRemoteSpanContext(ctx, caught), "request")
		}
		active := trace.SpanContextFromContext(ctx)
		if c.carried != "" {
			ctx = eventing.WithTraceContext(ctx, c.carried, "")
		}
		ctx, end := tracing.Append(ctx, 3)
		end(nil)
		span := spans.one(t, "append")
		want := c.want
		if c.parent {
			want = traceParentOf(active)
		}
		if got := traceParentOf(span.Parent); got != want {
			t.Errorf("%s: the parent is %q, want %q", name, got, want)
		}
		if linked := len(span.Links) == 1 && span.Links[0].SpanContext.Equal(active); linked != c.linked {
			t.Errorf("%s: the links are %v", name, span.Links)
		}
		if parent, _ := eventing.TraceContext(ctx); parent != traceParentOf(span.SpanContext) {
			t.Errorf("%s: the events get %q, not the span %v", name, parent, span.SpanContext)
		}
		if n := attributesOf(span)["messaging.batch.message_count"]; n != "3" || span.Status.Code != codes.Unset || span.SpanKind != trace.SpanKindInternal {
			t.Errorf("%s: %s events, status %v, kind %v", name, n, span.Status, span.SpanKind)
		}
	}
}

func traced(metadata message.Metadata, appended time.Time) eventing.TracedMessage {
	m := message.NewMessage("e1", message.Payload("secret"))
	m.Metadata = metadata
	return eventing.TracedMessage{Topic: "orders", Message: m, AppendedAt: appended}
}

func TestTracingOfDispatch(t *testing.T) {
	t.Parallel()
	tracing, _, spans := newTracing(t)
	appended := time.Now().Add(-time.Hour)
	m := traced(message.Metadata{"traceparent": caller, "tracestate": "a=1", "event_id": "e1", "event_type": "order.placed", "correlation_id": "c"}, appended)
	tracing.Dispatch(t.Context(), []eventing.TracedMessage{m})(nil)
	dispatch, send := spans.one(t, "dispatch orders"), spans.one(t, "send orders")
	if traceParentOf(dispatch.Parent) != caller || !send.Parent.Equal(dispatch.SpanContext) {
		t.Errorf("the parents are %v and %v", dispatch.Parent, send.Parent)
	}
	if got := m.Message.Metadata; got["traceparent"] != traceParentOf(send.SpanContext) || got["tracestate"] != "a=1" {
		t.Errorf("the message carries %v, not the publish, %v", got, send.SpanContext)
	}
	if !dispatch.StartTime.Equal(appended) || send.StartTime.Before(appended.Add(time.Hour)) || dispatch.EndTime.Before(send.EndTime) {
		t.Errorf("the dispatch is from %v to %v, the publish from %v to %v", dispatch.StartTime, dispatch.EndTime, send.StartTime, send.EndTime)
	}
	if dispatch.SpanKind != trace.SpanKindInternal || send.SpanKind != trace.SpanKindProducer {
		t.Errorf("the kinds are %v and %v", dispatch.SpanKind, send.SpanKind)
	}
	want := map[attribute.Key]string{
		"messaging.system": "test", "messaging.operation.name": "send", "messaging.operation.type": "send", "messaging.destination.name": "orders",
		"messaging.message.id": "e1", "messaging.message.conversation_id": "c", "waybill.event.type": "order.placed",
	}
	if got := attributesOf(send); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the attributes are\n%v, want\n%v", got, want)
	}
}

func TestTracingOfWhatIsNotPublished(t *testing.T) {
	t.Parallel()
	tracing, _, spans := newTracing(t)
	out, kept := traced(nil, time.Now().Add(time.Hour)), traced(message.Metadata{"traceparent": "nonsense", "tracestate": "a=1"}, time.Time{})
	kept.Topic = "mail"
	refused := fmt.Errorf("publish to mail: %w", errors.Join(errBusy, &time.ParseError{Value: "x"}))
	tracing.Dispatch(t.Context(), []eventing.TracedMessage{out, kept})(map[*message.Message]error{kept.Message: refused})
	for _, name := range []string{"dispatch orders", "send orders"} {
		if s := spans.one(t, name); s.Status.Code != codes.Unset || s.StartTime.After(s.EndTime) {
			t.Errorf("%s has the status %v, from %v to %v", name, s.Status, s.StartTime, s.EndTime)
		}
	}
	for _, name := range []string{"dispatch mail", "send mail"} {
		s := spans.one(t, name)
		if s.Status.Code != codes.Error || attributesOf(s)["error.type"] != "*time.ParseError" || len(s.Events) != 1 {
			t.Errorf("%s has the status %v, error.type %s and the events %v", name, s.Status, attributesOf(s)["error.type"], s.Events)
		}
	}
	if spans.one(t, "dispatch orders").SpanContext.TraceID() == spans.one(t, "dispatch mail").SpanContext.TraceID() {
		t.Error("messages without a trace context share a trace")
	}
	if _, ok := kept.Message.Metadata["tracestate"]; ok || spans.one(t, "dispatch mail").Parent.IsValid() {
		t.Errorf("a trace context that is none was carried on: %v", kept.Message.Metadata)
	}
}

func TestTracingOfAttempts(t *testing.T) {
	t.Parallel()
	const first, second = "00-" + traceID + "-0000000000000001-01", "00-" + traceID + "-0000000000000002-01"
	e := eventing.Envelope{Header: eventing.Header{ID: "e1", Type: "order.placed", CorrelationID: "c", TraceParent: caller}, Payload: []byte(`"secret"`)}
	for name, c := range map[string]struct {
		attempt       eventing.TracedAttempt
		err           error
		parent, error string
		noAttempt     string
		links         int
	}{
		"first":                {attempt: eventing.TracedAttempt{TraceParent: first}, parent: first},
		"not a trace context":  {attempt: eventing.TracedAttempt{TraceParent: "00-x"}, parent: caller},
		"third":                {attempt: eventing.TracedAttempt{TraceParent: caller, Failed: []string{first, "nonsense", second}}, parent: caller, links: 2},
		"failed":               {err: errBusy, parent: caller, error: "HANDLER_ERROR"},
		"refused":              {err: eventing.PermanentWithReason("UNKNOWN_STATUS", errBusy), parent: caller, error: "UNKNOWN_STATUS"},
		"interrupted":          {err: fmt.Errorf("%w: %w", eventing.ErrNoAttempt, errBusy), parent: caller, noAttempt: "true"},
		"with a large message": {err: errors.New(strings.Repeat("ü", 5000)), parent: caller, error: "HANDLER_ERROR"},
	} {
		tracing, _, spans := newTracing(t)
		c.attempt.Consumer, c.attempt.Attempt, c.attempt.Envelope = "billing", 7, e
		ctx, end := tracing.Attempt(t.Context(), c.attempt)
		end(c.err)
		span := spans.one(t, "process billing")
		attributes := attributesOf(span)
		if traceParentOf(span.Parent) != c.parent || len(span.Links) != c.links || span.SpanKind != trace.SpanKindConsumer {
			t.Errorf("%s: the parent is %v, the links %v, the kind %v", name, span.Parent, span.Links, span.SpanKind)
		}
		if (span.Status.Code == codes.Error) != (c.error != "") || attributes["error.type"] != c.error || attributes["waybill.no_attempt"] != c.noAttempt || len(span.Status.Description) > 1024 {
			t.Errorf("%s: the status is %v of type %q", name, span.Status, attributes["error.type"])
		}
		if c.err != nil && (len(span.Events) != 1 || len(span.Events[0].Attributes[1].Value.AsString()) > 1024) {
			t.Errorf("%s: the events are %v", name, span.Events)
		}
		if attributes["waybill.attempt"] != "7" || attributes["messaging.consumer.group.name"] != "billing" || attributes["messaging.message.id"] != "e1" {
			t.Errorf("%s: the attributes are %v", name, attributes)
		}
		if parent, _ := eventing.TraceContext(ctx); parent != traceParentOf(span.SpanContext) || !trace.SpanContextFromContext(ctx).Equal(span.SpanContext) {
			t.Errorf("%s: the handler has the trace context %s, the span is %v", name, parent, span.SpanContext)
		}
		if strings.Contains(fmt.Sprint(attributes, span.Events), "secret") {
			t.Errorf("%s: the span has the payload", name)
		}
	}
}

// A batch that is split because of one of its events leaves no failure in the traces of the others.
func TestTracingOfBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tracing, _, spans := newTracing(t)
		c, err := eventing.NewBatchConsumer(memstore.New(), func(_ context.Context, events []eventing.Envelope) error {
			if slices.ContainsFunc(events, func(e eventing.Envelope) bool { return e.ID == "e3" }) {
				return errRejected
			}
			return nil
		}, eventing.ConsumerConfig{Name: "mail", Batch: eventing.BatchPolicy{Size: 4}, Tracer: tracing, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var received sync.WaitGroup
		for _, id := range []string{"e1", "e2", "e3", "e4"} {
			received.Go(func() {
				if err := c.Receive(t.Context(), envelope(t, id)); err != nil {
					t.Error(err)
				}
			})
		}
		received.Wait()
		ends := map[string]int{}
		for _, s := range spans.GetSpans() {
			a := attributesOf(s)
			ends[s.Status.Code.String()+" "+a["error.type"]+" "+a["waybill.no_attempt"]]++
			if s.Status.Code == codes.Error && a["messaging.message.id"] != "e3" {
				t.Errorf("%s has failed by its trace", a["messaging.message.id"])
			}
		}
		if ends["Error REJECTED "] != 1 || ends["Unset  "] != 3 || ends["Unset  true"] < 4 || len(ends) != 3 {
			t.Errorf("the spans ended as %v", ends)
		}
	})
}

func TestTracingOfPlainHandlers(t *testing.T) {
	t.Parallel()
	tracing, _, spans := newTracing(t)
	var inside trace.SpanContext
	produced, err := call(tracing.Middleware, message.Metadata{"traceparent": caller, "event_type": "order.placed"}, func(m *message.Message) ([]*message.Message, error) {
		inside = trace.SpanContextFromContext(m.Context())
		out, err := produce("p1", "p2")(m)
		out[1].Metadata.Set("traceparent", "its own")
		return append(out, m), err
	})
	if err != nil {
		t.Fatal(err)
	}
	span := spans.one(t, "process")
	if traceParentOf(span.Parent) != caller || !span.SpanContext.Equal(inside) || attributesOf(span)["messaging.message.id"] != "m1" {
		t.Errorf("the span %v is a child of %v; inside there is %v; its attributes are %v", span.SpanContext, span.Parent, inside, attributesOf(span))
	}
	own := traceParentOf(span.SpanContext)
	for i, want := range []string{own, "its own", own} {
		if got := produced[i].Metadata.Get("traceparent"); got != want {
			t.Errorf("produced message %d carries %q, want %q", i, got, want)
		}
	}
}

func TestTracingOfPanics(t *testing.T) {
	t.Parallel()
	tracing, _, spans := newTracing(t)
	m := message.NewMessage("m1", nil)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic has ended in the middleware")
			}
		}()
		_, _ = tracing.Middleware(func(*message.Message) ([]*message.Message, error) { panic("boom") })(m)
	}()
	if s := spans.one(t, "process"); s.Status.Code != codes.Error || attributesOf(s)["error.type"] != "HANDLER_PANIC" {
		t.Errorf("the status is %v of type %q", s.Status, attributesOf(s)["error.type"])
	}
	if trace.SpanContextFromContext(m.Context()).IsValid() {
		t.Error("the message has kept the span that has ended")
	}
}

// A provider that makes no spans passes on what it was given, whatever it is.
// several has no errors in it.
type several struct{}

func (several) Error() string   { return "several" }
func (several) Unwrap() []error { return nil }

func TestTracingOfAnErrorOfNone(t *testing.T) {
	t.Parallel()
	tracing, _, spans := newTracing(t)
	_, end := tracing.Attempt(t.Context(), eventing.TracedAttempt{Consumer: "billing"})
	end(fmt.Errorf("wrapped: %w", several{}))
	got := spans.GetSpans()
	if len(got) != 1 || len(got[0].Events) != 1 || !slices.Contains(got[0].Events[0].Attributes, attribute.String("exception.type", "middleware_test.several")) {
		t.Errorf("the spans are %+v", got)
	}
}

func TestTracingWithoutSpans(t *testing.T) {
	t.Parallel()
	tracing := middleware.NewTracing(nil, "")
	for _, parent := range []string{caller, "nonsense"} {
		ctx, end := tracing.Append(eventing.WithTraceContext(t.Context(), parent, "a=1"), 1)
		end(errBusy)
		if got, state := eventing.TraceContext(ctx); got != parent || state != "a=1" {
			t.Errorf("events get %q and %q for %q", got, state, parent)
		}
		m := traced(message.Metadata{"traceparent": parent, "tracestate": "a=1"}, time.Now())
		tracing.Dispatch(t.Context(), []eventing.TracedMessage{m})(map[*message.Message]error{m.Message: errBusy})
		if got := m.Message.Metadata; got["traceparent"] != parent || got["tracestate"] != "a=1" {
			t.Errorf("the message carries %v for %q", got, parent)
		}
	}
}

// An envelope has room for so much; a trace state is not worth an event.
func TestTraceStateIsBounded(t *testing.T) {
	t.Parallel()
	tracing, _, _ := newTracing(t)
	for _, n := range []int{4, 30} {
		members := make([]string, n)
		for i := range members {
			members[i] = fmt.Sprintf("vendor%d=%s", i, strings.Repeat("x", 100))
		}
		state := strings.Join(members, ",")
		m := traced(message.Metadata{"traceparent": caller, "tracestate": state}, time.Now())
		tracing.Dispatch(t.Context(), []eventing.TracedMessage{m})(nil)
		want := ""
		if len(state) <= 1024 {
			want = state
		}
		if got := m.Message.Metadata.Get("tracestate"); got != want {
			t.Errorf("of a state of %d bytes, %d are carried on", len(state), len(got))
		}
	}
}

// What tracing costs a dispatcher, for each 1,000 messages, beside making them.
func BenchmarkTracingDispatch(b *testing.B) {
	provider := func(s sdktrace.Sampler) *middleware.Tracing {
		tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(s))
		b.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
		return middleware.NewTracing(tp, "")
	}
	const unsampled = "00-" + traceID + "-b7ad6b7169203331-00"
	for _, c := range []struct {
		name   string
		tracer eventing.Tracer
		parent string
	}{
		{"without a tracer", nil, ""},
		{"without a provider", middleware.NewTracing(nil, ""), unsampled},
		{"never sampled, no parent", provider(sdktrace.NeverSample()), ""},
		{"parent not sampled", provider(sdktrace.ParentBased(sdktrace.AlwaysSample())), unsampled},
		{"sampled, not exported", provider(sdktrace.AlwaysSample()), caller},
	} {
		b.Run(c.name, func(b *testing.B) {
			messages := make([]eventing.TracedMessage, 1000)
			b.ReportAllocs()
			for b.Loop() {
				for i := range messages {
					messages[i] = traced(message.Metadata{"event_id": "e1", "event_type": "order.placed", "correlation_id": "c", "traceparent": c.parent}, time.Now())
				}
				if c.tracer != nil {
					c.tracer.Dispatch(context.Background(), messages)(nil)
				}
			}
		})
	}
}
