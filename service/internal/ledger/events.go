package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
)

// An event's idempotency key is usual if it is SOURCE:ID. Only others are in an index of ids.
const (
	usualKey = `idempotency_key = source || ':' || event_id`
	otherKey = `idempotency_key <> source || ':' || event_id`
)

// selectSources goes from each source to the next one, by their index.
const selectSources = `
WITH RECURSIVE sources (source) AS (
	SELECT min({source}) FROM courier_ledger
	UNION ALL
	SELECT (SELECT min({source}) FROM courier_ledger WHERE {source} > s.source) FROM sources s WHERE s.source IS NOT NULL)
SELECT source FROM sources WHERE source IS NOT NULL LIMIT $1`

// maxSources is of how many each one's key is looked for. If there are more, all of the ledger is read.
const maxSources = 10_000

// maxEvents bounds an answer: events of one id, one from each source.
const maxEvents = 100

// Events returns what became of the events that couriers call eventID, with the
// ids of their envelopes.
func (l *Ledger) Events(ctx context.Context, eventID, source string) (events []courier.EventStatus, envelopes []string, err error) {
	rows, err := l.selectEvents(ctx, eventID, source)
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

func (l *Ledger) selectEvents(ctx context.Context, eventID, source string) (*sql.Rows, error) {
	sources, err := Sources(ctx, l.store, l.store.Read, source)
	if err != nil {
		return nil, err
	}
	ids := []string{eventID}
	return l.store.Read.QueryContext(ctx, `
SELECT event_id, source, idempotency_key, event_type, occurred_at, received_at, trace_id, shipment_id, status, outcome,
	attempt_count, last_error_code, last_error_message, first_seen_at, updated_at, envelope_id
FROM (`+sources.Select(l.store, "$1", "$2")+`) l WHERE $3 = '' OR source = $3 ORDER BY first_seen_at, source LIMIT $4`,
		l.store.List(ids), l.store.List(sources.Keys(ids)), source, maxEvents)
}

// SourceList are the sources of events, of which each may have events of an id. More than [maxSources] are too many.
type SourceList []string

// Sources returns all sources that the ledger has, or the given one.
func Sources(ctx context.Context, s *store.Store, db querier, source string) (SourceList, error) {
	if source != "" {
		return SourceList{source}, nil
	}
	rows, err := db.QueryContext(ctx, sourcesQuery(s), maxSources+1)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list SourceList
	for rows.Next() {
		var source string
		if err := rows.Scan(&source); err != nil {
			return nil, err
		}
		list = append(list, source)
	}
	return list, rows.Err()
}

func sourcesQuery(s *store.Store) string {
	if s.Embedded {
		return strings.ReplaceAll(selectSources, "{source}", "source")
	}
	return strings.ReplaceAll(selectSources, "{source}", `source COLLATE "C"`)
}

// Select is the SELECT of the ledger's rows of events whose ids are in the list of a parameter, with Keys in that of another.
func (l SourceList) Select(s *store.Store, ids, keys string) string {
	named := `SELECT * FROM courier_ledger WHERE ` + s.In("event_id", ids) + ` AND `
	if len(l) > maxSources {
		return named + `(true OR ` + s.In("idempotency_key", keys) + `)` // all of the ledger is read, and no keys
	}
	return named + usualKey + ` AND ` + s.In("idempotency_key", keys) + ` UNION ALL ` + named + otherKey
}

// Keys are the usual keys of events of the given ids.
func (l SourceList) Keys(eventIDs []string) (keys []string) {
	if len(l) > maxSources {
		return nil
	}
	for _, id := range eventIDs {
		for _, source := range l {
			keys = append(keys, source+":"+id)
		}
	}
	return keys
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
	sources, err := Sources(ctx, l.store, l.store.Read, source)
	if err != nil {
		return nil, fmt.Errorf("look up sources in the ledger: %w", err)
	}
	ids := slices.Compact(slices.Sorted(slices.Values(eventIDs)))
	envelopes := make(map[string][]Called, len(ids))
	batch := namesBatch
	if len(sources) <= maxSources { // as many keys
		batch = max(1, namesBatch/max(1, len(sources)))
	}
	for ids := range slices.Chunk(ids, batch) {
		query := selectNames + `(` + sources.Select(l.store, "$1", "$2") + `) l WHERE $3 = '' OR source = $3`
		if err := l.called(ctx, func(c Called) {
			envelopes[c.EventID] = append(envelopes[c.EventID], c)
		}, query, l.store.List(ids), l.store.List(sources.Keys(ids)), source); err != nil {
			return nil, fmt.Errorf("look up events in the ledger: %w", err)
		}
	}
	return envelopes, nil
}
