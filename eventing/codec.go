package eventing

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of an envelope. They keep one event from exhausting a store, a broker
// or a consumer.
const (
	// MaxEnvelopeBytes is the size of the largest envelope, encoded.
	MaxEnvelopeBytes = 4 << 20
	maxNameBytes     = 255
	maxKeyBytes      = 1024
)

// wireEnvelope is the envelope as JSON: snake_case, the mandatory fields first.
type wireEnvelope struct {
	EventID        string          `json:"event_id"`
	EventType      string          `json:"event_type"`
	OccurredAt     time.Time       `json:"occurred_at"`
	CorrelationID  string          `json:"correlation_id"`
	TenantID       string          `json:"tenant_id"`
	StationID      string          `json:"station_id"`
	SchemaVersion  int             `json:"schema_version"`
	CausationID    string          `json:"causation_id,omitempty"`
	AggregateType  string          `json:"aggregate_type,omitempty"`
	AggregateID    string          `json:"aggregate_id,omitempty"`
	OrderingKey    string          `json:"ordering_key,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	TraceParent    string          `json:"traceparent,omitempty"`
	TraceState     string          `json:"tracestate,omitempty"`
	Payload        json.RawMessage `json:"payload"`
}

// EncodeEnvelope returns the envelope as one JSON object. It fails on an
// envelope that [DecodeEnvelope] would refuse.
func EncodeEnvelope(e Envelope) ([]byte, error) {
	if err := checkEnvelope(e); err != nil {
		return nil, err
	}
	return encode(e)
}

func checkSize(e Envelope, n int) error {
	if n > MaxEnvelopeBytes {
		return &InvalidEventError{EventID: e.ID, Field: "payload", Problem: fmt.Sprintf(
			"the envelope has %d bytes, more than %d; store the large part elsewhere and send its address", n, MaxEnvelopeBytes)}
	}
	return nil
}

// encodeDecoded is EncodeEnvelope for what DecodeEnvelope has returned, whose payload is JSON
// and need not be looked at again.
func encodeDecoded(e Envelope) ([]byte, error) {
	payload := e.Payload
	e.Payload = nil
	b, err := encode(e)
	if err != nil {
		return nil, err
	}
	b = append(append(bytes.TrimSuffix(b, []byte("null}")), payload...), '}') // its field is the last
	return b, checkSize(e, len(b))
}

// DecodeEnvelope reads one encoded envelope. The error is an
// [*InvalidEventError]; it never depends on anything but the bytes.
func DecodeEnvelope(b []byte) (Envelope, error) {
	return decodeEnvelope(b, Header{})
}

// decodeEnvelope takes from defaults what the bytes leave out.
func decodeEnvelope(b []byte, defaults Header) (Envelope, error) {
	invalid := func(field, problem string) (Envelope, error) {
		return Envelope{}, &InvalidEventError{EventID: defaults.ID, Field: field, Problem: problem}
	}
	if len(b) > MaxEnvelopeBytes {
		return invalid("", fmt.Sprintf("%d bytes, more than %d", len(b), MaxEnvelopeBytes))
	}
	if !utf8.Valid(b) {
		return invalid("", "not valid UTF-8")
	}
	var w wireEnvelope
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&w); err != nil {
		return invalid("", "not an envelope: "+err.Error())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return invalid("", "not an envelope: something follows its end")
	}
	e := Envelope{Header: Header{
		ID: w.EventID, Type: w.EventType, OccurredAt: w.OccurredAt.UTC(), CorrelationID: w.CorrelationID, CausationID: w.CausationID,
		TenantID: w.TenantID, StationID: w.StationID, SchemaVersion: w.SchemaVersion, AggregateType: w.AggregateType,
		AggregateID: w.AggregateID, OrderingKey: w.OrderingKey, IdempotencyKey: w.IdempotencyKey,
		TraceParent: w.TraceParent, TraceState: w.TraceState,
	}, Payload: w.Payload}
	e.complete(defaults)
	if err := checkEnvelope(e); err != nil {
		return Envelope{}, err
	}
	return e, nil
}

// complete fills in what is empty.
func (h *Header) complete(defaults Header) {
	h.ID = or(h.ID, defaults.ID)
	h.Type = or(h.Type, defaults.Type)
	if h.OccurredAt.IsZero() {
		h.OccurredAt = defaults.OccurredAt
	}
	h.OccurredAt = h.OccurredAt.UTC()
	h.CorrelationID = or(h.CorrelationID, or(defaults.CorrelationID, h.ID))
	h.CausationID = or(h.CausationID, defaults.CausationID)
	if h.TraceParent == "" {
		h.TraceParent, h.TraceState = defaults.TraceParent, defaults.TraceState
	}
	if h.SchemaVersion == 0 {
		h.SchemaVersion = 1
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func checkEnvelope(e Envelope) error {
	bad := func(field, problem string) error {
		return &InvalidEventError{EventID: e.ID, Field: field, Problem: problem}
	}
	for _, f := range []struct {
		name, value string
		required    bool
		limit       int
	}{
		{"event_id", e.ID, true, maxNameBytes},
		{"event_type", e.Type, true, maxNameBytes},
		{"correlation_id", e.CorrelationID, false, maxNameBytes},
		{"causation_id", e.CausationID, false, maxNameBytes},
		{"tenant_id", e.TenantID, false, maxNameBytes},
		{"station_id", e.StationID, false, maxNameBytes},
		{"aggregate_type", e.AggregateType, false, maxNameBytes},
		{"aggregate_id", e.AggregateID, false, maxNameBytes},
		{"ordering_key", e.OrderingKey, false, maxKeyBytes},
		{"idempotency_key", e.IdempotencyKey, false, maxKeyBytes},
		{"traceparent", e.TraceParent, false, maxNameBytes},
		{"tracestate", e.TraceState, false, maxKeyBytes},
	} {
		switch {
		case f.required && f.value == "":
			return bad(f.name, "is empty")
		case len(f.value) > f.limit:
			return bad(f.name, fmt.Sprintf("has %d bytes, more than %d", len(f.value), f.limit))
		case !utf8.ValidString(f.value):
			return bad(f.name, "is not valid UTF-8")
		case strings.ContainsRune(f.value, 0):
			return bad(f.name, "contains a NUL character")
		}
	}
	switch {
	case e.OccurredAt.IsZero():
		return bad("occurred_at", "is missing")
	case e.OccurredAt.Year() < 1 || e.OccurredAt.Year() > 9999:
		return bad("occurred_at", "is not a year of RFC 3339")
	case e.SchemaVersion < 1:
		return bad("schema_version", "is less than 1")
	case len(e.Payload) == 0:
		return bad("payload", "is missing")
	case !utf8.Valid(e.Payload):
		return bad("payload", "is not valid UTF-8")
	}
	return nil
}

// Bytes that are not an envelope are kept under a synthetic event ID, wrapped
// so that they fit into a text column and can be told from an envelope.
const undecodablePrefix = "undecodable-"

type wrapped struct {
	Base64 *string `json:"undecodable_base64"`
}

// wrapUndecodable returns the synthetic event ID, derived from the bytes so that
// a second delivery finds the same dead letter, and the wrapped bytes.
func wrapUndecodable(b []byte) (id string, payload []byte) {
	sum := sha256.Sum256(b)
	return undecodablePrefix + hex.EncodeToString(sum[:16]),
		[]byte(`{"undecodable_base64":"` + base64.StdEncoding.EncodeToString(b) + `"}`)
}

// unwrapUndecodable undoes wrapUndecodable; bytes that are not wrapped it
// returns as they are.
func unwrapUndecodable(id string, payload []byte) []byte {
	if !isSynthetic(id) {
		return payload
	}
	var w wrapped
	if json.Unmarshal(payload, &w) != nil || w.Base64 == nil {
		return payload
	}
	b, err := base64.StdEncoding.DecodeString(*w.Base64)
	if err != nil {
		return payload
	}
	return b
}

func isSynthetic(eventID string) bool { return strings.HasPrefix(eventID, undecodablePrefix) }
