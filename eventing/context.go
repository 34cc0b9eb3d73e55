package eventing

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

type contextKey int

const (
	correlationKey contextKey = iota
	causationKey
	traceKey
	faultKey
	txKey
	envelopeKey
	spansKey // of a batch: the trace contexts of its events
	attemptKey
	preparedKey
)

// WithCorrelationID returns a context in which appended events carry the given
// correlation ID. Handlers run in a context that has their event's.
func WithCorrelationID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, correlationKey, id)
}

// CorrelationID returns the context's correlation ID, or "".
func CorrelationID(ctx context.Context) string {
	id, _ := ctx.Value(correlationKey).(string)
	return id
}

// WithCausationID returns a context in which appended events name the given
// event as their cause. Handlers run in a context that names their event.
func WithCausationID(ctx context.Context, eventID string) context.Context {
	return context.WithValue(ctx, causationKey, eventID)
}

// CausationID returns the ID of the event that the context's work was caused
// by, or "".
func CausationID(ctx context.Context) string {
	id, _ := ctx.Value(causationKey).(string)
	return id
}

type traceContext struct{ parent, state string }

// WithTraceContext returns a context in which appended events carry the given
// W3C trace context (https://www.w3.org/TR/trace-context/).
func WithTraceContext(ctx context.Context, traceParent, traceState string) context.Context {
	return context.WithValue(ctx, traceKey, traceContext{traceParent, traceState})
}

// TraceContext returns the context's traceparent and tracestate, or "".
func TraceContext(ctx context.Context) (traceParent, traceState string) {
	t, _ := ctx.Value(traceKey).(traceContext)
	return t.parent, t.state
}

// handlerContext is the context in which a handler runs: what it appends is
// caused by its event.
func handlerContext(ctx context.Context, e Envelope) context.Context {
	ctx = context.WithValue(ctx, envelopeKey, e)
	ctx = WithCorrelationID(ctx, e.CorrelationID)
	return WithCausationID(ctx, e.ID)
}

// tracedAs returns a context with the trace context that a message has, or else its event,
// or else the worker.
func tracedAs(ctx context.Context, m message.Metadata, e Envelope) context.Context {
	parent, state := m.Get("traceparent"), m.Get("tracestate")
	if parent == "" {
		parent, state = e.TraceParent, e.TraceState
	}
	if parent == "" {
		return ctx
	}
	return WithTraceContext(ctx, parent, state)
}

// EnvelopeFromContext returns the event that the running handler was called
// with. ok is false outside of a [Consumer].
func EnvelopeFromContext(ctx context.Context) (e Envelope, ok bool) {
	e, ok = ctx.Value(envelopeKey).(Envelope)
	return e, ok
}

// contextWithTx returns a context that carries the transaction of a running
// delivery.
func contextWithTx(ctx context.Context, tx any, store ConsumerStore) context.Context {
	return context.WithValue(ctx, txKey, openTx{tx, store})
}

type openTx struct {
	tx    any
	store ConsumerStore
}

// inTxOf reports whether the context carries an open transaction of a store.
func inTxOf(ctx context.Context, store any) bool {
	open, ok := ctx.Value(txKey).(openTx)
	return ok && open.store == store
}

// TxFromContext returns the transaction in which the running delivery will be
// concluded. ok is false outside of a transactional consumer, or where its
// store has transactions of another type.
func TxFromContext[Tx any](ctx context.Context) (tx Tx, ok bool) {
	open, _ := ctx.Value(txKey).(openTx)
	tx, ok = open.tx.(Tx)
	return tx, ok
}
