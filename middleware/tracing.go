package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/waybill-go/waybill/eventing"
)

// Tracing makes OpenTelemetry spans of an event's life, by the semantic conventions for
// messaging: one trace from the append to the handlers, across the outbox and the broker. Set it
// as the Tracer of [eventing.OutboxConfig], [eventing.DispatcherConfig] and
// [eventing.ConsumerConfig], or of [StorelessConfig]; a plain Watermill router has its Middleware instead.
//
//	append                  internal: a child of the span in Append's context
//	└ dispatch {topic}      internal: from the append until the broker has the message
//	  └ send {topic}        producer: its trace context goes with the message
//	    └ process {consumer}  consumer: a first attempt; the handler's context has this span
//
// A later attempt, from the store, is a child of append with a link to each attempt that has
// failed. A run that counts for nothing, such as that of a batch that is split, is no error: it has the
// attribute waybill.no_attempt. Without a valid trace context, a span begins a trace of its own. Spans never have payloads; their text
// is at most 1,024 bytes each.
type Tracing struct {
	tracer trace.Tracer
	system attribute.KeyValue
}

var _ eventing.Tracer = (*Tracing)(nil)

// NewTracing returns the tracing by a provider; without one, nil, there are no spans. system is
// the spans' messaging.system, which says what the broker is, such as "redis". Default: "waybill".
func NewTracing(tp trace.TracerProvider, system string) *Tracing {
	if tp == nil {
		tp = noop.NewTracerProvider()
	}
	return &Tracing{
		tracer: tp.Tracer("github.com/waybill-go/waybill", trace.WithSchemaURL(semconv.SchemaURL)),
		system: semconv.MessagingSystemKey.String(text(cmp.Or(system, "waybill"))),
	}
}

// Append implements [eventing.Tracer]. Where the context has both a span and, by
// [eventing.WithTraceContext], the context of another trace, the latter was meant for the
// events: it is the parent, and the span is linked.
func (t *Tracing) Append(ctx context.Context, events int) (context.Context, eventing.EndSpan) {
	options := []trace.SpanStartOption{trace.WithAttributes(
		t.system, semconv.MessagingOperationName("append"), semconv.MessagingOperationTypeCreate, semconv.MessagingBatchMessageCount(events),
	)}
	active, carried := trace.SpanContextFromContext(ctx), extract(eventing.TraceContext(ctx))
	if carried.IsValid() && carried.TraceID() != active.TraceID() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, carried)
		if active.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: active}))
		}
	}
	ctx, span := t.tracer.Start(ctx, "append", options...)
	return carrying(ctx, span), ending(span, errorType)
}

// Dispatch implements [eventing.Tracer].
func (t *Tracing) Dispatch(ctx context.Context, messages []eventing.TracedMessage) eventing.EndDispatch {
	now := time.Now()
	topics := map[string]*sendOptions{}
	spans := make([][2]trace.Span, len(messages))
	for i, m := range messages {
		options := topics[m.Topic]
		if options == nil {
			options = t.sendOptions(m.Topic)
			topics[m.Topic] = options
		}
		since := m.AppendedAt
		if since.IsZero() || since.After(now) { // another machine's clock
			since = now
		}
		parent := trace.ContextWithRemoteSpanContext(ctx, extract(m.Message.Metadata.Get("traceparent"), m.Message.Metadata.Get("tracestate")))
		within, dispatch := t.tracer.Start(parent, options.dispatchName, trace.WithTimestamp(since), options.dispatch)
		_, send := t.tracer.Start(within, options.sendName, trace.WithTimestamp(now), options.kind, options.send)
		spans[i] = [2]trace.Span{send, dispatch}
		for _, span := range spans[i] {
			if span.IsRecording() {
				span.SetAttributes(ofMessage(m.Message)...)
			}
		}
		inject(headersOf(send.SpanContext()), m.Message)
	}
	return func(unpublished map[*message.Message]error) {
		for i, m := range messages {
			err := unpublished[m.Message]
			for _, span := range spans[i] {
				if err != nil {
					fail(span, err, errorType(err))
				}
				span.End()
			}
		}
	}
}

// sendOptions are the same for all messages of a topic.
type sendOptions struct {
	dispatchName, sendName string
	dispatch, send, kind   trace.SpanStartOption
}

func (t *Tracing) sendOptions(topic string) *sendOptions {
	topic = text(topic)
	destination := semconv.MessagingDestinationName(topic)
	return &sendOptions{
		dispatchName: "dispatch " + topic, sendName: "send " + topic,
		dispatch: trace.WithAttributes(t.system, destination, semconv.MessagingOperationName("dispatch")),
		send:     trace.WithAttributes(t.system, destination, semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend),
		kind:     trace.WithSpanKind(trace.SpanKindProducer),
	}
}

// Attempt implements [eventing.Tracer].
func (t *Tracing) Attempt(ctx context.Context, a eventing.TracedAttempt) (context.Context, eventing.EndSpan) {
	parent := extract(a.TraceParent, a.TraceState)
	if !parent.IsValid() {
		parent = extract(a.Envelope.TraceParent, a.Envelope.TraceState)
	}
	var links []trace.Link
	for _, failed := range a.Failed {
		if sc := extract(failed, ""); sc.IsValid() {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	e := a.Envelope
	attributes := append(t.ofProcess(ctx), semconv.MessagingConsumerGroupName(text(a.Consumer)), attemptKey.Int(a.Attempt),
		semconv.MessagingMessageID(text(e.ID)), semconv.MessagingMessageConversationID(text(e.CorrelationID)), eventTypeKey.String(text(e.Type)))
	ctx, span := t.tracer.Start(ctx, "process "+text(a.Consumer), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(links...), trace.WithAttributes(attributes...))
	end := ending(span, outcome)
	return carrying(ctx, span), func(err error) {
		if !errors.Is(err, eventing.ErrNoAttempt) {
			end(err)
			return
		}
		if span.IsRecording() { // the same will be tried again, and may well succeed: no error of the event's
			span.SetAttributes(noAttemptKey.Bool(true))
			exception(span, err)
		}
		span.End()
	}
}

// Middleware is for a plain Watermill router: a span of each run of what is inside of it,
// "process {topic}", as a child of the message's trace context. Directly inside [Retry], each attempt has its
// span, with its error. Outside of Retry there is one for the message, with the waits; outside of
// [DeadLetter] too, it never fails for an event that has died. Messages that the handler
// produces carry it on, unless they have another. Beside a Tracer of [Consume] or
// [ConsumeStoreless], which has the attempts, it makes a second span of the same.
func (t *Tracing) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) (produced []*message.Message, err error) {
		ctx, received := m.Context(), m.Metadata.Get("traceparent")
		if parent := extract(received, m.Metadata.Get("tracestate")); parent.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
		}
		attributes := append(t.ofProcess(ctx), ofMessage(m)...)
		ctx, span := t.tracer.Start(ctx, strings.TrimSpace("process "+text(message.SubscribeTopicFromCtx(ctx))),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...))
		err = errPanicked // unless h returns
		defer func() { ending(span, outcome)(err) }()
		defer m.SetContext(m.Context())
		m.SetContext(carrying(ctx, span))
		produced, err = h(m)
		passOn(produced, received, headersOf(span.SpanContext()))
		return produced, err
	}
}

// passOn has what a handler produced belong to its span, unless it has a trace context other than that
// of the message that the handler received.
func passOn(produced []*message.Message, received string, w *headers) {
	for _, p := range produced {
		if own := p.Metadata.Get("traceparent"); own == "" || own == received {
			inject(w, p)
		}
	}
}

var errPanicked = errors.New("the handler panicked")

// What the conventions have no names for.
const (
	attemptKey   = attribute.Key("waybill.attempt")    // from 1; goes on after a replay
	noAttemptKey = attribute.Key("waybill.no_attempt") // it counts for nothing: see [eventing.ErrNoAttempt]
	eventTypeKey = attribute.Key("waybill.event.type") // of the envelope
)

func (t *Tracing) ofProcess(ctx context.Context) []attribute.KeyValue {
	attributes := make([]attribute.KeyValue, 0, 9)
	attributes = append(attributes, t.system, semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess)
	if topic := message.SubscribeTopicFromCtx(ctx); topic != "" { // what comes from the store has none
		attributes = append(attributes, semconv.MessagingDestinationName(text(topic)))
	}
	return attributes
}

func ofMessage(m *message.Message) []attribute.KeyValue {
	attributes := append(make([]attribute.KeyValue, 0, 3), semconv.MessagingMessageID(text(eventID(m))))
	if v := m.Metadata.Get("correlation_id"); v != "" {
		attributes = append(attributes, semconv.MessagingMessageConversationID(text(v)))
	}
	if v := m.Metadata.Get("event_type"); v != "" {
		attributes = append(attributes, eventTypeKey.String(text(v)))
	}
	return attributes
}

const maxText = 1024

// text is s as a span may have it: bounded, and valid UTF-8.
func text(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "?")
}

// ending ends a span; kind says what the error.type of an error is.
func ending(span trace.Span, kind func(error) string) eventing.EndSpan {
	return func(err error) {
		if err != nil {
			fail(span, err, kind(err))
		}
		span.End()
	}
}

// outcome is the error.type of a handler's run.
func outcome(err error) string {
	if errors.Is(err, errPanicked) {
		return string(eventing.ReasonPanic)
	}
	return string(eventing.ReasonOf(err))
}

func fail(span trace.Span, err error, kind string) {
	if !span.IsRecording() {
		return
	}
	span.SetStatus(codes.Error, text(err.Error()))
	span.SetAttributes(semconv.ErrorTypeKey.String(text(kind)))
	exception(span, err)
}

func exception(span trace.Span, err error) {
	span.AddEvent("exception", trace.WithAttributes(semconv.ExceptionType(errorType(err)), semconv.ExceptionMessage(text(err.Error()))))
}

// errorType is the type of the innermost error, the last one where there are several: wrappers say nothing.
func errorType(err error) string {
	for inner := err; inner != nil; {
		err = inner
		switch wrapper := any(err).(type) {
		case interface{ Unwrap() error }:
			inner = wrapper.Unwrap()
		case interface{ Unwrap() []error }:
			inner = nil
			if all := wrapper.Unwrap(); len(all) > 0 {
				inner = all[len(all)-1]
			}
		default:
			inner = nil
		}
	}
	return text(fmt.Sprintf("%T", err))
}

// carrying returns a context whose appends and records belong to the span.
func carrying(ctx context.Context, span trace.Span) context.Context {
	if w := headersOf(span.SpanContext()); w.parent != "" {
		return eventing.WithTraceContext(ctx, w.parent, w.state)
	}
	return ctx
}

// inject puts a trace context into a message. One that is none leaves what is there.
func inject(w *headers, m *message.Message) {
	if w.parent == "" {
		return
	}
	if m.Metadata == nil {
		m.Metadata = message.Metadata{}
	}
	m.Metadata["traceparent"] = w.parent
	delete(m.Metadata, "tracestate")
	if w.state != "" {
		m.Metadata["tracestate"] = w.state
	}
}

// maxTraceState is what an envelope has room for. A longer state is left out, which W3C
// allows: the trace goes on without it.
const maxTraceState = 1024

func extract(parent, state string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	w := &headers{parent, state}
	if len(state) > maxTraceState {
		w.state = ""
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), w))
}

func headersOf(sc trace.SpanContext) *headers {
	w := new(headers)
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), w)
	if len(w.state) > maxTraceState {
		w.state = ""
	}
	return w
}

// headers are those of W3C Trace Context, as a [propagation.TextMapCarrier].
type headers struct{ parent, state string }

// Get returns a header's value.
func (w *headers) Get(key string) string {
	if key == "traceparent" {
		return w.parent
	}
	return w.state
}

// Set sets a header's value.
func (w *headers) Set(key, value string) {
	if key == "traceparent" {
		w.parent = value
	} else {
		w.state = value
	}
}

// Keys returns the headers' names.
func (*headers) Keys() []string { return []string{"traceparent", "tracestate"} }
