package mongorepo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/mongoread"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/ledger"
)

// Until returns when an entry expires that is processed now.
func (r *Repo) Until(now time.Time) time.Time { return now.Add(r.cfg.Retention) }

// of finds the ledger's entry of an envelope; nil: it did not come through the intake, or has expired.
func (r *Repo) of(ctx context.Context, e eventing.Envelope) (*entry, error) {
	found, err := mongoread.One[entry](ctx, r.ledger, bson.D{eq("_id", e.IdempotencyKey)}, withoutOutgoing)
	if err != nil || found == nil || found.EnvelopeID != e.ID {
		return nil, err
	}
	return found, nil
}

var (
	withoutOutgoing  = options.FindOne().SetProjection(bson.D{eq("outgoing", 0)})
	withoutOutgoings = options.Find().SetProjection(bson.D{eq("outgoing", 0)})
)

// Conclude records how a run of the worker ended that was no success, as a step that follows from its conclusion. It reports false, and
// changes nothing, if the entry is in a state from which that is no step.
func (r *Repo) Conclude(ctx context.Context, tx *mongostore.Tx, c eventing.Conclusion, now time.Time) (allowed bool, err error) {
	if a, ok := courier.DirectArrival(c.Envelope); ok {
		if _, err := r.enter(ctx, []*entry{entryOf(&a)}); err != nil {
			return false, fmt.Errorf("enter %s into the ledger: %w", c.Envelope.ID, err)
		}
	}
	e, err := r.of(ctx, c.Envelope)
	if err != nil {
		return false, fmt.Errorf("look up %s in the ledger: %w", c.Envelope.ID, err)
	}
	if e == nil {
		return true, nil
	}
	status := courier.StatusFailed
	if c.State == eventing.StateDead {
		status = courier.StatusDeadLettered
	}
	if !ledger.Concludes(courier.Status(e.Status), status) {
		return false, nil
	}
	fields := bson.D{
		eq("status", string(status)), eq("attemptCount", c.Attempts), eq("updatedAt", now), eq("lastErrorCode", string(eventing.ReasonOf(c.Err))),
		eq("lastErrorMessage", c.Message()), eq("expiresAt", nil),
	}
	if c.State == eventing.StateDead {
		fields[len(fields)-1] = eq("expiresAt", now.Add(r.cfg.DeadLetterRetention))
	}
	return true, tx.Update(LedgerCollection, e.ID, fields)
}

// begin has the ledger say that an event is being processed, if nothing has become of it since it was read.
func (r *Repo) begin(ctx context.Context, e *entry, now time.Time) error {
	_, err := r.ledger.UpdateOne(ctx, bson.D{eq("_id", e.ID), eq("status", e.Status), eq("rev", revOrNull(e.Rev))},
		bson.D{eq("$set", bson.D{eq("status", string(courier.StatusProcessing)), eq("updatedAt", now)}), eq("$unset", bson.D{eq("expiresAt", "")})})
	return err
}

// revOrNull is the value of a field that is left out where it is zero.
func revOrNull(rev int64) any {
	if rev == 0 {
		return nil
	}
	return rev
}

// Sweep has the outbox get what requests have left that died, and removes at most limit entries that have
// expired, and whose event nothing can run and nothing remembers any more. It returns how many.
func (r *Repo) Sweep(ctx context.Context, now time.Time, limit int) (n int64, err error) {
	if err := r.moveOutLeft(ctx, now, limit); err != nil {
		return 0, err
	}
	expired, err := mongoread.All[entry](ctx, r.ledger, bson.D{eq("expiresAt", bson.D{eq("$lt", now)})},
		options.Find().SetLimit(int64(limit)).SetProjection(bson.D{eq("envelopeId", 1)}))
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	envelopes := make([]string, len(expired))
	for i := range expired {
		envelopes[i] = expired[i].EnvelopeID
	}
	remembered, err := r.events.Remembered(ctx, envelopes)
	if err != nil {
		return 0, err
	}
	var gone []string
	for i := range expired {
		if !remembered[expired[i].EnvelopeID] {
			gone = append(gone, expired[i].ID)
		}
	}
	if len(gone) == 0 {
		return 0, nil
	}
	removed, err := r.ledger.DeleteMany(ctx, bson.D{in("_id", gone), eq("expiresAt", bson.D{eq("$lt", now)})})
	if err != nil {
		return 0, err
	}
	return removed.DeletedCount, nil
}

// maxEvents bounds an answer: events of one id, one from each source.
const maxEvents = 100

// Events returns what became of the events that couriers call eventID, with the ids of their envelopes.
func (r *Repo) Events(ctx context.Context, eventID, source string) (events []courier.EventStatus, envelopes []string, err error) {
	filter := bson.D{eq("eventId", eventID)}
	if source != "" {
		filter = append(filter, eq("source", source))
	}
	found, err := mongoread.All[entry](ctx, r.ledger, filter, withoutOutgoings, options.Find().SetSort(ascending("firstSeenAt", "source")).SetLimit(maxEvents))
	for _, e := range found {
		events = append(events, courier.EventStatus{
			EventID: e.EventID, Source: e.Source, IdempotencyKey: e.IdempotencyKey, EventType: e.EventType, OccurredAt: e.OccurredAt,
			ReceivedAt: e.ReceivedAt, TraceID: e.TraceID, ShipmentID: e.ShipmentID, Status: courier.Status(e.Status), Outcome: courier.Outcome(e.Outcome),
			AttemptCount: e.AttemptCount, LastErrorCode: e.LastErrorCode, LastErrorMessage: e.LastErrorMessage,
			FirstSeenAt: e.FirstSeenAt, UpdatedAt: e.UpdatedAt,
		})
		envelopes = append(envelopes, e.EnvelopeID)
	}
	return events, envelopes, err
}

func nameOf(e entry) ledger.Name {
	return ledger.Name{EventID: e.EventID, Source: e.Source, ShipmentID: e.ShipmentID}
}

// Names returns what couriers call the events of the given envelopes, of those that the ledger knows.
func (r *Repo) Names(ctx context.Context, envelopes []string) (map[string]ledger.Name, error) {
	found, err := mongoread.All[entry](ctx, r.ledger, bson.D{in("envelopeId", envelopes)}, withoutOutgoings)
	if err != nil {
		return nil, fmt.Errorf("look up names in the ledger: %w", err)
	}
	names := make(map[string]ledger.Name, len(found))
	for _, e := range found {
		names[e.EnvelopeID] = nameOf(e)
	}
	return names, nil
}

// Envelopes returns the envelopes of the events that couriers, or only one source, call so.
func (r *Repo) Envelopes(ctx context.Context, eventIDs []string, source string) (map[string][]ledger.Called, error) {
	filter := bson.D{in("eventId", eventIDs)}
	if source != "" {
		filter = append(filter, eq("source", source))
	}
	found, err := mongoread.All[entry](ctx, r.ledger, filter, withoutOutgoings)
	if err != nil {
		return nil, fmt.Errorf("look up events in the ledger: %w", err)
	}
	envelopes := make(map[string][]ledger.Called, len(found))
	for _, e := range found {
		envelopes[e.EventID] = append(envelopes[e.EventID], ledger.Called{EnvelopeID: e.EnvelopeID, Name: nameOf(e)})
	}
	return envelopes, nil
}
