package eventing

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// setHeader writes what is not empty of a header into a message's metadata.
func setHeader(m message.Metadata, h Header) {
	for _, f := range headerFields(&h) {
		if *f.value != "" {
			m.Set(f.name, *f.value)
		}
	}
	m.Set("occurred_at", h.OccurredAt.UTC().Format(time.RFC3339Nano))
	m.Set("schema_version", strconv.Itoa(h.SchemaVersion))
}

// getHeader undoes setHeader.
func getHeader(m message.Metadata, h *Header) error {
	for _, f := range headerFields(h) {
		*f.value = m.Get(f.name)
	}
	var err error
	if h.OccurredAt, err = time.Parse(time.RFC3339Nano, m.Get("occurred_at")); err != nil {
		return &InvalidEventError{EventID: h.ID, Field: "occurred_at", Problem: "of the metadata is not RFC 3339"}
	}
	h.OccurredAt = h.OccurredAt.UTC()
	if v := m.Get("schema_version"); v != "" {
		if h.SchemaVersion, err = strconv.Atoi(v); err != nil {
			return &InvalidEventError{EventID: h.ID, Field: "schema_version", Problem: "of the metadata is not a number"}
		}
	}
	return nil
}

// replayOf reads what the library's own metadata says about a message. It came over
// the broker like the rest, and is trusted no more.
func replayOf(m message.Metadata) (generation int, outboxID string, err error) {
	if v := m.Get(MetadataGeneration); v != "" {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 0 {
			return 0, "", &InvalidEventError{Field: MetadataGeneration, Problem: "of the metadata is not a number from 0 to 2147483647"}
		}
		generation = int(n)
	}
	outboxID = m.Get(MetadataOutboxID)
	if !isOutboxID(outboxID) {
		return 0, "", &InvalidEventError{Field: MetadataOutboxID, Problem: fmt.Sprintf("of the metadata is not a text of at most %d bytes", maxKeyBytes)}
	}
	return generation, outboxID, nil
}

// isOutboxID reports whether an outbox row's ID can travel with its message.
func isOutboxID(id string) bool {
	return len(id) <= maxKeyBytes && utf8.ValidString(id) && !strings.ContainsRune(id, 0)
}

type headerField struct {
	name  string
	value *string
}

func headerFields(h *Header) []headerField {
	return []headerField{
		{"event_id", &h.ID}, {"event_type", &h.Type},
		{"correlation_id", &h.CorrelationID}, {"causation_id", &h.CausationID},
		{"tenant_id", &h.TenantID}, {"station_id", &h.StationID},
		{"aggregate_type", &h.AggregateType}, {"aggregate_id", &h.AggregateID},
		{"ordering_key", &h.OrderingKey}, {"idempotency_key", &h.IdempotencyKey},
		{"traceparent", &h.TraceParent}, {"tracestate", &h.TraceState},
	}
}
