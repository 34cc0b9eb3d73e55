package intake

import (
	"fmt"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// AggregateType is that of couriers' events; the aggregate is the shipment.
const AggregateType = "shipment"

// eventBytes is how long an encoded event usually is without its payload.
const eventBytes = 512

func newEntry(e courier.Event, bodyHash string) (*Entry, error) {
	p, err := courier.DecodePayload(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("accept %s: %w", e.EventID, err)
	}
	e.Attempt = 1
	body := e.AppendJSON(make([]byte, 0, len(e.Payload)+eventBytes))
	return &Entry{Event: e, ShipmentID: p.ShipmentID, BodyHash: bodyHash, Envelope: eventing.Envelope{
		Header: eventing.Header{
			ID: courier.EventID(e.Source, e.IdempotencyKey), Type: e.EventType, OccurredAt: e.OccurredAt, CorrelationID: e.TraceID,
			AggregateType: AggregateType, AggregateID: p.ShipmentID, IdempotencyKey: e.IdempotencyKey,
		},
		Payload: body,
	}}, nil
}
