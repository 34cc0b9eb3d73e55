package shipments

import (
	"strings"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// The parts that an event may set: each has the version of the event that did.
const (
	newerLast  = `(excluded.last_event_at, excluded.last_event_key) > (s.last_event_at, s.last_event_key)`
	newerState = `(excluded.state_at IS NOT NULL AND (s.state_at IS NULL OR (excluded.state_at, excluded.state_key) > (s.state_at, s.state_key)))`
	newerOrder = `(excluded.order_at IS NOT NULL AND (s.order_at IS NULL OR (excluded.order_at, excluded.order_key) > (s.order_at, s.order_key)))`
)

// processed is a subquery for the event's row of the ledger, if it says so.
const processed = `SELECT 1 FROM courier_ledger WHERE idempotency_key = $11 AND envelope_id = $10 AND status = 'processed'`

// upsert does to a shipment's row what [courier.Projection.Apply] does in memory, and returns it if that has changed
// anything. A row of which the event has set the state has its version in state_at and state_key.
const upsert = `
INSERT INTO active_shipments AS s (shipment_id, last_event_id, last_event_type, last_event_at, last_event_key, current_state, state_at, state_key,
	order_id, order_at, order_key, metadata, created_at, updated_at)
SELECT $1, $2, $3, CAST($4 AS {timestamp}), $5, $6, CASE WHEN $6 <> '' THEN CAST($4 AS {timestamp}) END, CASE WHEN $6 <> '' THEN $5 ELSE '' END,
	$7, CASE WHEN $7 <> '' THEN CAST($4 AS {timestamp}) END, CASE WHEN $7 <> '' THEN $5 ELSE '' END, $8, CAST($9 AS {timestamp}), CAST($9 AS {timestamp})
WHERE NOT EXISTS (` + processed + `)
ON CONFLICT (shipment_id) DO UPDATE SET
	last_event_id = CASE WHEN ` + newerLast + ` THEN excluded.last_event_id ELSE s.last_event_id END,
	last_event_type = CASE WHEN ` + newerLast + ` THEN excluded.last_event_type ELSE s.last_event_type END,
	last_event_at = CASE WHEN ` + newerLast + ` THEN excluded.last_event_at ELSE s.last_event_at END,
	last_event_key = CASE WHEN ` + newerLast + ` THEN excluded.last_event_key ELSE s.last_event_key END,
	metadata = CASE WHEN ` + newerLast + ` THEN excluded.metadata ELSE s.metadata END,
	previous_state = CASE WHEN ` + newerState + ` THEN s.current_state ELSE s.previous_state END,
	current_state = CASE WHEN ` + newerState + ` THEN excluded.current_state ELSE s.current_state END,
	state_at = CASE WHEN ` + newerState + ` THEN excluded.state_at ELSE s.state_at END,
	state_key = CASE WHEN ` + newerState + ` THEN excluded.state_key ELSE s.state_key END,
	order_id = CASE WHEN ` + newerOrder + ` THEN excluded.order_id ELSE s.order_id END,
	order_at = CASE WHEN ` + newerOrder + ` THEN excluded.order_at ELSE s.order_at END,
	order_key = CASE WHEN ` + newerOrder + ` THEN excluded.order_key ELSE s.order_key END,
	updated_at = excluded.updated_at
WHERE ` + newerLast + ` OR ` + newerState + ` OR ` + newerOrder + `
RETURNING CASE WHEN $6 <> '' AND state_key = $5 AND state_at = CAST($4 AS {timestamp}) THEN previous_state ELSE current_state END AS previous, current_state, order_id`

func upsertFor(timestamp string) string { return strings.ReplaceAll(upsert, "{timestamp}", timestamp) }

// upsertArgs are the parameters of upsert.
func (s *Shipments) upsertArgs(a *courier.Arrival, now time.Time) []any {
	v := courier.VersionOf(a.Event)
	return []any{
		a.Payload.ShipmentID, a.Event.EventID, a.Event.EventType, s.store.Time(v.At), v.Tie, a.Payload.Status, a.Payload.OrderID,
		string(courier.Metadata(a.Event)), s.store.Time(now), a.EnvelopeID, a.Event.IdempotencyKey,
	}
}
