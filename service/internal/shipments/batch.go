package shipments

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// lockAll makes the rows that are missing and locks the others, in the order of their ids, so
// that batches do not wait for each other in a circle; and returns which events the ledger has as processed.
var lockAll = ofAnyLength(`
WITH locked AS (
	INSERT INTO active_shipments AS s (shipment_id, last_event_id, last_event_type, last_event_at, last_event_key, created_at, updated_at)
	SELECT id, '', '', CAST($2 AS timestamptz), '', CAST($3 AS timestamptz), CAST($3 AS timestamptz) FROM unnest(CAST($1 AS text[])) AS id
	ON CONFLICT (shipment_id) DO UPDATE SET updated_at = s.updated_at WHERE false)
SELECT a.envelope_id FROM unnest(CAST($4 AS text[]), CAST($5 AS text[])) AS a(key, envelope_id)
WHERE (SELECT status FROM courier_ledger l WHERE l.idempotency_key = a.key AND l.envelope_id = a.envelope_id) = 'processed'`)

// After lockAll, in a statement of its own: only that sees what others have committed meanwhile.
var selectAll = ofAnyLength(`SELECT ` + columns + ` FROM active_shipments WHERE shipment_id = ANY(CAST(CAST($1 AS text[]) AS text[]))`)

var writeAll = ofAnyLength(`
WITH updated AS (
	UPDATE active_shipments s SET order_id = u.order_id, current_state = u.current_state, last_event_id = u.last_event_id,
		last_event_type = u.last_event_type, last_event_at = u.last_event_at, last_event_key = u.last_event_key, state_at = u.state_at, state_key = u.state_key,
		order_at = u.order_at, order_key = u.order_key, metadata = u.metadata, previous_state = u.previous_state, updated_at = $1
	FROM unnest(CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS text[]), CAST($6 AS text[]), CAST($7 AS timestamptz[]), CAST($8 AS text[]),
		CAST($9 AS timestamptz[]), CAST($10 AS text[]), CAST($11 AS timestamptz[]), CAST($12 AS text[]), CAST($13 AS text[]), CAST($14 AS text[]))
		AS u(shipment_id, order_id, current_state, last_event_id, last_event_type, last_event_at, last_event_key, state_at, state_key, order_at, order_key, metadata, previous_state)
	WHERE s.shipment_id = u.shipment_id AND s.shipment_id = ANY(CAST(CAST($2 AS text[]) AS text[]))),
recorded AS (
	INSERT INTO shipment_events (shipment_id, idempotency_key, event_id, outcome, occurred_at, processed_at)
	SELECT r.*, CAST($1 AS timestamptz) FROM unnest(CAST($15 AS text[]), CAST($16 AS text[]), CAST($17 AS text[]), CAST($18 AS text[]), CAST($19 AS timestamptz[])) AS r)
UPDATE courier_ledger l SET status = 'processed', outcome = c.outcome, attempt_count = c.attempt, updated_at = $1, expires_at = $20
FROM unnest(CAST($16 AS text[]), CAST($21 AS text[]), CAST($18 AS text[]), CAST($22 AS integer[])) AS c(key, envelope_id, outcome, attempt)
WHERE l.idempotency_key = c.key AND l.envelope_id = c.envelope_id AND l.status <> 'processed' AND l.idempotency_key = ANY(CAST(CAST($16 AS text[]) AS text[]))`)

// ofAnyLength hides from the server how long a statement's lists are: for each short one it would plan the statement anew,
// which takes longer than to run it. In ANY(…) it takes a cast of its own around that, to stay a list.
func ofAnyLength(statement string) string {
	return regexp.MustCompile(`CAST\(\$\d+ AS \w+\[\]\)`).ReplaceAllString(statement, "(SELECT $0)")
}

// processBatch applies the events in memory, and writes each shipment once.
func (s *Shipments) processBatch(ctx context.Context, tx pgx.Tx, arrivals []courier.Arrival, now, until time.Time) ([]courier.Effect, error) {
	rows, known, err := s.lock(ctx, tx, arrivals, now)
	if err != nil {
		return nil, fmt.Errorf("lock the shipments: %w", err)
	}
	changed := map[string]*row{}
	effects := make([]courier.Effect, len(arrivals))
	var r recorded
	for i := range arrivals {
		a := &arrivals[i]
		if known[a.EnvelopeID] {
			continue
		}
		shipment := rows[a.Payload.ShipmentID]
		effects[i] = shipment.Process(a)
		if effects[i].Outcome == courier.OutcomeApplied {
			changed[a.Payload.ShipmentID] = shipment
		}
		r.add(a, effects[i].Outcome)
	}
	if len(r.envelopes) == 0 {
		return effects, nil
	}
	var u updated
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		u.add(changed[id])
	}
	if _, err := tx.Exec(ctx, writeAll, now.UTC(),
		u.ids, u.orders, u.states, u.eventIDs, u.eventTypes, u.lasts, u.lastKeys, u.stateAts, u.stateKeys, u.orderAts, u.orderKeys, u.metadata, u.previous,
		r.shipments, r.keys, r.eventIDs, r.outcomes, r.occurred, until.UTC(), r.envelopes, r.attempts); err != nil {
		return nil, fmt.Errorf("write the shipments: %w", err)
	}
	return effects, nil
}

// lock returns the shipments' rows, locked, and which events are processed.
func (s *Shipments) lock(ctx context.Context, tx pgx.Tx, arrivals []courier.Arrival, now time.Time) (rows map[string]*row, known map[string]bool, err error) {
	ids, keys, envelopes := make([]string, len(arrivals)), make([]string, len(arrivals)), make([]string, len(arrivals))
	for i := range arrivals {
		ids[i], keys[i], envelopes[i] = arrivals[i].Payload.ShipmentID, arrivals[i].Event.IdempotencyKey, arrivals[i].EnvelopeID
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	known, rows = map[string]bool{}, make(map[string]*row, len(ids))
	if err := each(ctx, tx, func(found pgx.Rows) error {
		var id string
		err := found.Scan(&id)
		known[id] = true
		return err
	}, lockAll, ids, beforeAll, now.UTC(), keys, envelopes); err != nil {
		return nil, nil, err
	}
	err = each(ctx, tx, func(found pgx.Rows) error {
		r, err := scan(found)
		if err == nil {
			rows[r.ShipmentID] = r
		}
		return err
	}, selectAll, ids)
	return rows, known, err
}

func each(ctx context.Context, tx pgx.Tx, scan func(pgx.Rows) error, query string, args ...any) error {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// updated are the columns of rows.
type updated struct {
	ids, orders, states, eventIDs, eventTypes, lastKeys, stateKeys, orderKeys, metadata, previous []string
	lasts, stateAts, orderAts                                                                     []*time.Time
}

func (u *updated) add(r *row) {
	u.ids, u.orders, u.states = append(u.ids, r.ShipmentID), append(u.orders, r.OrderID), append(u.states, r.CurrentState)
	u.eventIDs, u.eventTypes = append(u.eventIDs, r.LastEventID), append(u.eventTypes, r.LastEventType)
	u.lasts, u.lastKeys = append(u.lasts, nullable(r.Last.At)), append(u.lastKeys, r.Last.Tie)
	u.stateAts, u.stateKeys = append(u.stateAts, nullable(r.State.At)), append(u.stateKeys, r.State.Tie)
	u.orderAts, u.orderKeys = append(u.orderAts, nullable(r.Order.At)), append(u.orderKeys, r.Order.Tie)
	u.metadata, u.previous = append(u.metadata, string(r.Metadata)), append(u.previous, r.Previous)
}

// nullable makes the zero time NULL.
func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// recorded are the columns of what events did.
type recorded struct {
	shipments, keys, eventIDs, outcomes, envelopes []string
	occurred                                       []time.Time
	attempts                                       []int32
}

func (r *recorded) add(a *courier.Arrival, outcome courier.Outcome) {
	r.shipments, r.keys, r.eventIDs = append(r.shipments, a.Payload.ShipmentID), append(r.keys, a.Event.IdempotencyKey), append(r.eventIDs, a.Event.EventID)
	r.outcomes, r.occurred = append(r.outcomes, string(outcome)), append(r.occurred, courier.VersionOf(a.Event).At)
	r.envelopes, r.attempts = append(r.envelopes, a.EnvelopeID), append(r.attempts, int32(a.Attempt)) //nolint:gosec // it is small
}
