package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// ReasonNotLoggable is the reason code of an event that the log cannot take, as it is or with the
// metadata that it was given.
const ReasonNotLoggable eventing.ReasonCode = "NOT_LOGGABLE"

// What the log itself writes into metadata.
const (
	keyEventID         = "event_id"     // the original, if it is not the UUID of the column
	keyAggregateID     = "aggregate_id" // likewise; "": the event has no aggregate
	keyOccurredAt      = "occurred_at"  // if it is finer than the column
	keyCorrelationID   = "correlation_id"
	keyCausationID     = "causation_id"
	keyTenantID        = "tenant_id"
	keyStationID       = "station_id"
	keySchemaVersion   = "schema_version"
	keyOrderingKey     = "ordering_key"
	keyIdempotencyKey  = "idempotency_key"
	keyTraceParent     = "traceparent"
	keyTraceState      = "tracestate"
	keyRoutingVersion  = "routing_version"
	keyPayloadEncoding = "payload_encoding" // "text": the payload is a JSON string of the JSON text
)

const encodingText = "text"

var reserved = []string{
	keyEventID, keyAggregateID, keyOccurredAt, keyCorrelationID, keyCausationID, keyTenantID, keyStationID, keySchemaVersion,
	keyOrderingKey, keyIdempotencyKey, keyTraceParent, keyTraceState, keyRoutingVersion, keyPayloadEncoding,
}

// Record appends an event to the log, in the caller's transaction. The same event again,
// by its ID, changes nothing: the log keeps the first.
//
// An event whose ID is the UUID that the log has made of another's (see [UUID]), or the other way round, is refused while
// that other one is in the log.
//
// metadata, which may be nil, is kept with the event, as JSON. Its keys must not be among those that the
// log writes itself: event_id, aggregate_id, occurred_at, correlation_id, causation_id,
// tenant_id, station_id, schema_version, ordering_key, idempotency_key, traceparent, tracestate, routing_version, payload_encoding.
//
// In a context of an attempt (see [eventing.AttemptFromContext]), the attempts that failed before
// and the version of the routing table are kept, too.
//
// An event that is no complete envelope or is refused, or metadata that is, is a permanent error of
// [ReasonNotLoggable], which changes nothing. Other errors are the database's.
func (l *Log) Record(ctx context.Context, tx Execer, e eventing.Envelope, metadata map[string]any) error {
	row, err := l.row(ctx, e, metadata)
	if err != nil {
		return eventing.PermanentWithReason(ReasonNotLoggable, fmt.Errorf("event log: %w", err))
	}
	for range 2 { // what is in its place may be pruned before it is looked at
		done, err := l.insert(ctx, tx, row, e.ID)
		if err != nil {
			return fmt.Errorf("event log: record %s: %w", e.ID, err)
		}
		if done {
			return nil
		}
	}
	return eventing.PermanentWithReason(ReasonNotLoggable,
		fmt.Errorf("event log: %s: the log has another event under the UUID %s: append it under another ID", e.ID, UUID(e.ID)))
}

// insert inserts a row. done is false if there is none of the event, then or before.
func (l *Log) insert(ctx context.Context, tx Execer, row *statement, id string) (done bool, err error) {
	result, err := tx.ExecContext(ctx, row.text(), row.args...)
	if err != nil {
		return false, err
	}
	inserted, err := result.RowsAffected()
	if err != nil || inserted > 0 || !mayBeDerived(UUID(id)) {
		return err == nil, err
	}
	same := &statement{d: l.d}
	same.write("SELECT 1 FROM events WHERE event_id = ", same.uuid(UUID(id)),
		" AND coalesce(metadata ->> '"+keyEventID+"', CAST(event_id AS text)) = ", same.arg(id))
	return l.d.finds(ctx, tx, same)
}

// row is the statement that inserts an event.
func (l *Log) row(ctx context.Context, e eventing.Envelope, metadata map[string]any) (*statement, error) {
	e.OccurredAt = e.OccurredAt.UTC()
	if _, err := eventing.EncodeEnvelope(e); err != nil {
		return nil, err
	}
	attempt, _ := eventing.AttemptFromContext(ctx)
	payload, encoding := string(e.Payload), ""
	if !l.d.storable(e.Payload) {
		text, err := json.Marshal(payload)
		if err != nil {
			return nil, err
		}
		payload, encoding = string(text), encodingText
	}
	meta, err := l.metadata(e, attempt.RoutingVersion, encoding, metadata)
	if err != nil {
		return nil, err
	}
	eventID, aggregateID := UUID(e.ID), UUID(e.AggregateID)
	if e.AggregateID == "" {
		aggregateID = eventID // so that events of no aggregate do not look like events of one
	}
	s := &statement{d: l.d}
	s.write(`INSERT INTO events (id, event_type, event_id, aggregate_type, aggregate_id, payload, metadata, created_at, processed_at, retry_count, status) VALUES (`,
		s.uuid(eventing.NewID()), ", ", s.arg(e.Type), ", ", s.uuid(eventID), ", ", s.arg(e.AggregateType), ", ", s.uuid(aggregateID), ", ",
		s.jsonb(payload), ", ", s.jsonb(meta), ", ", s.time(e.OccurredAt), ", ", s.time(l.now()), ", ", s.arg(max(attempt.Number-1, 0)),
		`, 'processed') ON CONFLICT (event_id) DO NOTHING`)
	return s, nil
}

// metadata returns what the envelope says beside the columns, and what the caller says.
func (l *Log) metadata(e eventing.Envelope, routingVersion, encoding string, given map[string]any) (string, error) {
	meta := map[string]any{keySchemaVersion: e.SchemaVersion}
	for key, value := range map[string]string{
		keyCorrelationID: e.CorrelationID, keyCausationID: e.CausationID, keyTenantID: e.TenantID, keyStationID: e.StationID,
		keyOrderingKey: e.OrderingKey, keyIdempotencyKey: e.IdempotencyKey, keyTraceParent: e.TraceParent, keyTraceState: e.TraceState,
		keyRoutingVersion: routingVersion, keyPayloadEncoding: encoding,
	} {
		if value != "" {
			meta[key] = value
		}
	}
	if UUID(e.ID) != e.ID {
		meta[keyEventID] = e.ID
	}
	if UUID(e.AggregateID) != e.AggregateID {
		meta[keyAggregateID] = e.AggregateID
	}
	if !e.OccurredAt.Equal(e.OccurredAt.Truncate(time.Microsecond)) {
		meta[keyOccurredAt] = e.OccurredAt.Format(time.RFC3339Nano)
	}
	for key, value := range given {
		if slices.Contains(reserved, key) {
			return "", fmt.Errorf("metadata of %s: the log writes the key %q itself: use another", e.ID, key)
		}
		meta[key] = value
	}
	doc, err := json.Marshal(meta)
	switch {
	case err != nil:
		return "", fmt.Errorf("metadata of %s: %w", e.ID, err)
	case len(doc) > eventing.MaxEnvelopeBytes:
		return "", fmt.Errorf("metadata of %s: it has %d bytes, more than %d", e.ID, len(doc), eventing.MaxEnvelopeBytes)
	case !l.d.storable(doc):
		return "", errors.New("metadata of " + e.ID + ": JSONB cannot hold it: leave out NUL characters and numbers of more than 16,000 digits")
	}
	return string(doc), nil
}

// statement collects the text of an SQL statement and its arguments.
type statement struct {
	d    dialect
	b    strings.Builder
	args []any
}

func (s *statement) write(parts ...string) {
	for _, p := range parts {
		s.b.WriteString(p)
	}
}

func (s *statement) text() string { return s.b.String() }

// arg adds an argument, and returns how the text refers to it.
func (s *statement) arg(value any) string {
	s.args = append(s.args, value)
	return fmt.Sprintf("$%d", len(s.args))
}

func (s *statement) uuid(value string) string { return s.d.cast(s.arg(value), "uuid") }
func (s *statement) jsonb(doc string) string  { return s.d.cast(s.arg(doc), "jsonb") }
func (s *statement) time(value time.Time) string {
	return s.d.cast(s.arg(s.d.time(value)), "timestamptz")
}

// list returns the arguments in parentheses, to follow IN.
func (s *statement) list(values []string) string {
	refs := make([]string, len(values))
	for i, v := range values {
		refs[i] = s.arg(v)
	}
	return "(" + strings.Join(refs, ", ") + ")"
}
