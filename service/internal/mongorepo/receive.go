package mongorepo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/mongoread"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
)

// entry is a document of processed_events, the ledger.
type entry struct {
	ID               string    `bson:"_id"` // the idempotency key
	IdempotencyKey   string    `bson:"idempotencyKey"`
	EventID          string    `bson:"eventId"`
	EventType        string    `bson:"eventType"`
	Status           string    `bson:"status"`
	AttemptCount     int       `bson:"attemptCount"`
	LastErrorCode    *string   `bson:"lastErrorCode"`
	LastErrorMessage *string   `bson:"lastErrorMessage"`
	FirstSeenAt      time.Time `bson:"firstSeenAt"`
	UpdatedAt        time.Time `bson:"updatedAt"`
	ExpiresAt        time.Time `bson:"expiresAt,omitempty"` // zero: not in a final state

	EnvelopeID string    `bson:"envelopeId"`
	Source     string    `bson:"source"`
	ShipmentID string    `bson:"shipmentId"`
	OccurredAt time.Time `bson:"occurredAt"`
	ReceivedAt time.Time `bson:"receivedAt"`
	TraceID    string    `bson:"traceId"`
	BodyHash   string    `bson:"bodyHash"`
	Outcome    string    `bson:"outcome"`
	Rev        int64     `bson:"rev,omitempty"` // of the last step of the event; see [mongostore.Tx.Update]

	Outgoing *outgoing `bson:"outgoing,omitempty"` // nil: it is in the outbox
}

// outgoing is what the outbox has to get.
type outgoing struct {
	At          time.Time `bson:"at"`
	Payload     []byte    `bson:"payload"`
	OrderingKey string    `bson:"orderingKey"`
	Partition   int       `bson:"partition"`
}

// row is the row that the outbox has to get.
func (e *entry) row() eventing.OutboxRow {
	return eventing.OutboxRow{
		ID: e.EnvelopeID, EventID: e.EnvelopeID, EventType: e.EventType, Payload: e.Outgoing.Payload, CreatedAt: e.Outgoing.At,
		OrderingKey: e.Outgoing.OrderingKey, Partition: e.Outgoing.Partition,
	}
}

func newEntry(e *intake.Entry) *entry {
	row := &e.Row
	doc := entryOf(&courier.Arrival{EnvelopeID: e.Envelope.ID, Event: e.Event, Payload: courier.Payload{ShipmentID: e.ShipmentID}})
	doc.BodyHash = e.BodyHash
	doc.Outgoing = &outgoing{At: row.CreatedAt, Payload: row.Payload, OrderingKey: row.OrderingKey, Partition: row.Partition}
	return doc
}

// Receiver returns what enters accepted events into the ledger, and then into the outbox.
func (r *Repo) Receiver() intake.Store { return &receiver{r} }

type receiver struct{ *Repo }

// Receive implements [intake.Store]: the entries that are not known yet into the ledger, then what of them and of those that are known is not yet
// in the outbox into that. Entries are stored one by one: after an error some may be.
func (r *receiver) Receive(ctx context.Context, entries []*intake.Entry) ([]intake.Receipt, error) {
	docs := make([]*entry, len(entries))
	for i := range entries {
		docs[i] = newEntry(entries[i])
	}
	known, err := r.enter(ctx, docs)
	if err != nil {
		return nil, momentary(fmt.Errorf("enter %d events into the ledger: %w", len(docs), err))
	}
	receipts := make([]intake.Receipt, len(entries))
	missing := make([]*entry, 0, len(entries))
	for i, doc := range docs {
		if first := known[doc.ID]; first != nil {
			doc = first
		}
		receipts[i] = intake.Receipt{TraceID: doc.TraceID, BodyHash: doc.BodyHash}
		if doc.Outgoing != nil {
			missing = append(missing, doc)
		}
	}
	if err := r.moveOut(ctx, missing); err != nil {
		return nil, momentary(err)
	}
	return receipts, nil
}

// enter inserts what is not known, and returns what was, by its key.
func (r *Repo) enter(ctx context.Context, docs []*entry) (known map[string]*entry, err error) {
	_, err = r.ledger.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	if err == nil {
		return nil, nil
	}
	taken, err := duplicates(err, docs)
	if err != nil {
		return nil, err
	}
	found, err := mongoread.All[entry](ctx, r.ledger, bson.D{in("_id", taken)})
	if err != nil {
		return nil, err
	}
	known = make(map[string]*entry, len(found))
	for i := range found {
		known[found[i].ID] = &found[i]
	}
	if len(known) != len(taken) {
		return nil, fmt.Errorf("%d of %d keys that were known have expired meanwhile", len(taken)-len(known), len(taken))
	}
	return known, nil
}

// duplicates returns the keys that an insertion has found taken. Another error is returned as it is.
func duplicates(err error, docs []*entry) (taken []string, _ error) {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return nil, err
	}
	for _, w := range bulk.WriteErrors {
		if !mongo.IsDuplicateKeyError(w.WriteError) || w.Index < 0 || w.Index >= len(docs) {
			return nil, err
		}
		taken = append(taken, docs[w.Index].ID)
	}
	return taken, nil
}

// moveOut has the outbox get what entries have for it.
func (r *Repo) moveOut(ctx context.Context, entries []*entry) error {
	if len(entries) == 0 {
		return nil
	}
	rows, ids := make([]eventing.OutboxRow, len(entries)), make([]string, len(entries))
	for i, e := range entries {
		rows[i], ids[i] = e.row(), e.ID
	}
	if err := r.events.AppendOnce(ctx, rows); err != nil {
		return fmt.Errorf("append %d events: %w", len(rows), err)
	}
	if _, err := r.ledger.UpdateMany(ctx, bson.D{in("_id", ids)}, bson.D{eq("$unset", bson.D{eq("outgoing", "")})}); err != nil {
		return fmt.Errorf("update %d events in the ledger: %w", len(ids), err)
	}
	return nil
}

// leftAfter is how old an entry is when somebody else moves out what it has: usually its own request does.
const leftAfter = 10 * time.Second

// moveOutLeft moves out what requests have left that died.
func (r *Repo) moveOutLeft(ctx context.Context, now time.Time, limit int) error {
	left, err := mongoread.All[entry](ctx, r.ledger, bson.D{eq("outgoing.at", bson.D{eq("$lt", now.Add(-leftAfter))})}, options.Find().SetLimit(int64(limit)))
	if err != nil {
		return err
	}
	entries := make([]*entry, len(left))
	for i := range left {
		entries[i] = &left[i]
	}
	return r.moveOut(ctx, entries)
}

// momentary marks an error that is of the connection or of the server.
func momentary(err error) error {
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) || mongoread.CursorLost(err) || errors.Is(err, eventing.ErrUnavailable) || errors.Is(err, mongo.ErrClientDisconnected) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", intake.ErrUnavailable, err)
	}
	var server mongo.ServerError
	if errors.As(err, &server) && (server.HasErrorLabel("RetryableWriteError") || server.HasErrorLabel("TransientTransactionError")) {
		return fmt.Errorf("%w: %w", intake.ErrUnavailable, err)
	}
	return err
}
