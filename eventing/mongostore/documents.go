package mongostore

import (
	"fmt"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/waybill-go/waybill/eventing"
)

type status string

const (
	pending status = "pending"
	sent    status = "sent"
	failed  status = "failed"
)

// payload is text in the database, where people read it, unless it is not UTF-8.
type payload []byte

func (p payload) MarshalBSONValue() (typ byte, data []byte, err error) {
	var t bson.Type
	if utf8.Valid(p) {
		t, data, err = bson.MarshalValue(string(p))
	} else {
		t, data, err = bson.MarshalValue([]byte(p))
	}
	return byte(t), data, err
}

func (p *payload) UnmarshalBSONValue(typ byte, data []byte) error {
	value := bson.RawValue{Type: bson.Type(typ), Value: data}
	switch value.Type {
	case bson.TypeString:
		*p = payload(value.StringValue())
	case bson.TypeBinary:
		_, b := value.Binary()
		*p = append(payload{}, b...)
	case bson.TypeEmbeddedDocument: // somebody wrote it by hand like that
		text, err := bson.MarshalExtJSON(value.Document(), false, false)
		*p = text
		return err
	case bson.TypeNull, bson.TypeUndefined:
		*p = nil
	default:
		*p = payload(value.String()) // which is no envelope, and becomes a dead letter
	}
	return nil
}

// outboxDoc is a document of event_outbox.
type outboxDoc struct {
	ID             string    `bson:"_id"`
	EventID        string    `bson:"eventId"`
	EventType      string    `bson:"eventType"`
	Payload        payload   `bson:"payload"`
	Status         status    `bson:"status"`
	Attempts       int       `bson:"attempts"`
	CreatedAt      time.Time `bson:"createdAt,omitempty"`
	SentAt         time.Time `bson:"sentAt,omitempty"`
	Seq            int64     `bson:"seq,omitempty"`
	OrderingKey    string    `bson:"orderingKey,omitempty"`
	Partition      *int      `bson:"partition,omitempty"` // nil: not adopted yet
	Lane           string    `bson:"lane,omitempty"`
	DueAt          time.Time `bson:"dueAt,omitempty"`
	Consumer       string    `bson:"consumer,omitempty"`
	Generation     int       `bson:"generation,omitempty"`
	Force          bool      `bson:"force,omitempty"`
	RoutingVersion string    `bson:"routingVersion,omitempty"`

	// Of a row that is being adopted; see Adopt.
	Aside   string        `bson:"aside,omitempty"`   // the ID under which it will be kept
	Replays []plannedCopy `bson:"replays,omitempty"` // the dead letters that it replays
}

// plannedCopy is a dead letter that a hand-written row replays, if it still has this generation.
type plannedCopy struct {
	Consumer   string `bson:"consumer"`
	Generation int    `bson:"generation"`
}

func newOutboxDoc(r eventing.OutboxRow) outboxDoc {
	return outboxDoc{
		ID: r.ID, EventID: r.EventID, EventType: r.EventType, Payload: r.Payload, Status: pending, CreatedAt: r.CreatedAt, Seq: r.Seq,
		OrderingKey: r.OrderingKey, Partition: &r.Partition, Lane: string(r.Lane), DueAt: r.DueAt, Consumer: r.Consumer,
		Generation: r.Generation, Force: r.Force,
	}
}

func (d *outboxDoc) row() eventing.OutboxRow {
	r := eventing.OutboxRow{
		Seq: d.Seq, ID: d.ID, EventID: d.EventID, EventType: d.EventType, Payload: d.Payload, OrderingKey: d.OrderingKey,
		CreatedAt: d.CreatedAt, DueAt: d.DueAt, Consumer: d.Consumer, Generation: d.Generation, Force: d.Force, Lane: eventing.Lane(d.Lane),
	}
	if d.Partition != nil {
		r.Partition = *d.Partition
	}
	return r
}

// inboxDoc is a document of consumer_inbox: all that a consumer has of an event, but its
// dead letter. It is the commit document of whatever happens to the event there; see change.
type inboxDoc struct {
	ID       string `bson:"_id"`
	Consumer string `bson:"consumer"`
	EventID  string `bson:"eventId"`
	Rev      int64  `bson:"rev"` // grows with each change

	ProcessedAt time.Time `bson:"processedAt,omitempty"` // zero: not processed
	ExpiresAt   time.Time `bson:"expiresAt,omitempty"`
	Generation  int       `bson:"generation"` // of the run that processed it

	Delivery *deliveryDoc `bson:"delivery,omitempty"` // nil: it is in no trouble
	Died     bool         `bson:"died,omitempty"`     // there is a dead letter
	Claim    *claimDoc    `bson:"claim,omitempty"`    // nil: no handler is running
	Redo     *redoDoc     `bson:"redo,omitempty"`     // nil: nothing is left to be done
}

// inboxID is the _id of a target's document. Names of consumers have no commas.
func inboxID(t eventing.Target) string { return t.Consumer + "," + t.EventID }

func (d *inboxDoc) target() eventing.Target {
	return eventing.Target{EventID: d.EventID, Consumer: d.Consumer}
}

func (d *inboxDoc) processed() bool { return !d.ProcessedAt.IsZero() }

// empty reports whether the document says nothing any more.
func (d *inboxDoc) empty() bool {
	return !d.processed() && d.Delivery == nil && !d.Died && d.Claim == nil && d.Redo == nil
}

// claimDoc says that a handler is running on the event.
type claimDoc struct {
	Token string    `bson:"token"`
	Until time.Time `bson:"until"`
	Lease int64     `bson:"lease,omitempty"` // of the partition, if ordered
	Batch string    `bson:"batch,omitempty"` // the _id in event_commits that will decide
}

// deliveryDoc is a delivery in trouble.
type deliveryDoc struct {
	Consumer       string       `bson:"consumer"`
	EventType      string       `bson:"eventType"`
	OrderingKey    string       `bson:"orderingKey,omitempty"`
	Partition      int          `bson:"partition"`
	Position       int64        `bson:"position"`
	State          string       `bson:"state"`
	Attempts       int          `bson:"attempts"`
	PriorAttempts  int          `bson:"priorAttempts"`
	History        []attemptDoc `bson:"history"`
	DueAt          time.Time    `bson:"dueAt,omitempty"`
	Generation     int          `bson:"generation"`
	Force          bool         `bson:"force,omitempty"`
	OutboxSeq      int64        `bson:"outboxSeq,omitempty"`
	RoutingVersion string       `bson:"routingVersion,omitempty"`
	Payload        payload      `bson:"payload"`
	ClaimToken     string       `bson:"claimToken,omitempty"`
	ClaimUntil     time.Time    `bson:"claimUntil,omitempty"`
}

func newDeliveryDoc(d eventing.Delivery, state eventing.State, position int64) *deliveryDoc {
	return &deliveryDoc{
		Consumer: d.Consumer, EventType: d.EventType, OrderingKey: d.OrderingKey, Partition: d.Partition, Position: position,
		State: string(state), Generation: d.Generation, Force: d.Force, OutboxSeq: d.OutboxSeq, RoutingVersion: d.RoutingVersion, Payload: d.Payload,
	}
}

// run is a run of the delivery.
func (d *inboxDoc) run(lease *eventing.Lease) eventing.Run {
	v := d.Delivery
	return eventing.Run{
		Delivery: eventing.Delivery{
			Consumer: d.Consumer, EventID: d.EventID, EventType: v.EventType, OrderingKey: v.OrderingKey, Partition: v.Partition,
			Generation: v.Generation, Force: v.Force, OutboxSeq: v.OutboxSeq, Payload: v.Payload, RoutingVersion: v.RoutingVersion,
		},
		Found: eventing.State(v.State), Attempts: v.Attempts, PriorAttempts: v.PriorAttempts, History: fromAttempts(v.History),
		ClaimToken: v.ClaimToken, Lease: lease,
	}
}

type attemptDoc struct {
	Attempt      int       `bson:"attempt"`
	At           time.Time `bson:"at"`
	Outcome      string    `bson:"outcome"`
	ErrorCode    string    `bson:"errorCode"`
	ErrorMessage string    `bson:"errorMessage"`
	TraceParent  string    `bson:"traceparent,omitempty"`
}

func toAttempts(history []eventing.Attempt) []attemptDoc {
	docs := make([]attemptDoc, len(history))
	for i, a := range history {
		docs[i] = attemptDoc{a.Attempt, a.At, a.Outcome, string(a.ErrorCode), a.ErrorMessage, a.TraceParent}
	}
	return docs
}

func fromAttempts(docs []attemptDoc) []eventing.Attempt {
	var history []eventing.Attempt
	for _, a := range docs {
		history = append(history, eventing.Attempt{
			Attempt: a.Attempt, At: a.At, Outcome: a.Outcome, ErrorCode: eventing.ReasonCode(a.ErrorCode), ErrorMessage: a.ErrorMessage,
			TraceParent: a.TraceParent,
		})
	}
	return history
}

// raw encodes a document that is kept for later.
func raw(doc any) (bson.Raw, error) {
	b, err := bson.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("mongostore: encode a document: %w", err)
	}
	return b, nil
}
