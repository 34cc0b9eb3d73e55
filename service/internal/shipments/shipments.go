// Package shipments keeps the projection: what is known of each shipment, by the
// couriers' own clocks.
package shipments

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Shipments is the projection's repository.
type Shipments struct{ store *store.Store }

// New returns the projection of a store.
func New(s *store.Store) *Shipments { return &Shipments{s} }

// version orders events: by event time, and those of one time by event id, then
// by idempotency key, since two couriers may use one event id.
type version struct {
	at  time.Time
	tie string
}

func versionOf(e courier.Event) version {
	// Stores keep microseconds: compare what will be stored. A control character
	// is in no event id, and sorts before all that is.
	return version{e.OccurredAt.UTC().Truncate(time.Microsecond), e.EventID + "\n" + e.IdempotencyKey}
}

func (v version) after(w version) bool {
	return cmp.Or(v.at.Compare(w.at), cmp.Compare(v.tie, w.tie)) > 0
}

// row is a shipment, and which event each of its parts is from.
type row struct {
	courier.Shipment
	previous           string // state
	last, state, order version
}

// apply changes the row in memory and reports whether anything changed.
func (r *row) apply(e courier.Event, p courier.Payload) (changed bool) {
	v := versionOf(e)
	if v.after(r.last) {
		r.last, changed = v, true
		r.LastEventID, r.LastEventType, r.LastEventAt, r.Metadata = e.EventID, e.EventType, v.at, metadata(e)
	}
	if p.Status != "" && v.after(r.state) {
		r.state, r.previous, r.CurrentState, changed = v, r.CurrentState, p.Status, true
	}
	if p.OrderID != "" && v.after(r.order) {
		r.order, r.OrderID, changed = v, p.OrderID, true
	}
	return changed
}

// metadata is what the payload says beside the fields that the projection has.
func metadata(e courier.Event) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(e.Payload, &fields) != nil {
		return json.RawMessage("{}")
	}
	for _, known := range []string{"shipmentId", "orderId", "status"} {
		delete(fields, known)
	}
	b, err := json.Marshal(fields)
	if err != nil || fields == nil {
		return json.RawMessage("{}")
	}
	return b
}

const columns = `shipment_id, order_id, current_state, last_event_id, last_event_type, last_event_at, last_event_key,
	state_at, state_key, order_at, order_key, metadata, created_at, updated_at, previous_state`

// beforeAll is older than every event that the intake accepts.
var beforeAll = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)

func scan(q interface{ Scan(dest ...any) error }) (*row, error) {
	var r row
	var last, state, order, created, updated sqlstore.Timestamp
	var meta string
	if err := q.Scan(&r.ShipmentID, &r.OrderID, &r.CurrentState, &r.LastEventID, &r.LastEventType, &last, &r.last.tie,
		&state, &r.state.tie, &order, &r.order.tie, &meta, &created, &updated, &r.previous); err != nil {
		return nil, err
	}
	r.last.at, r.state.at, r.order.at = last.Time, state.Time, order.Time
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
