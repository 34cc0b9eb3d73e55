package mongorepo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/mongoread"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// record is a document of shipment_events: what a processed event did.
type record struct {
	ID             string    `bson:"_id"` // the idempotency key
	ShipmentID     string    `bson:"shipmentId"`
	IdempotencyKey string    `bson:"idempotencyKey"`
	EventID        string    `bson:"eventId"`
	Outcome        string    `bson:"outcome"`
	OccurredAt     time.Time `bson:"occurredAt"`
	ProcessedAt    time.Time `bson:"processedAt"`
}

// Process applies events to their shipments, in the order given, as one after the other. Their records and the ledger's word follow from
// the conclusion of the run. An event that the ledger has as processed is left alone.
func (r *Repo) Process(ctx context.Context, tx *mongostore.Tx, arrivals []courier.Arrival, now, until time.Time) ([]courier.Effect, error) {
	effects := make([]courier.Effect, len(arrivals))
	for i := range arrivals {
		var err error
		if effects[i], err = r.process(ctx, tx, &arrivals[i], now, until); err != nil {
			return nil, fmt.Errorf("shipment %s: %w", arrivals[i].Payload.ShipmentID, err)
		}
	}
	return effects, nil
}

func (r *Repo) process(ctx context.Context, tx *mongostore.Tx, a *courier.Arrival, now, until time.Time) (effect courier.Effect, err error) {
	e, err := r.of(ctx, eventing.Envelope{Header: eventing.Header{ID: a.EnvelopeID, IdempotencyKey: a.Event.IdempotencyKey}})
	if err != nil {
		return effect, err
	}
	if e != nil && e.Status == string(courier.StatusProcessed) {
		return effect, nil
	}
	if e != nil {
		if err := r.begin(ctx, e, now); err != nil {
			return effect, err
		}
	}
	if effect, err = r.apply(ctx, a, now); err != nil {
		return effect, err
	}
	key := a.Event.IdempotencyKey
	if err := tx.Insert(recordCollection, record{
		key, a.Payload.ShipmentID, key, a.Event.EventID, string(effect.Outcome), a.Event.OccurredAt, now,
	}); err != nil {
		return effect, err
	}
	if e == nil {
		return effect, nil
	}
	return effect, tx.Update(LedgerCollection, key, bson.D{
		eq("status", string(courier.StatusProcessed)), eq("outcome", string(effect.Outcome)), eq("attemptCount", a.Attempt), eq("updatedAt", now), eq("expiresAt", until),
	})
}

var errOvertaken = errors.New("the shipment is changed by others all the time")

const maxTries = 100

// apply changes the shipment, unless the event has done so already, in a run that was not concluded.
func (r *Repo) apply(ctx context.Context, a *courier.Arrival, now time.Time) (courier.Effect, error) {
	for try := range maxTries {
		doc, err := mongoread.One[shipment](ctx, r.shipments, bson.D{eq("_id", a.Payload.ShipmentID)})
		if err != nil {
			return courier.Effect{}, err
		}
		effect, won, err := r.change(ctx, doc, a, now)
		if won || err != nil {
			return effect, err
		}
		if err := pause(ctx, try); err != nil {
			return courier.Effect{}, err
		}
	}
	return courier.Effect{}, errOvertaken
}

// change applies the event to the shipment as it was found; nil: there was none. won is false if
// somebody else has changed it since.
func (r *Repo) change(ctx context.Context, found *shipment, a *courier.Arrival, now time.Time) (effect courier.Effect, won bool, err error) {
	doc := newShipment(a.Payload.ShipmentID, now)
	if found != nil {
		doc = *found
	}
	if done := doc.effectOf(a.EnvelopeID); done != nil {
		return done.effect(), true, nil
	}
	p := doc.projection()
	if effect = p.Process(a); effect.Outcome == courier.OutcomeLate {
		return effect, true, nil
	}
	doc.set(p, now)
	if doc.Effects, err = r.unrecorded(ctx, doc.Effects); err != nil {
		return effect, false, err
	}
	doc.Effects = append(doc.Effects, effectDoc{a.EnvelopeID, a.Event.IdempotencyKey, string(effect.Outcome), effect.Previous, effect.Current, effect.OrderID})
	doc.Rev++
	if found == nil {
		_, err = r.shipments.InsertOne(ctx, doc)
		if mongo.IsDuplicateKeyError(err) {
			return effect, false, nil
		}
		return effect, err == nil, err
	}
	replaced, err := r.shipments.ReplaceOne(ctx, bson.D{eq("_id", doc.ID), eq("rev", found.Rev)}, doc)
	return effect, err == nil && replaced.MatchedCount == 1, err
}

// keptEffects is how many effects a shipment has before it is looked which of them are needed.
const keptEffects = 8

// unrecorded returns those effects that may still be asked for: of events whose run has not been concluded, as far as is known.
func (r *Repo) unrecorded(ctx context.Context, effects []effectDoc) ([]effectDoc, error) {
	if len(effects) < keptEffects {
		return effects, nil
	}
	keys := make([]string, len(effects))
	for i := range effects {
		keys[i] = effects[i].IdempotencyKey
	}
	known, err := mongoread.All[record](ctx, r.records, bson.D{in("_id", keys)}, options.Find().SetProjection(bson.D{eq("_id", 1)}))
	if err != nil {
		return nil, err
	}
	recorded := make(map[string]bool, len(known))
	for i := range known {
		recorded[known[i].ID] = true
	}
	var kept []effectDoc
	for _, e := range effects {
		if !recorded[e.IdempotencyKey] {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// pause waits a little before another try.
func pause(ctx context.Context, try int) error {
	longest := min(int64(1+try), 20) * int64(time.Millisecond)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(rand.Int64N(longest))): //nolint:gosec // not a secret
		return nil
	}
}
