package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
)

const (
	// selectSources goes from each source to the next one, by their index.
	selectSources = `
WITH RECURSIVE sources (source) AS (
	SELECT min(source) FROM courier_ledger
	UNION ALL
	SELECT (SELECT min(l.source) FROM courier_ledger l WHERE l.source > s.source) FROM sources s WHERE s.source IS NOT NULL)
SELECT source FROM sources WHERE source IS NOT NULL LIMIT $1`

	selectOtherKeys = `SELECT idempotency_key FROM courier_ledger WHERE idempotency_key <> source || ':' || event_id AND `
	selectAllKeys   = `SELECT idempotency_key FROM courier_ledger WHERE `

	selectEvents = `
SELECT l.event_id, l.source, l.idempotency_key, l.event_type, l.occurred_at, l.received_at, l.trace_id, l.shipment_id, l.status, l.outcome,
	l.attempt_count, l.last_error_code, l.last_error_message, l.first_seen_at, l.updated_at, l.envelope_id
FROM courier_ledger l WHERE l.event_id = $1 AND ($2 = '' OR l.source = $2) AND `
	inOrder = ` ORDER BY l.first_seen_at, l.source LIMIT $3`
)

// maxSources is of how many each one's key is looked for. If there are more, all of the ledger is read.
const maxSources = 10_000

// maxEvents bounds an answer: events of one id, one from each source.
const maxEvents = 100

// Events returns what became of the events that couriers call eventID, with the
// ids of their envelopes.
func (l *Ledger) Events(ctx context.Context, eventID, source string) (events []courier.EventStatus, envelopes []string, err error) {
	keys, err := KeysOfEvent(ctx, l.store, l.store.Read, eventID, source)
	if err != nil {
		return nil, nil, err
	}
	rows, err := l.store.Read.QueryContext(ctx, selectEvents+l.store.In("l.idempotency_key", "$4")+inOrder, eventID, source, maxEvents, l.store.List(keys))
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

// KeysOfEvent returns the idempotency keys of the events that couriers, or only one source, call eventID, and some that no such event
// has: no index has the ids of events whose key is as usual, SOURCE:ID.
func KeysOfEvent(ctx context.Context, s *store.Store, db querier, eventID, source string) ([]string, error) {
	sources, err := sourcesOf(ctx, db, source)
	if err != nil {
		return nil, err
	}
	return keysOfEvents(ctx, s, db, []string{eventID}, sources)
}

// sourcesOf returns the sources to look through: more than [maxSources] means that there are too many.
func sourcesOf(ctx context.Context, db querier, source string) (sources []string, err error) {
	if source != "" {
		return []string{source}, nil
	}
	return texts(ctx, db, selectSources, maxSources+1)
}

func keysOfEvents(ctx context.Context, s *store.Store, db querier, eventIDs, sources []string) ([]string, error) {
	among, list := s.In("event_id", "$1"), s.List(eventIDs)
	if len(sources) > maxSources {
		return texts(ctx, db, selectAllKeys+among, list)
	}
	keys, err := texts(ctx, db, selectOtherKeys+among, list)
	for _, id := range eventIDs {
		for _, source := range sources {
			keys = append(keys, source+":"+id)
		}
	}
	return keys, err
}

// Called is an envelope, and what a courier calls its event.
type Called struct {
	EnvelopeID string
	Name
}

// Envelopes returns the envelopes of the events that couriers, or only one
// source, call so: several, where couriers share an id, and none of what the ledger does
// not know.
func (l *Ledger) Envelopes(ctx context.Context, eventIDs []string, source string) (map[string][]Called, error) {
	sources, err := sourcesOf(ctx, l.store.Read, source)
	if err != nil {
		return nil, fmt.Errorf("look up sources in the ledger: %w", err)
	}
	envelopes := make(map[string][]Called, len(eventIDs))
	size := namesBatch
	if len(sources) <= maxSources {
		size = max(1, namesBatch/max(1, len(sources)))
	}
	for batch := range slices.Chunk(eventIDs, size) {
		if err := l.envelopes(ctx, batch, sources, source, envelopes); err != nil {
			return nil, fmt.Errorf("look up events in the ledger: %w", err)
		}
	}
	return envelopes, nil
}

func (l *Ledger) envelopes(ctx context.Context, eventIDs, sources []string, source string, into map[string][]Called) error {
	keys, err := keysOfEvents(ctx, l.store, l.store.Read, eventIDs, sources)
	if err != nil {
		return err
	}
	return l.called(ctx, keys, func(c Called) {
		if (source == "" || c.Source == source) && slices.Contains(eventIDs, c.EventID) {
			into[c.EventID] = append(into[c.EventID], c)
		}
	})
}

func texts(ctx context.Context, db querier, query string, args ...any) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}
