// Package worker handles couriers' events: it applies them to the shipments, keeps the
// ledger, and tells others which states have changed.
package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// Consumer is the name under which the worker processes events, and Queue the
// topic that it reads.
const (
	Consumer = "shipment-projection"
	Queue    = "courier-events-main"
)

// Projection applies events to their shipments, in transactions of type Tx.
type Projection[Tx any] interface {
	// Process applies events in the order given, as one after the other, records what each
	// did, and has the ledger say that it is processed at now, to be kept until then. An event that the
	// ledger has as processed is left alone. No two of them are the same event.
	// On an error nothing must be committed.
	Process(ctx context.Context, tx Tx, arrivals []courier.Arrival, now, until time.Time) ([]courier.Effect, error)
}

// Ledger keeps what became of each event.
type Ledger[Tx any] interface {
	// Until returns the end of the retention of what is processed now.
	Until(now time.Time) time.Time
	// Enter enters events that the intake has published without it, all of which are [courier.Event.Direct], unless their idempotency
	// keys are known: those it leaves as they are. It returns which event each key stands for.
	Enter(ctx context.Context, tx Tx, arrivals []courier.Arrival) ([]courier.Standing, error)
	// Conclude records how a run ended that was no success of the handler's. It reports false, and changes nothing, if
	// the event is in a state from which that is no step. An event without a row gets none, unless it is
	// [courier.Event.Direct] and its idempotency key is not known.
	Conclude(ctx context.Context, tx Tx, c eventing.Conclusion, now time.Time) (allowed bool, err error)
}

// Outbox takes what is to be sent.
type Outbox[Tx any] interface {
	AppendRows(ctx context.Context, tx Tx, rows []eventing.OutboxRow) error
}

// Worker holds what the handler needs.
type Worker[Tx any] struct {
	Shipments Projection[Tx]
	Ledger    Ledger[Tx]
	// Outbox gets an event for each change of a shipment's state: see [StateQueue]. Default:
	// nobody is told.
	Outbox Outbox[Tx]
	// Batch is how many events share a transaction at most, up to 1,000. 1: none do.
	Batch int
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	Now    func() time.Time
}

// Register adds the worker to a router whose store has transactions of type Tx.
func (w *Worker[Tx]) Register(r *router.Router, policy eventing.Policy) error {
	if w.Logger == nil {
		w.Logger = slog.Default()
	}
	c := router.Consumer{Name: Consumer, Topic: Queue, Policy: policy, Codec: eventing.PayloadCodec{}, OnConclude: w.conclude}
	if w.Batch > 1 {
		c.Batch = eventing.BatchPolicy{Size: w.Batch, Linger: linger}
	}
	if err := r.AddConsumer(c); err != nil {
		return err
	}
	if w.Batch > 1 {
		return router.HandleBatchTx(r, Consumer, w.handle, router.On("*"))
	}
	return router.HandleTx(r, Consumer, func(ctx context.Context, tx Tx, e eventing.Event[courier.Event]) error {
		return w.handle(ctx, tx, []eventing.Event[courier.Event]{e})
	}, router.On("*"))
}

// linger is how long the first event waits for others, lest it goes alone while hundreds come.
const linger = time.Millisecond

// handle processes events in their transaction: what they do to shipments, the ledger's
// rows, and what others are told.
func (w *Worker[Tx]) handle(ctx context.Context, tx Tx, events []eventing.Event[courier.Event]) error {
	arrivals, err := arrivalsOf(ctx, events)
	if err != nil {
		return err
	}
	if events, arrivals, err = w.enter(ctx, tx, events, arrivals); err != nil || len(arrivals) == 0 {
		return err
	}
	now := w.Now()
	effects, err := w.Shipments.Process(ctx, tx, arrivals, now, w.Ledger.Until(now))
	if err != nil {
		return reasoned(fmt.Errorf("apply %s: %w", named(arrivals), err))
	}
	for i := range effects {
		if effects[i].Outcome == courier.OutcomeNone {
			w.Logger.Warn("worker: the ledger has the event as processed already; it is not applied again", "event_id", arrivals[i].EnvelopeID)
		}
	}
	if err := w.tell(ctx, tx, events, arrivals, effects, now); err != nil {
		return reasoned(fmt.Errorf("tell of %s: %w", named(arrivals), err))
	}
	return nil
}

// named is for messages.
func named(arrivals []courier.Arrival) string {
	if len(arrivals) == 1 {
		return "event " + arrivals[0].Event.EventID
	}
	return fmt.Sprintf("%d events", len(arrivals))
}

// arrivalsOf checks what no retry can mend.
func arrivalsOf(ctx context.Context, events []eventing.Event[courier.Event]) ([]courier.Arrival, error) {
	attempt, ok := eventing.AttemptFromContext(ctx)
	if !ok { // in a batch are those that come for the first time
		attempt.Number = 1
	}
	arrivals := make([]courier.Arrival, len(events))
	for i, e := range events {
		p, err := courier.DecodePayload(e.Payload.Payload)
		if err != nil {
			return nil, eventing.PermanentWithReason(ReasonInvalidPayload, err)
		}
		if err := courier.CheckStatus(p.Status); err != nil {
			return nil, eventing.PermanentWithReason(ReasonInvalidStatus, err)
		}
		arrivals[i] = courier.Arrival{EnvelopeID: e.ID, Attempt: attempt.Number, Event: e.Payload, Payload: p}
	}
	return arrivals, nil
}

// conclude has the ledger say how a run ended. A success has said so itself.
func (w *Worker[Tx]) conclude(ctx context.Context, tx any, c eventing.Conclusion) error {
	if c.Err == nil {
		return nil
	}
	allowed, err := w.Ledger.Conclude(ctx, tx.(Tx), c, w.Now())
	if err == nil && !allowed {
		w.Logger.Warn("worker: the ledger has the event as processed, and keeps it so although a later run failed",
			"event_id", c.Envelope.ID, "attempt", c.Attempts, "reason", c.Reason, "error", c.Err)
	}
	return err
}
