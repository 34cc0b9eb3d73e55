// Package ledger keeps what became of each accepted event, one row for each
// idempotency key.
package ledger

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Ledger writes the rows, always in somebody's transaction.
type Ledger struct {
	store *store.Store
	// retention of rows in a final state.
	retention time.Duration
	round     round
}

// New returns the ledger of a store, which keeps rows for the given time after
// their final state.
func New(s *store.Store, retention time.Duration) *Ledger {
	return &Ledger{store: s, retention: retention}
}

const selectEvents = `
SELECT l.event_id, l.source, l.idempotency_key, l.event_type, l.occurred_at, l.received_at, l.trace_id, l.shipment_id, l.status, l.outcome,
	l.attempt_count, l.last_error_code, l.last_error_message, l.first_seen_at, l.updated_at, l.envelope_id
FROM courier_ledger l WHERE l.event_id = $1 AND ($2 = '' OR l.source = $2) ORDER BY l.first_seen_at, l.source LIMIT $3`

// maxEvents bounds an answer: events of one id, one from each source.
const maxEvents = 100

// Events returns what became of the events that couriers call eventID, with the
// ids of their envelopes.
func (l *Ledger) Events(ctx context.Context, eventID, source string) (events []courier.EventStatus, envelopes []string, err error) {
	rows, err := l.store.Read.QueryContext(ctx, selectEvents, eventID, source, maxEvents)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e courier.EventStatus
		var envelope string
		var occurred, received, first, updated sqlstore.Timestamp
		if err := rows.Scan(&e.EventID, &e.Source, &e.IdempotencyKey, &e.EventType, &occurred, &received, &e.TraceID, &e.ShipmentID, &e.Status,
			&e.Outcome, &e.AttemptCount, &e.LastErrorCode, &e.LastErrorMessage, &first, &updated, &envelope); err != nil {
			return nil, nil, err
		}
		e.OccurredAt, e.ReceivedAt, e.FirstSeenAt, e.UpdatedAt = occurred.Time, received.Time, first.Time, updated.Time
		events, envelopes = append(events, e), append(envelopes, envelope)
	}
	return events, envelopes, rows.Err()
}
