package intake

import (
	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// AggregateType is that of couriers' events; the aggregate is the shipment.
const AggregateType = "shipment"

// eventBytes is how long an encoded event usually is without its payload.
const eventBytes = 512

// newEntry makes an entry ready, while its group has yet to begin.
func (i *Intake) newEntry(e courier.Event, shipmentID, bodyHash string) (entry *Entry, err error) {
	e.Attempt = 1
	entry = &Entry{Event: e, ShipmentID: shipmentID, BodyHash: bodyHash, Envelope: eventing.Envelope{
		Header: eventing.Header{
			ID: courier.EventID(e.Source, e.IdempotencyKey), Type: e.EventType, OccurredAt: e.OccurredAt, CorrelationID: e.TraceID,
			AggregateType: AggregateType, AggregateID: shipmentID, IdempotencyKey: e.IdempotencyKey,
		},
		Payload: e.AppendJSON(make([]byte, 0, len(e.Payload)+eventBytes)),
	}}
	if !i.cfg.Direct {
		entry.Row, err = i.cfg.Outbox.Row(i.ctx, entry.Envelope)
		entry.Envelope.Payload = nil // the row has it
	}
	return entry, err
}
