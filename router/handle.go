package router

import (
	"context"
	"fmt"
	"reflect"

	"github.com/waybill-go/waybill/eventing"
)

// HandleOption adjusts the registration of a handler.
type HandleOption func(*registration)

type registration struct {
	types []string
	batch *batchHandler // nil if the handler gets one event at a time
}

// On names the event types that the handler is for, instead of the one of its
// payload type; "*" is all that the consumer has no other handler for.
func On(eventTypes ...string) HandleOption {
	return func(r *registration) { r.types = eventTypes }
}

// HandleTx registers a consumer's handler for events with payload T. It runs in
// the transaction that records the event as processed: what it writes with tx, it
// writes exactly once. Tx is the transaction type of the router's store.
//
// The event type is that of T, see [eventing.TypeOf]. A payload that does not
// decode into T makes the event a dead letter.
func HandleTx[Tx, T any](r *Router, consumer string, fn func(ctx context.Context, tx Tx, e eventing.Event[T]) error, opts ...HandleOption) error {
	if err := hasTx[Tx](r, consumer); err != nil {
		return err
	}
	return register[T](r, consumer, true, opts, func(ctx context.Context, e eventing.Event[T]) error {
		tx, ok := eventing.TxFromContext[Tx](ctx)
		if !ok {
			return fmt.Errorf("the delivery of %s runs in no transaction of type %T", e.ID, tx)
		}
		return fn(ctx, tx, e)
	})
}

// hasTx checks that the router's store has transactions of a handler's type.
func hasTx[Tx any](r *Router, consumer string) error {
	if r.storeless() {
		return fmt.Errorf("router: handler of %s: HandleTx needs the transaction of a store, and the router has a poison topic instead: use Handle, or give the router a store", consumer)
	}
	if _, ok := r.cfg.Store.(eventing.OutboxStore[Tx]); !ok {
		return fmt.Errorf("router: handler of %s: the store %T has no transactions of type %v", consumer, r.cfg.Store, reflect.TypeFor[Tx]())
	}
	return nil
}

// Handle registers a consumer's handler for events with payload T, as [HandleTx]
// does, but outside of any transaction: it runs at least once for each event, so
// what it does must be safe to do again.
func Handle[T any](r *Router, consumer string, fn func(ctx context.Context, e eventing.Event[T]) error, opts ...HandleOption) error {
	return register(r, consumer, false, opts, fn)
}

func register[T any](r *Router, name string, transactional bool, opts []HandleOption, fn func(context.Context, eventing.Event[T]) error) error {
	reg := registration{types: []string{eventing.TypeOf[T]()}}
	for _, o := range opts {
		o(&reg)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.consumer(name)
	if err != nil {
		return err
	}
	if (len(c.handlers) > 0 || c.any != nil) && c.transactional != transactional {
		return fmt.Errorf("router: consumer %s: its handlers must all be transactional, or none", name)
	}
	if (len(c.handlers) > 0 || c.any != nil) && (c.batches != nil) != (reg.batch != nil) {
		return fmt.Errorf("router: consumer %s: its handlers must all be for batches, or none", name)
	}
	h := func(ctx context.Context, e eventing.Envelope) error {
		typed, err := eventing.DecodePayload[T](e)
		if err != nil {
			return err
		}
		return fn(ctx, typed)
	}
	for _, t := range reg.types {
		if err := c.add(t, h); err != nil {
			return err
		}
		c.addBatch(t, reg.batch)
	}
	c.transactional = transactional
	return nil
}

func (c *consumer) add(eventType string, h eventing.HandlerFunc) error {
	switch {
	case eventType == "":
		return fmt.Errorf("router: consumer %s: the payload's type has no name; give the event types with router.On", c.Name)
	case eventType == "*" && c.any == nil:
		c.any = h
	case eventType != "*" && c.handlers[eventType] == nil:
		c.handlers[eventType] = h
	default:
		return fmt.Errorf("router: consumer %s has a handler for %s already", c.Name, eventType)
	}
	return nil
}
