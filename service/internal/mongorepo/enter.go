package mongorepo

import (
	"context"

	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// Enter enters events that came by the queue alone, unless their idempotency keys are known; and returns which of them
// the keys stand for. The entries are there at once, whatever becomes of the run: an event that finds its own goes on.
func (r *Repo) Enter(ctx context.Context, _ *mongostore.Tx, arrivals []courier.Arrival) ([]courier.Standing, error) {
	standings := make([]courier.Standing, len(arrivals))
	for i := range arrivals {
		a := &arrivals[i]
		known, err := r.enter(ctx, []*entry{entryOf(a)})
		if err != nil {
			return nil, err
		}
		switch first := known[a.Event.IdempotencyKey]; {
		case first == nil, first.EnvelopeID == a.EnvelopeID:
		case first.BodyHash == a.Event.BodyHash:
			standings[i] = courier.StandingRepeat
		default:
			standings[i] = courier.StandingConflict
		}
	}
	return standings, nil
}

// entryOf is the entry of an event that the outbox does not have to get.
func entryOf(a *courier.Arrival) *entry {
	e := &a.Event
	return &entry{
		ID: e.IdempotencyKey, IdempotencyKey: e.IdempotencyKey, EventID: e.EventID, EventType: e.EventType,
		Status: string(courier.StatusReceived), FirstSeenAt: e.ReceivedAt, UpdatedAt: e.ReceivedAt,
		EnvelopeID: a.EnvelopeID, Source: e.Source, ShipmentID: a.Payload.ShipmentID, OccurredAt: e.OccurredAt, ReceivedAt: e.ReceivedAt,
		TraceID: e.TraceID, BodyHash: e.BodyHash,
	}
}
