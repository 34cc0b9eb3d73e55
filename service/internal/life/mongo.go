package life

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/mongoread"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/mongorepo"
)

// MongoReader reads lives of events from MongoDB. There is no one moment at which all of it is seen: of an
// event that moves meanwhile, some may be told as before and some as after.
type MongoReader struct {
	db        *mongo.Database
	letters   *mongostore.Store
	shipments repository
	now       func() time.Time
}

// NewMongo returns a reader of a gateway's database.
func NewMongo(db *mongo.Database, letters *mongostore.Store, shipments *mongorepo.Repo) *MongoReader {
	db = db.Client().Database(db.Name(), options.Database().SetReadPreference(readpref.Primary()))
	return &MongoReader{db, letters, shipments, time.Now}
}

// Find returns the events that id names, as [Reader.Find] does.
func (r *MongoReader) Find(ctx context.Context, id, source string, payloads bool) ([]Event, error) {
	found, err := r.entries(ctx, id, source, payloads)
	if err != nil {
		return nil, fmt.Errorf("look up %q in the ledger: %w", id, err)
	}
	var events []Event
	for i := range found {
		e := found[i].event()
		if err := r.tell(ctx, &standing{event: &e, now: r.now(), pending: found[i].Outgoing != nil}, payloads); err != nil {
			return nil, fmt.Errorf("read what became of %s: %w", e.EnvelopeID, err)
		}
		events = append(events, e)
	}
	if len(events) == 1 && len(events[0].Steps) == 0 { // nobody knows that envelope
		return nil, nil
	}
	return events, addShipments(ctx, r.shipments, events)
}

// ledgerDoc is what is told of a document of processed_events.
type ledgerDoc struct {
	IdempotencyKey   string    `bson:"idempotencyKey"`
	EventID          string    `bson:"eventId"`
	EventType        string    `bson:"eventType"`
	Status           string    `bson:"status"`
	AttemptCount     int       `bson:"attemptCount"`
	LastErrorCode    string    `bson:"lastErrorCode"`
	LastErrorMessage string    `bson:"lastErrorMessage"`
	EnvelopeID       string    `bson:"envelopeId"`
	Source           string    `bson:"source"`
	ShipmentID       string    `bson:"shipmentId"`
	OccurredAt       time.Time `bson:"occurredAt"`
	ReceivedAt       time.Time `bson:"receivedAt"`
	TraceID          string    `bson:"traceId"`
	BodyHash         string    `bson:"bodyHash"`
	Outgoing         *struct { // nil: the outbox has it
		Payload []byte `bson:"payload"`
	} `bson:"outgoing"`
}

func (d *ledgerDoc) event() Event {
	e := Event{
		EnvelopeID: d.EnvelopeID, CourierEventID: d.EventID, Source: d.Source, IdempotencyKey: d.IdempotencyKey, ShipmentID: d.ShipmentID,
		TraceID: d.TraceID, OccurredAt: d.OccurredAt, Status: courier.Status(d.Status), Attempts: d.AttemptCount,
		LastErrorCode: d.LastErrorCode, LastError: d.LastErrorMessage, EventType: d.EventType,
	}
	if d.EventID != "" {
		e.accepted(d.ReceivedAt, d.BodyHash)
	}
	if d.Outgoing != nil {
		e.keep(d.Outgoing.Payload)
	}
	return e
}

// entries returns what the ledger has of the events; for an id that it does not know, an envelope.
func (r *MongoReader) entries(ctx context.Context, id, source string, payloads bool) ([]ledgerDoc, error) {
	find := func(filter bson.D) ([]ledgerDoc, error) {
		if source != "" {
			filter = append(filter, bson.E{Key: "source", Value: source})
		}
		o := options.Find().SetSort(bson.D{{Key: "firstSeenAt", Value: 1}, {Key: "source", Value: 1}}).SetLimit(MaxEvents)
		if !payloads {
			o.SetProjection(bson.D{{Key: "outgoing.payload", Value: 0}})
		}
		return all[ledgerDoc](ctx, r.db, mongorepo.LedgerCollection, filter, o)
	}
	found, err := find(bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: "eventId", Value: id}}, bson.D{{Key: "envelopeId", Value: id}}}}})
	if len(found) == 0 && len(id) == traceLength && err == nil {
		found, err = find(bson.D{{Key: "traceId", Value: id}})
	}
	if len(found) == 0 && source == "" {
		found = []ledgerDoc{{EnvelopeID: id}}
	}
	return found, err
}

// outboxDoc is what is told of a document of event_outbox.
type outboxDoc struct {
	Seq        int64         `bson:"seq"`
	EventType  string        `bson:"eventType"`
	Status     string        `bson:"status"`
	Attempts   int           `bson:"attempts"`
	CreatedAt  time.Time     `bson:"createdAt"`
	SentAt     time.Time     `bson:"sentAt"`
	DueAt      time.Time     `bson:"dueAt"`
	Consumer   string        `bson:"consumer"`
	Generation int           `bson:"generation"`
	Partition  *int          `bson:"partition"`
	Payload    bson.RawValue `bson:"payload"`
}

// inboxDoc is what is told of a document of consumer_inbox.
type inboxDoc struct {
	Consumer    string    `bson:"consumer"`
	ProcessedAt time.Time `bson:"processedAt"`
	Delivery    *struct {
		EventType string        `bson:"eventType"`
		State     string        `bson:"state"`
		DueAt     time.Time     `bson:"dueAt"`
		History   []attemptDoc  `bson:"history"`
		Payload   bson.RawValue `bson:"payload"`
	} `bson:"delivery"`
}

type attemptDoc struct {
	Attempt      int       `bson:"attempt"`
	At           time.Time `bson:"at"`
	ErrorCode    string    `bson:"errorCode"`
	ErrorMessage string    `bson:"errorMessage"`
}

func attemptsOf(docs []attemptDoc) (history []eventing.Attempt) {
	for _, a := range docs {
		history = append(history, eventing.Attempt{Attempt: a.Attempt, At: a.At, ErrorCode: eventing.ReasonCode(a.ErrorCode), ErrorMessage: a.ErrorMessage})
	}
	return history
}

// tell adds to an event what the collections have of it. What decides is read before what follows from it.
func (r *MongoReader) tell(ctx context.Context, s *standing, payloads bool) error {
	rows, err := all[outboxDoc](ctx, r.db, "event_outbox", byEvent(s.event), without(payloads, "payload"))
	if err != nil {
		return err
	}
	for _, d := range rows {
		s.event.EventType = d.EventType
		s.event.keep(text(d.Payload))
		row := Step{Row: d.Seq, Attempt: d.Attempts, Consumer: d.Consumer, Replay: d.Generation}
		aside := d.Status == "sent" && d.Partition == nil
		if aside {
			row.Message = "every dead letter of this event is closed: nothing to run"
		}
		s.row(row, d.Status == "failed", aside, d.CreatedAt, d.SentAt, d.DueAt)
	}
	inbox, err := all[inboxDoc](ctx, r.db, mongostore.InboxCollection, byEvent(s.event), without(payloads, "delivery.payload"))
	if err != nil {
		return err
	}
	for _, d := range inbox {
		if v := d.Delivery; v != nil {
			s.event.EventType = v.EventType
			s.event.keep(text(v.Payload))
			s.delivery(d.Consumer, v.State, v.DueAt, attemptsOf(v.History))
		}
		if !d.ProcessedAt.IsZero() {
			s.processed(d.Consumer, d.ProcessedAt)
		}
	}
	if err := r.tellLetters(ctx, s, payloads); err != nil {
		return err
	}
	records, err := all[struct {
		Outcome     string    `bson:"outcome"`
		ProcessedAt time.Time `bson:"processedAt"`
	}](ctx, r.db, "shipment_events", bson.D{{Key: "_id", Value: s.event.IdempotencyKey}}, options.Find())
	for _, d := range records {
		s.event.add(Step{At: d.ProcessedAt, What: d.Outcome})
	}
	s.event.inOrder()
	s.event.Standing = s.is()
	return err
}

func (r *MongoReader) tellLetters(ctx context.Context, s *standing, payloads bool) error {
	letters, err := r.letters.DeadLetters(ctx, eventing.DeadLetterFilter{EventID: s.event.EnvelopeID})
	for _, d := range letters {
		s.event.EventType = d.EventType
		if payloads {
			s.event.keep(d.Payload)
		}
		s.letter(d)
	}
	return err
}

func byEvent(e *Event) bson.D { return bson.D{{Key: "eventId", Value: e.EnvelopeID}} }

// without leaves a field out, unless payloads are asked for.
func without(payloads bool, field string) *options.FindOptionsBuilder {
	if payloads {
		return options.Find()
	}
	return options.Find().SetProjection(bson.D{{Key: field, Value: 0}})
}

// text is an encoded envelope; empty: there is none, or its bytes are no text.
func text(payload bson.RawValue) []byte {
	encoded, _ := payload.StringValueOK()
	return []byte(encoded)
}

func all[T any](ctx context.Context, db *mongo.Database, collection string, filter bson.D, o *options.FindOptionsBuilder) ([]T, error) {
	return mongoread.All[T](ctx, db.Collection(collection), filter, o)
}
