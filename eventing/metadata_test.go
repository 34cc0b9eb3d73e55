package eventing

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"
)

// headerOf is the metadata as a decoder finds it.
func headerOf(t rapid.TB, encoded []byte) message.Metadata {
	t.Helper()
	e, err := DecodeEnvelope(encoded)
	if err != nil {
		t.Fatalf("what was encoded decodes: %v", err)
	}
	m := message.Metadata{}
	setHeader(m, e.Header)
	return m
}

// sameHeader checks that a header is cut out as it would be decoded, if it can be: it
// can, unless a value is escaped.
func sameHeader(t rapid.TB, encoded []byte) {
	t.Helper()
	want := headerOf(t, encoded)
	got, ok := scanHeader(encoded, 0)
	header, _, _ := bytes.Cut(encoded, payloadField)
	escaped := bytes.ContainsRune(header, '\\')
	if ok == escaped {
		t.Fatalf("the header can be cut out if nothing is escaped: %v, %s", ok, encoded)
	}
	if ok && !maps.Equal(got, want) {
		t.Fatalf("a header that is cut out is the one that is decoded\n got %v\nwant %v", got, want)
	}
}

func TestScanHeaderIsDecoding(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(
		rapid.StringMatching(`[a-zA-Z0-9/_.:-]{0,40}`), rapid.SampledFrom([]string{
			"", `"payload":`, `"`, `\`, `,`, `","payload":{}`, "ü€😀", "<&>", "\u2028", "\n", "\x7f", `{"event_id":"x"}`, "0", "event_id",
		}), rapid.StringN(0, 20, 80))
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) string { return text.Draw(t, name) }
		e := Envelope{Header: Header{
			ID: draw("id"), Type: draw("type"), CorrelationID: draw("correlation"), CausationID: draw("causation"),
			TenantID: draw("tenant"), StationID: draw("station"), AggregateType: draw("aggregate type"), AggregateID: draw("aggregate"),
			OrderingKey: draw("key"), IdempotencyKey: draw("idempotency key"), TraceParent: draw("trace"), TraceState: draw("state"),
			SchemaVersion: rapid.IntRange(-1, 1_000_000).Draw(t, "version"),
			OccurredAt: time.Unix(rapid.Int64Range(-62135596799, 253402300799).Draw(t, "time"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).
				In(time.FixedZone("", rapid.IntRange(-14*3600, 14*3600).Draw(t, "zone"))),
		}, Payload: rapid.SampledFrom([][]byte{[]byte(`{}`), []byte(`"payload":`), []byte(` [1, "\\"] `), []byte(`"\u0041"`), []byte(`null`)}).Draw(t, "payload")}
		e.complete(Header{}) // as whoever appends does
		if encoded, err := EncodeEnvelope(e); err == nil {
			sameHeader(t, encoded)
		}
	})
}

func TestScanHeaderLeavesTheRestToTheDecoder(t *testing.T) {
	t.Parallel()
	full, err := EncodeEnvelope(fullEnvelope())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := scanHeader(full, 0); !ok {
		t.Fatalf("what EncodeEnvelope writes can be cut: %s", full)
	}
	replace := func(from, to string) string {
		t.Helper()
		if !bytes.Contains(full, []byte(from)) {
			t.Fatalf("there is no %s in %s", from, full)
		}
		return strings.Replace(string(full), from, to, 1)
	}
	for name, b := range map[string]string{
		"nothing":                    "",
		"half an envelope":           string(full[:len(full)/2]),
		"no object":                  "[" + string(full) + "]",
		"white space before":         " " + string(full),
		"white space behind":         string(full) + "\n",
		"white space at the start":   replace(`{"event_id"`, `{ "event_id"`),
		"white space after a colon":  replace(`"event_type":"`, `"event_type": "`),
		"white space after a value":  replace(`,"event_type"`, ` ,"event_type"`),
		"an escaped value":           replace(`"event_id":"`, `"event_id":"\u0065`),
		"another order":              replace(`{"event_id":"`+fullEnvelope().ID+`","event_type":"`+fullEnvelope().Type+`"`, `{"event_type":"`+fullEnvelope().Type+`","event_id":"`+fullEnvelope().ID+`"`),
		"an unknown field":           replace(`,"event_type"`, `,"colour":"red","event_type"`),
		"an unknown one at the end":  replace(`"payload":`, `"colour":"red","payload":`),
		"a field that comes twice":   replace(`,"event_type"`, `,"event_id":"other","event_type"`),
		"an empty ID":                replace(`"event_id":"`+fullEnvelope().ID+`"`, `"event_id":""`),
		"no correlation ID":          replace(`"correlation_id":"`+fullEnvelope().CorrelationID+`",`, ``),
		"a version that is text":     replace(`"schema_version":`, `"schema_version":"1","x":`),
		"a version that is negative": replace(`"schema_version":`, `"schema_version":-`),
		"a version with a fraction":  replace(`,"causation_id"`, `.5,"causation_id"`),
		"no payload":                 replace(`"payload":`, `"pay":`),
		"a number instead of text":   replace(`"tenant_id":"`+fullEnvelope().TenantID+`"`, `"tenant_id":1`),
		"null instead of text":       replace(`"tenant_id":"`+fullEnvelope().TenantID+`"`, `"tenant_id":null`),
		"too large":                  replace(`"payload":`, `"payload":"`+strings.Repeat("x", MaxEnvelopeBytes)+`",`),
	} {
		if m, ok := scanHeader([]byte(b), 0); ok {
			t.Errorf("%s: only what EncodeEnvelope writes is cut, not %.200s to %v", name, b, m)
		}
	}
}

// TestMarshalRowAgreesWithTheCodec takes the short way and the long one.
func TestMarshalRowAgreesWithTheCodec(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]Envelope{"full": fullEnvelope(), "minimal": minimalEnvelope()} {
		encoded, err := EncodeEnvelope(e)
		if err != nil {
			t.Fatal(err)
		}
		long, err := EnvelopeCodec{}.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		for way, payload := range map[string][]byte{"cut": encoded, "decoded": append([]byte(" "), encoded...)} {
			short, err := marshalRow(&OutboxRow{EventID: e.ID, EventType: e.Type, Payload: payload}, EnvelopeCodec{}, nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			if short.UUID != long.UUID || !maps.Equal(short.Metadata, long.Metadata) || !bytes.Equal(short.Payload, long.Payload) {
				t.Errorf("%s, %s: a row's message is that of its envelope\n got %s %v %s\nwant %s %v %s", name, way,
					short.UUID, short.Metadata, short.Payload, long.UUID, long.Metadata, long.Payload)
			}
		}
	}
}

func FuzzScanHeader(f *testing.F) {
	for _, e := range []Envelope{fullEnvelope(), minimalEnvelope()} {
		b, err := EncodeEnvelope(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(bytes.TrimSuffix(b, []byte("}")), `,"event_id":"twice"}`...))
		f.Add(bytes.Replace(b, []byte(`","`), []byte(`\"","`), 1))
	}
	f.Add([]byte(`{"event_id":"","payload":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		scanHeader(b, 0) // whatever it is: no panic
		e, err := DecodeEnvelope(b)
		if err != nil {
			return
		}
		if again, err := EncodeEnvelope(e); err == nil && bytes.Equal(again, b) {
			sameHeader(t, b)
		}
	})
}
