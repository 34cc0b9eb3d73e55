package eventing

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"time"

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

// scanHeader returns what setHeader would write, without decoding the envelope, if it
// is as EncodeEnvelope writes it and no value is escaped: text that is already there
// need not be taken apart and put together again for every message. There is room for more
// entries, by which the metadata will not have to grow. The payload is not looked at: whoever consumes it does.
func scanHeader(envelope []byte, more int) (message.Metadata, bool) {
	if len(envelope) > MaxEnvelopeBytes || len(envelope) == 0 || envelope[0] != '{' || envelope[len(envelope)-1] != '}' {
		return nil, false
	}
	var names [16]string
	var places [16]struct{ from, to int }
	n, at := 0, 1
	for i := range wireFields {
		field := &wireFields[i]
		rest := envelope[at:]
		if !bytes.HasPrefix(rest, field.key) {
			if field.required {
				return nil, false
			}
			continue
		}
		value := rest[len(field.key):]
		size := bytes.IndexByte(value, field.end)
		if size < 0 || len(value) <= size+len(field.close) || value[size+len(field.close)-1] != ',' || bytes.IndexByte(value[:size], '\\') >= 0 {
			return nil, false
		}
		switch {
		case size > 0 && (field.end != ',' || len(bytes.Trim(value[:size], "0123456789")) == 0):
			names[n], places[n].from, places[n].to = field.name, at+len(field.key), at+len(field.key)+size
			n++
		case field.required && field.name != "tenant_id" && field.name != "station_id":
			return nil, false
		}
		at += len(field.key) + size + len(field.close)
	}
	if !bytes.HasPrefix(envelope[at:], payloadField) {
		return nil, false
	}
	header := string(envelope[:at])
	m := make(message.Metadata, n+more)
	for i := range n {
		m[names[i]] = header[places[i].from:places[i].to]
	}
	return m, true
}

var payloadField = []byte(`"payload":`)

// wireField is a field of the header as EncodeEnvelope writes it.
type wireField struct {
	name     string
	required bool
	key      []byte // up to the value
	end      byte   // of the value
	close    string // what follows it
}

// wireFields are in the order of wireEnvelope.
var wireFields = func() (fields []wireField) {
	t := reflect.TypeFor[wireEnvelope]()
	for i := range t.NumField() - 1 { // the last is the payload
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		f := wireField{name: name, required: options == "", key: []byte(`"` + name + `":"`), end: '"', close: `",`}
		if name == "schema_version" {
			f.key, f.end, f.close = []byte(`"`+name+`":`), ',', `,`
		}
		fields = append(fields, f)
	}
	return fields
}()

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

// origin is what the library's own metadata says about a message.
type origin struct {
	generation int
	force      bool
	outboxSeq  int64
}

// originOf reads it. It came over the broker like the rest, and is trusted no more.
func originOf(m message.Metadata) (o origin, err error) {
	if v := m.Get(MetadataGeneration); v != "" {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 0 {
			return origin{}, &InvalidEventError{Field: MetadataGeneration, Problem: "of the metadata is not a number from 0 to 2147483647"}
		}
		o.generation = int(n)
	}
	if v := m.Get(MetadataForce); v != "" {
		if v != "true" {
			return origin{}, &InvalidEventError{Field: MetadataForce, Problem: `of the metadata is not "true"`}
		}
		o.force = true
	}
	if v := m.Get(MetadataOutboxSeq); v != "" {
		o.outboxSeq, err = strconv.ParseInt(v, 10, 64)
		if err != nil || o.outboxSeq < 1 {
			return origin{}, &InvalidEventError{Field: MetadataOutboxSeq, Problem: "of the metadata is not a number of 64 bits from 1"}
		}
	}
	return o, nil
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
