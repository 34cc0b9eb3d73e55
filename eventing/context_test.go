package eventing

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

func TestContext(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if parent, state := TraceContext(ctx); CorrelationID(ctx)+CausationID(ctx)+parent+state != "" {
		t.Error("an empty context has nothing")
	}
	ctx = WithTraceContext(WithCausationID(WithCorrelationID(ctx, "corr"), "cause"), "parent", "state")
	if parent, state := TraceContext(ctx); CorrelationID(ctx) != "corr" || CausationID(ctx) != "cause" || parent != "parent" || state != "state" {
		t.Error("a context has what was put into it")
	}
	if _, ok := TxFromContext[int](ctx); ok {
		t.Error("outside of a transactional consumer there is no transaction")
	}
	ctx = contextWithTx(ctx, 42, nil)
	if tx, ok := TxFromContext[int](ctx); !ok || tx != 42 {
		t.Error("in a transactional consumer there is")
	}
	if _, ok := TxFromContext[string](ctx); ok {
		t.Error("a transaction of another type is none")
	}
	if _, ok := EnvelopeFromContext(ctx); ok {
		t.Error("outside of a consumer there is no event")
	}
	e := fullEnvelope()
	ctx = handlerContext(tracedAs(ctx, nil, e), e)
	if parent, _ := TraceContext(ctx); CorrelationID(ctx) != e.CorrelationID || CausationID(ctx) != e.ID || parent != e.TraceParent {
		t.Error("what a handler appends is caused by its event")
	}
	if got, ok := EnvelopeFromContext(ctx); !ok || got.ID != e.ID {
		t.Error("a handler's context has its event")
	}
	if parent, _ := TraceContext(tracedAs(ctx, message.Metadata{"traceparent": "published"}, e)); parent != "published" {
		t.Error("the message's comes before the envelope's")
	}
	e.TraceParent = ""
	if parent, _ := TraceContext(tracedAs(WithTraceContext(context.Background(), "of the worker", ""), nil, e)); parent != "of the worker" {
		t.Error("an event without a trace context leaves that of the worker")
	}
}
