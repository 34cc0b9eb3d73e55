package mongorepo

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/waybill-go/waybill/internal/mongoread"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// shipment is a document of active_shipments.
type shipment struct {
	ID            string    `bson:"_id"` // the shipment id
	ShipmentID    string    `bson:"shipmentId"`
	OrderID       string    `bson:"orderId"`
	CurrentState  string    `bson:"currentState"`
	LastEventID   string    `bson:"lastEventId"`
	LastEventType string    `bson:"lastEventType"`
	LastEventAt   time.Time `bson:"lastEventAt"`
	Metadata      metadata  `bson:"metadata"`
	CreatedAt     time.Time `bson:"createdAt"`
	UpdatedAt     time.Time `bson:"updatedAt"`

	// Which event each part is from: what an event leaves out stays as an earlier one said it.
	Last  versionDoc `bson:"last"`
	State versionDoc `bson:"state"`
	Order versionDoc `bson:"order"`

	Rev     int64       `bson:"rev"`               // grows with each change
	Effects []effectDoc `bson:"effects,omitempty"` // of events whose run may not have been concluded
}

// versionDoc is a [courier.Version]. Dates have milliseconds here, and versions microseconds.
type versionDoc struct {
	Micros int64  `bson:"micros"`
	Tie    string `bson:"tie"`
}

func (v versionDoc) version() courier.Version {
	if v == (versionDoc{}) {
		return courier.Version{}
	}
	return courier.Version{At: time.UnixMicro(v.Micros).UTC(), Tie: v.Tie}
}

func versionOf(v courier.Version) versionDoc {
	if v.At.IsZero() {
		return versionDoc{}
	}
	return versionDoc{v.At.UnixMicro(), v.Tie}
}

// effectDoc is a [courier.Effect].
type effectDoc struct {
	EnvelopeID     string `bson:"envelopeId"`
	IdempotencyKey string `bson:"idempotencyKey"`
	Outcome        string `bson:"outcome"`
	Previous       string `bson:"previous"`
	Current        string `bson:"current"`
	OrderID        string `bson:"orderId"`
}

func (e *effectDoc) effect() courier.Effect {
	return courier.Effect{Outcome: courier.Outcome(e.Outcome), Previous: e.Previous, Current: e.Current, OrderID: e.OrderID}
}

func newShipment(id string, now time.Time) shipment {
	return shipment{ID: id, ShipmentID: id, CreatedAt: now}
}

func (s *shipment) effectOf(envelopeID string) *effectDoc {
	for i := range s.Effects {
		if s.Effects[i].EnvelopeID == envelopeID {
			return &s.Effects[i]
		}
	}
	return nil
}

func (s *shipment) shipment() courier.Shipment {
	return courier.Shipment{
		ShipmentID: s.ShipmentID, OrderID: s.OrderID, CurrentState: s.CurrentState, LastEventID: s.LastEventID, LastEventType: s.LastEventType,
		LastEventAt: s.Last.version().At, Metadata: json.RawMessage(s.Metadata), CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

func (s *shipment) projection() courier.Projection {
	return courier.Projection{Shipment: s.shipment(), Last: s.Last.version(), State: s.State.version(), Order: s.Order.version()}
}

func (s *shipment) set(p courier.Projection, now time.Time) {
	s.OrderID, s.CurrentState, s.LastEventID, s.LastEventType, s.LastEventAt = p.OrderID, p.CurrentState, p.LastEventID, p.LastEventType, p.LastEventAt
	s.Metadata, s.UpdatedAt = metadata(p.Metadata), now
	s.Last, s.State, s.Order = versionOf(p.Last), versionOf(p.State), versionOf(p.Order)
}

// Get returns a shipment; [sql.ErrNoRows], as from other databases, if it is not known.
func (r *Repo) Get(ctx context.Context, shipmentID string) (courier.Shipment, error) {
	doc, err := mongoread.One[shipment](ctx, r.shipments, bson.D{eq("_id", shipmentID)})
	if err != nil {
		return courier.Shipment{}, err
	}
	if doc == nil {
		return courier.Shipment{}, sql.ErrNoRows
	}
	return doc.shipment(), nil
}
