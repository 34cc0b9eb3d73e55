// Package shipments keeps the projection: what is known of each shipment, by the
// couriers' own clocks.
package shipments

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Shipments is the projection's repository. A part of a shipment changes only if the event is newer than the one it is
// from, by event time and, in a tie, key: so it ends alike in whatever order events come.
type Shipments struct{ store *store.Store }

// New returns the projection of a store.
func New(s *store.Store) *Shipments { return &Shipments{s} }

// row is a shipment, and which event each of its parts is from.
type row = courier.Projection

const columns = `shipment_id, order_id, current_state, last_event_id, last_event_type, last_event_at, last_event_key,
	state_at, state_key, order_at, order_key, metadata, created_at, updated_at, previous_state`

// beforeAll is older than every event that the intake accepts.
var beforeAll = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)

func scan(q interface{ Scan(dest ...any) error }) (*row, error) {
	var r row
	var last, state, order, created, updated sqlstore.Timestamp
	var meta string
	if err := q.Scan(&r.ShipmentID, &r.OrderID, &r.CurrentState, &r.LastEventID, &r.LastEventType, &last, &r.Last.Tie,
		&state, &r.State.Tie, &order, &r.Order.Tie, &meta, &created, &updated, &r.Previous); err != nil {
		return nil, err
	}
	r.Last.At, r.State.At, r.Order.At = last.Time, state.Time, order.Time
	r.LastEventAt, r.Metadata, r.CreatedAt, r.UpdatedAt = last.Time, json.RawMessage(meta), created.Time, updated.Time
	return &r, nil
}

// Get returns a shipment; sql.ErrNoRows if it is not known.
func (s *Shipments) Get(ctx context.Context, shipmentID string) (courier.Shipment, error) {
	r, err := scan(s.store.Read.QueryRowContext(ctx, `SELECT `+columns+` FROM active_shipments WHERE shipment_id = $1`, shipmentID))
	if err != nil {
		return courier.Shipment{}, err
	}
	return r.Shipment, nil
}
