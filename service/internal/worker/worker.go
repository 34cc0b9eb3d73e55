// Package worker handles couriers' events: it applies them to the shipments and
// keeps the ledger.
package worker

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/shipments"
)

// Consumer is the name under which the worker processes events, and Queue the
// topic that it reads.
const (
	Consumer = "shipment-projection"
	Queue    = "courier-events-main"
)

// Reason codes of the worker.
const (
	ReasonInvalidStatus  eventing.ReasonCode = "INVALID_STATUS"
	ReasonInvalidPayload eventing.ReasonCode = "INVALID_PAYLOAD"
)

// Worker holds what the handler needs.
type Worker struct {
	Shipments *shipments.Shipments
	Ledger    *ledger.Ledger
	Now       func() time.Time
}

// Register adds the worker to a router.
func (w *Worker) Register(r *router.Router, policy eventing.Policy) error {
	if err := r.AddConsumer(router.Consumer{
		Name: Consumer, Topic: Queue, Policy: policy, Codec: eventing.PayloadCodec{},
		OnConclude: func(ctx context.Context, tx any, c eventing.Conclusion) error {
			return w.Ledger.Conclude(ctx, tx.(*sql.Tx), c, w.Now())
		},
	}); err != nil {
		return err
	}
	return router.HandleTx(r, Consumer, w.handle, router.On("*"))
}

func (w *Worker) handle(ctx context.Context, tx *sql.Tx, e eventing.Event[courier.Event]) error {
	p, err := courier.DecodePayload(e.Payload.Payload)
	if err != nil {
		return eventing.PermanentWithReason(ReasonInvalidPayload, err)
	}
	if err := courier.CheckStatus(p.Status); err != nil {
		return eventing.PermanentWithReason(ReasonInvalidStatus, err)
	}
	outcome, err := w.Shipments.Apply(ctx, tx, e.Payload, p, w.Now())
	if err != nil {
		return fmt.Errorf("apply event %s: %w", e.Payload.EventID, err)
	}
	return w.Ledger.SetOutcome(ctx, tx, e.ID, outcome)
}
