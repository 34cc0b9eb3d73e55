// Package shipments keeps the projection: what is known of each shipment, by the
// couriers' own clocks.
package shipments

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
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
	last, state, order version
}

// Apply applies an event to its shipment, in tx, and records what it did. A
// part of the shipment changes only if the event is newer than the one that
// set it: so the outcome does not depend on the order of arrival.
func (s *Shipments) Apply(ctx context.Context, tx *sql.Tx, e courier.Event, p courier.Payload, now time.Time) (courier.Outcome, error) {
	r, err := s.lock(ctx, tx, p.ShipmentID, now)
	if err != nil {
		return "", fmt.Errorf("lock shipment %s: %w", p.ShipmentID, err)
	}
	outcome := courier.OutcomeLate
	if r.apply(e, p) {
		outcome = courier.OutcomeApplied
		if err := s.update(ctx, tx, r, now); err != nil {
			return "", fmt.Errorf("update shipment %s: %w", p.ShipmentID, err)
		}
	}
	const record = `INSERT INTO shipment_events (shipment_id, idempotency_key, event_id, outcome, occurred_at, processed_at) VALUES ($1, $2, $3, $4, $5, $6)`
	if _, err := tx.ExecContext(ctx, record, p.ShipmentID, e.IdempotencyKey, e.EventID, string(outcome), s.store.Time(e.OccurredAt), s.store.Time(now)); err != nil {
		return "", fmt.Errorf("record event %s: %w", e.EventID, err)
	}
	return outcome, nil
}

// apply changes the row in memory and reports whether anything changed.
func (r *row) apply(e courier.Event, p courier.Payload) (changed bool) {
	v := versionOf(e)
	if v.after(r.last) {
		r.last, changed = v, true
		r.LastEventID, r.LastEventType, r.LastEventAt, r.Metadata = e.EventID, e.EventType, v.at, metadata(e)
	}
	if p.Status != "" && v.after(r.state) {
		r.state, r.CurrentState, changed = v, p.Status, true
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

const create = `
INSERT INTO active_shipments (shipment_id, last_event_id, last_event_type, last_event_at, last_event_key, created_at, updated_at)
VALUES ($1, '', '', $2, '', $3, $3) ON CONFLICT (shipment_id) DO NOTHING`

const columns = `shipment_id, order_id, current_state, last_event_id, last_event_type, last_event_at, last_event_key,
	state_at, state_key, order_at, order_key, metadata, created_at, updated_at`

// lock returns the shipment's row, locked, made if there is none yet.
func (s *Shipments) lock(ctx context.Context, tx *sql.Tx, shipmentID string, now time.Time) (*row, error) {
	r, err := scan(tx.QueryRowContext(ctx, `SELECT `+columns+` FROM active_shipments WHERE shipment_id = $1`+s.store.ForUpdate(), shipmentID))
	if !errors.Is(err, sql.ErrNoRows) {
		return r, err
	}
	if _, err := tx.ExecContext(ctx, create, shipmentID, s.store.Time(beforeAll), s.store.Time(now)); err != nil {
		return nil, err
	}
	return scan(tx.QueryRowContext(ctx, `SELECT `+columns+` FROM active_shipments WHERE shipment_id = $1`+s.store.ForUpdate(), shipmentID))
}

// beforeAll is older than every event that the intake accepts.
var beforeAll = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)

func scan(q *sql.Row) (*row, error) {
	var r row
	var last, state, order, created, updated sqlstore.Timestamp
	var meta string
	if err := q.Scan(&r.ShipmentID, &r.OrderID, &r.CurrentState, &r.LastEventID, &r.LastEventType, &last, &r.last.tie,
		&state, &r.state.tie, &order, &r.order.tie, &meta, &created, &updated); err != nil {
		return nil, err
	}
	r.last.at, r.state.at, r.order.at = last.Time, state.Time, order.Time
	r.LastEventAt, r.Metadata, r.CreatedAt, r.UpdatedAt = last.Time, json.RawMessage(meta), created.Time, updated.Time
	return &r, nil
}

const update = `
UPDATE active_shipments SET order_id = $2, current_state = $3, last_event_id = $4, last_event_type = $5, last_event_at = $6, last_event_key = $7,
	state_at = $8, state_key = $9, order_at = $10, order_key = $11, metadata = $12, updated_at = $13
WHERE shipment_id = $1`

func (s *Shipments) update(ctx context.Context, tx *sql.Tx, r *row, now time.Time) error {
	_, err := tx.ExecContext(ctx, update, r.ShipmentID, r.OrderID, r.CurrentState, r.LastEventID, r.LastEventType, s.store.Time(r.last.at), r.last.tie,
		s.store.Time(r.state.at), r.state.tie, s.store.Time(r.order.at), r.order.tie, string(r.Metadata), s.store.Time(now))
	return err
}

// Get returns a shipment; [sql.ErrNoRows] if it is not known.
func (s *Shipments) Get(ctx context.Context, shipmentID string) (courier.Shipment, error) {
	r, err := scan(s.store.Read.QueryRowContext(ctx, `SELECT `+columns+` FROM active_shipments WHERE shipment_id = $1`, shipmentID))
	if err != nil {
		return courier.Shipment{}, err
	}
	return r.Shipment, nil
}
