package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// StateQueue is the topic that tells others of changes of shipments' states. It is the
// consumer of its rows, too, as no type of event may lead there: couriers choose those.
const (
	StateQueue      = "shipment-events"
	StateChangeType = "shipment.state.changed"
)

const aggregateType = "shipment"

// tell appends an event for each change of a state.
func (w *Worker[Tx]) tell(ctx context.Context, tx Tx, events []eventing.Event[courier.Event], arrivals []courier.Arrival, effects []courier.Effect, now time.Time) error {
	if w.Outbox == nil {
		return nil
	}
	var rows []eventing.OutboxRow
	for i, effect := range effects {
		if !effect.StateChanged() {
			continue
		}
		row, err := stateChangeRow(ctx, events[i].Header, arrivals[i], effect, now.UTC())
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	return w.Outbox.AppendRows(ctx, tx, rows)
}

// stateChangeRow makes the outbox row of a change. Its id follows from the event's, so that
// an effect that is done again tells the same.
func stateChangeRow(ctx context.Context, cause eventing.Header, a courier.Arrival, effect courier.Effect, now time.Time) (row eventing.OutboxRow, err error) {
	payload, err := encode(courier.StateChange{
		ShipmentID: a.Payload.ShipmentID, OrderID: effect.OrderID, PreviousState: effect.Previous, CurrentState: effect.Current,
		EventID: a.Event.EventID, EventType: a.Event.EventType, OccurredAt: a.Event.OccurredAt.UTC(), Source: a.Event.Source, ChangedAt: now,
	})
	if err != nil {
		return row, err
	}
	ctx = eventing.WithEnvelope(ctx, eventing.Envelope{Header: cause})
	row, err = eventing.OutboxConfig{Now: func() time.Time { return now }}.Row(ctx, eventing.Envelope{
		Header: eventing.Header{
			ID: courier.StateChangeID(cause.ID), Type: StateChangeType, SchemaVersion: 1,
			CorrelationID: cause.CorrelationID, AggregateType: aggregateType, AggregateID: a.Payload.ShipmentID,
		},
		Payload: payload,
	})
	row.Consumer = StateQueue
	return row, err
}

// encode encodes without escapes for HTML.
func encode(c courier.StateChange) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(c)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}
