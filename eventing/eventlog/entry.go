package eventlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

// Entry is an event as the log has it. Its header is the event's own, with its original IDs.
type Entry struct {
	eventing.Header
	// Payload is the JSON value that the event had. On SQLite it is the same text. Postgres keeps neither white space,
	// the order of keys, nor how a number was written; of equal keys the last.
	Payload json.RawMessage
	// Metadata is what [Log.Record] was given. Numbers are of type [json.Number]. Nil if there was none.
	Metadata map[string]any
	// RowID is the id of the row, a UUID.
	RowID string
	// ProcessedAt is when the log recorded the event, by its clock.
	ProcessedAt time.Time
	// RetryCount is how many attempts to record it had failed before.
	RetryCount int
	// Status is "processed", unless somebody else has written the row.
	Status string
	// RoutingVersion is that of the routing table which sent the event to the log; may be empty.
	RoutingVersion string
}

// Envelope returns the event as it was recorded: what [eventing.EncodeEnvelope] says of it is the
// same, apart from how its payload is written (see Entry).
func (e Entry) Envelope() eventing.Envelope {
	return eventing.Envelope{Header: e.Header, Payload: e.Payload}
}

const entryColumns = `CAST(e.id AS text), e.event_type, CAST(e.event_id AS text), e.aggregate_type, CAST(e.aggregate_id AS text),
	CAST(e.payload AS text), CAST(e.metadata AS text), e.created_at, e.processed_at, e.retry_count, e.status`

// cursor is where an entry is in the order of the log: as the columns say, to the letter.
type cursor struct {
	createdAt any
	eventID   string
}

func scan(row interface{ Scan(dest ...any) error }) (e Entry, at cursor, size int, err error) {
	var payload string
	var metadata, status *string
	var retries *int
	var occurred, processed sqlstore.Timestamp
	if err = row.Scan(&e.RowID, &e.Type, &at.eventID, &e.AggregateType, &e.AggregateID, &payload, &metadata, &at.createdAt, &processed, &retries, &status); err != nil {
		return e, at, 0, err
	}
	if err = occurred.Scan(at.createdAt); err != nil {
		return e, at, 0, err
	}
	e.ID, e.OccurredAt, e.Payload, e.ProcessedAt = at.eventID, occurred.Time, json.RawMessage(payload), processed.Time
	if retries != nil {
		e.RetryCount = *retries
	}
	if status != nil {
		e.Status = *status
	}
	if metadata != nil {
		size = len(*metadata)
		if err = e.describe(*metadata); err != nil {
			return e, at, size, fmt.Errorf("event %s: %w", at.eventID, err)
		}
	}
	e.SchemaVersion = max(e.SchemaVersion, 1)
	return e, at, size + len(payload), nil
}

// describe takes the header's part out of the column metadata, and leaves the caller's.
func (e *Entry) describe(doc string) error {
	meta := map[string]any{}
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	if err := dec.Decode(&meta); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	take := func(key, otherwise string) string {
		value, found := meta[key]
		delete(meta, key)
		switch value := value.(type) {
		case string:
			return value
		case json.Number:
			return value.String()
		}
		if found {
			meta[key] = value // somebody else's
		}
		return otherwise
	}
	e.ID, e.AggregateID = take(keyEventID, e.ID), take(keyAggregateID, e.AggregateID)
	e.CorrelationID, e.CausationID = take(keyCorrelationID, ""), take(keyCausationID, "")
	e.TenantID, e.StationID = take(keyTenantID, ""), take(keyStationID, "")
	e.OrderingKey, e.IdempotencyKey = take(keyOrderingKey, ""), take(keyIdempotencyKey, "")
	e.TraceParent, e.TraceState = take(keyTraceParent, ""), take(keyTraceState, "")
	e.RoutingVersion = take(keyRoutingVersion, "")
	e.SchemaVersion, _ = strconv.Atoi(cmp.Or(take(keySchemaVersion, ""), "1"))
	if t, err := time.Parse(time.RFC3339Nano, take(keyOccurredAt, "")); err == nil {
		e.OccurredAt = t.UTC()
	}
	if take(keyPayloadEncoding, "") == encodingText {
		var text string
		if err := json.Unmarshal(e.Payload, &text); err != nil {
			return fmt.Errorf("payload: its encoding is %q, but it is no string: %w", encodingText, err)
		}
		e.Payload = json.RawMessage(text)
	}
	if len(meta) > 0 {
		e.Metadata = meta
	}
	return nil
}
