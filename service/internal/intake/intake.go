// Package intake takes accepted events over durably: ledger and outbox in one
// transaction.
package intake

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/httpapi"
	"github.com/waybill-go/waybill/service/internal/ledger"
)

// Intake implements [httpapi.Acceptor].
type Intake struct {
	outbox *eventing.Outbox[*sql.Tx]
	ledger *ledger.Ledger
}

var _ httpapi.Acceptor = (*Intake)(nil)

// New returns an intake.
func New(outbox *eventing.Outbox[*sql.Tx], l *ledger.Ledger) *Intake { return &Intake{outbox, l} }

// AggregateType is that of couriers' events; the aggregate is the shipment.
const AggregateType = "shipment"

// Accept implements [httpapi.Acceptor].
func (i *Intake) Accept(ctx context.Context, e courier.Event, bodyHash string) (traceID string, err error) {
	p, err := courier.DecodePayload(e.Payload)
	if err != nil {
		return "", fmt.Errorf("accept %s: %w", e.EventID, err)
	}
	e.Attempt = 1
	body, err := encode(e)
	if err != nil {
		return "", fmt.Errorf("accept %s: %w", e.EventID, err)
	}
	err = i.outbox.InTx(ctx, func(tx *sql.Tx) error {
		known, fresh, err := i.ledger.Receive(ctx, tx, e, p.ShipmentID, bodyHash)
		if err != nil || !fresh {
			traceID = known
			return err
		}
		traceID = e.TraceID
		return i.outbox.Append(ctx, tx, eventing.Envelope{
			Header: eventing.Header{
				ID: courier.EventID(e.Source, e.IdempotencyKey), Type: e.EventType, OccurredAt: e.OccurredAt, CorrelationID: e.TraceID,
				AggregateType: AggregateType, AggregateID: p.ShipmentID, IdempotencyKey: e.IdempotencyKey,
			},
			Payload: body,
		})
	})
	switch {
	case errors.Is(err, ledger.ErrConflict):
		return "", httpapi.ErrConflict
	case err != nil:
		return "", fmt.Errorf("accept %s: %w", e.EventID, err)
	}
	return traceID, nil
}

// encode encodes an event as it came: with escapes for HTML, it could be several times as
// long, and too long for an envelope.
func encode(e courier.Event) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}
