package mongorepo

import (
	"context"
	"maps"

	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// Enter enters events that came by the queue alone, unless their idempotency keys are known; and returns which of them
// the keys stand for. The entries are there at once, whatever becomes of the run: an event that finds its own goes on.
func (r *Repo) Enter(ctx context.Context, _ *mongostore.Tx, arrivals []courier.Arrival) ([]courier.Standing, error) {
	first := make(map[string]*entry, len(arrivals)) // by key
	docs := make([]*entry, 0, len(arrivals))
	for i := range arrivals {
		if doc := entryOf(&arrivals[i]); first[doc.ID] == nil {
			first[doc.ID] = doc
			docs = append(docs, doc)
		}
	}
	known, err := r.enter(ctx, docs)
	if err != nil {
		return nil, err
	}
	maps.Copy(first, known)
	standings := make([]courier.Standing, len(arrivals))
	for i := range arrivals {
		of := first[arrivals[i].Event.IdempotencyKey]
		standings[i] = courier.StandingOf(&arrivals[i], of.EnvelopeID, of.BodyHash)
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
