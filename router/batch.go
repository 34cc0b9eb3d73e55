package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// batchHandler is what [HandleBatchTx] registers.
type batchHandler struct{ handle eventing.BatchHandlerFunc }

// HandleBatchTx registers a consumer's handler for batches of events with payload T, as
// [HandleTx] does for one at a time. It runs in the transaction that records all events of its
// batch as processed: what it writes with tx, it writes exactly once for each. An event
// that it fails at falls out alone, see [eventing.BatchHandlerFunc]. All handlers of the consumer must be
// for batches, or none. If a batch has events for several of them, these run one after the other in its transaction.
//
// The router's middleware runs for each event around the call for all: if it refuses one, that one falls out.
func HandleBatchTx[Tx, T any](r *Router, consumer string, fn func(ctx context.Context, tx Tx, events []eventing.Event[T]) error, opts ...HandleOption) error {
	if err := hasTx[Tx](r, consumer); err != nil {
		return err
	}
	h := func(ctx context.Context, events []eventing.Envelope) error {
		tx, ok := eventing.TxFromContext[Tx](ctx)
		if !ok {
			return fmt.Errorf("a batch of %s runs in no transaction of type %T", consumer, tx)
		}
		typed := make([]eventing.Event[T], len(events))
		for i, e := range events {
			var err error
			if typed[i], err = eventing.DecodePayload[T](e); err != nil {
				return err
			}
		}
		return fn(ctx, tx, typed)
	}
	batched := func(reg *registration) { reg.batch = &batchHandler{h} }
	return register(r, consumer, true, append(slices.Clone(opts), batched), func(ctx context.Context, e eventing.Event[T]) error {
		tx, _ := eventing.TxFromContext[Tx](ctx)
		return fn(ctx, tx, []eventing.Event[T]{e})
	})
}

// consumeBatches returns the engine of a consumer of batches.
func (r *Router) consumeBatches(c *consumer) (*eventing.Consumer, error) {
	engine, err := eventing.NewBatchConsumer(r.cfg.Store, r.attemptBatch(c), r.consumerConfig(c))
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return engine, nil
}

// handleBatch calls the handlers for the events' types, in the order in which they come up.
func (c *consumer) handleBatch(ctx context.Context, events []eventing.Envelope) error {
	var order []*batchHandler
	groups := map[*batchHandler][]eventing.Envelope{}
	for _, e := range events {
		h := c.batches[e.Type]
		if h == nil {
			h = c.batches["*"]
		}
		if h == nil {
			return c.noHandler(e)
		}
		if groups[h] == nil {
			order = append(order, h)
		}
		groups[h] = append(groups[h], e)
	}
	for _, h := range order {
		if err := h.handle(ctx, groups[h]); err != nil {
			return err
		}
	}
	return nil
}

var errSkipped = errors.New("a middleware kept the handler from being called; the events are handled one by one")

// attemptBatch is the innermost part: the user's middleware for each event, around that for the next one, around
// the handlers.
func (r *Router) attemptBatch(c *consumer) eventing.BatchHandlerFunc {
	if len(r.cfg.Middleware) == 0 {
		return c.handleBatch
	}
	return func(ctx context.Context, events []eventing.Envelope) error {
		handled := errSkipped
		next := func(inner context.Context) error {
			handled = c.handleBatch(within{inner, ctx}, events)
			return handled
		}
		for _, e := range slices.Backward(events) {
			next = r.around(c, e, next)
		}
		err := next(ctx)
		if err == nil && len(events) > 1 {
			return handled // what a middleware makes of one event is not for all
		}
		return err
	}
}

// around puts the middleware around what is next, for one event of a batch.
func (r *Router) around(c *consumer, e eventing.Envelope, next func(context.Context) error) func(context.Context) error {
	h := func(m *message.Message) ([]*message.Message, error) { return nil, next(m.Context()) }
	for _, mw := range slices.Backward(r.cfg.Middleware) {
		h = mw(h)
	}
	codec := c.Codec
	if codec == nil {
		codec = eventing.EnvelopeCodec{}
	}
	return func(ctx context.Context) error {
		m, err := codec.Marshal(e)
		if err != nil {
			return eventing.PermanentWithReason(eventing.ReasonEnvelopeMalformed, err)
		}
		m.SetContext(eventing.WithEnvelope(ctx, e))
		_, err = h(m)
		return err
	}
}

// within ends when its context does, and has the values of another: those of one event's
// middleware are not for all.
type within struct {
	context.Context
	values context.Context
}

func (w within) Value(key any) any { return w.values.Value(key) }

func (c *consumer) addBatch(eventType string, h *batchHandler) {
	if h == nil {
		return
	}
	if c.batches == nil {
		c.batches = map[string]*batchHandler{}
	}
	c.batches[eventType] = h
}
