package eventing

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with go test -run %s -update", err, t.Name())
	}
	if !bytes.Equal(got, bytes.TrimSuffix(want, []byte{'\n'})) {
		t.Errorf("the wire format has changed: stored and sent events of older versions would not be read\n got %s\nwant %s", got, want)
	}
}

func fullEnvelope() Envelope {
	return Envelope{Header: Header{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", Type: "OrderPlaced",
		OccurredAt:    time.Date(2026, 1, 2, 3, 4, 5, 678900000, time.UTC),
		CorrelationID: "corr-1", CausationID: "cause-1", TenantID: "tenant-1", StationID: "station-1", SchemaVersion: 2,
		AggregateType: "order", AggregateID: "42", OrderingKey: "customer/7", IdempotencyKey: "once-1",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "vendor=1",
	}, Payload: json.RawMessage(`{"total":12.50,"note":"<b>&</b> ✓"}`)}
}

func minimalEnvelope() Envelope {
	return Envelope{Header: Header{
		ID: "e1", Type: "T", OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), CorrelationID: "e1", SchemaVersion: 1,
	}, Payload: json.RawMessage(`null`)}
}

func TestEnvelopeGolden(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]Envelope{"envelope_full.json": fullEnvelope(), "envelope_minimal.json": minimalEnvelope()} {
		b, err := EncodeEnvelope(e)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
		back, err := DecodeEnvelope(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, e) {
			t.Errorf("%s: an envelope does not survive encoding\n got %+v\nwant %+v", name, back, e)
		}
	}
}

func TestMessageGolden(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]Codec{"message_envelope.json": EnvelopeCodec{}, "message_payload.json": PayloadCodec{}} {
		m, err := codec.Marshal(fullEnvelope())
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.MarshalIndent(map[string]any{"uuid": m.UUID, "metadata": m.Metadata, "payload": string(m.Payload)}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
		back, err := codec.Unmarshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, fullEnvelope()) {
			t.Errorf("%s: an envelope does not survive\n got %+v\nwant %+v", name, back, fullEnvelope())
		}
	}
}

func TestDecodeEnvelopeCompletes(t *testing.T) {
	t.Parallel()
	e, err := DecodeEnvelope([]byte(`{"event_id":"e1","event_type":"T","occurred_at":"2026-01-02T04:04:05+01:00","unknown":[1],"payload":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := minimalEnvelope()
	want.Payload = json.RawMessage(`{}`)
	if !reflect.DeepEqual(e, want) {
		t.Errorf("decoding completes what is left out, and skips what it does not know\n got %+v\nwant %+v", e, want)
	}
}

func TestDecodeEnvelopeRefuses(t *testing.T) {
	t.Parallel()
	const ok = `{"event_id":"e1","event_type":"T","occurred_at":"2026-01-02T03:04:05Z","payload":{}}`
	if _, err := DecodeEnvelope([]byte(ok)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ bytes, field string }{
		"nothing":            {"", ""},
		"not JSON":           {"hello", ""},
		"cut off":            {ok[:len(ok)-1], ""},
		"trailing garbage":   {ok + " x", ""},
		"two envelopes":      {ok + ok, ""},
		"an array":           {"[" + ok + "]", ""},
		"null":               {"null", "event_id"},
		"not UTF-8":          {strings.Replace(ok, "e1", "e\xff", 1), ""},
		"no id":              {strings.Replace(ok, `"event_id":"e1",`, "", 1), "event_id"},
		"an empty type":      {strings.Replace(ok, `"T"`, `""`, 1), "event_type"},
		"a number as id":     {strings.Replace(ok, `"e1"`, `1`, 1), ""},
		"no time":            {strings.Replace(ok, `"occurred_at":"2026-01-02T03:04:05Z",`, "", 1), "occurred_at"},
		"not RFC 3339":       {strings.Replace(ok, "2026-01-02T03:04:05Z", "2026-01-02 03:04", 1), ""},
		"no payload":         {strings.Replace(ok, `,"payload":{}`, "", 1), "payload"},
		"a negative version": {strings.Replace(ok, `"payload"`, `"schema_version":-1,"payload"`, 1), "schema_version"},
		"a NUL character":    {strings.Replace(ok, `"e1"`, `"e\u0000"`, 1), "event_id"},
		"a long id":          {strings.Replace(ok, `"e1"`, `"`+strings.Repeat("e", 256)+`"`, 1), "event_id"},
		"a long key":         {strings.Replace(ok, `"payload"`, `"ordering_key":"`+strings.Repeat("k", 1025)+`","payload"`, 1), "ordering_key"},
		"too large":          {ok + strings.Repeat(" ", MaxEnvelopeBytes), ""},
		"nested too deep":    {strings.Replace(ok, `{}`, strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000), 1), ""},
	} {
		_, err := DecodeEnvelope([]byte(c.bytes))
		var invalid *InvalidEventError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: want an InvalidEventError, got %v", name, err)
		} else if invalid.Field != c.field {
			t.Errorf("%s: the field at fault is %q, the error says %q (%v)", name, c.field, invalid.Field, err)
		}
	}
}

func TestEncodeEnvelopeRefuses(t *testing.T) {
	t.Parallel()
	for field, spoil := range map[string]func(*Envelope){
		"event_id":       func(e *Envelope) { e.ID = "" },
		"event_type":     func(e *Envelope) { e.Type = strings.Repeat("t", 256) },
		"tenant_id":      func(e *Envelope) { e.TenantID = "\xff" },
		"station_id":     func(e *Envelope) { e.StationID = "a\x00b" },
		"occurred_at":    func(e *Envelope) { e.OccurredAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"schema_version": func(e *Envelope) { e.SchemaVersion = 0 },
		"payload":        func(e *Envelope) { e.Payload = json.RawMessage(`{"a":`) },
	} {
		e := fullEnvelope()
		spoil(&e)
		_, err := EncodeEnvelope(e)
		var invalid *InvalidEventError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: want an InvalidEventError that names the field, got %v", field, err)
		}
	}
	e := fullEnvelope()
	e.Payload = json.RawMessage(`"` + strings.Repeat("x", MaxEnvelopeBytes) + `"`)
	if _, err := EncodeEnvelope(e); err == nil {
		t.Error("an envelope over the limit is refused")
	}
}

func TestUndecodable(t *testing.T) {
	t.Parallel()
	raw := []byte("\xff\x00 no envelope")
	id, payload := Undecodable(raw)
	again, _ := Undecodable(raw)
	other, _ := Undecodable([]byte("another"))
	if id != again || id == other || !IsUndecodable(id) || IsUndecodable("e1") {
		t.Errorf("the synthetic id derives from the bytes: %s, %s, %s", id, again, other)
	}
	if !json.Valid(payload) {
		t.Errorf("what is kept is JSON text, got %s", payload)
	}
	golden(t, "undecodable.json", append([]byte(id+" "), payload...))
	if got := unwrapUndecodable(id, payload); !bytes.Equal(got, raw) {
		t.Errorf("unwrapping gives back the bytes: %q", got)
	}
	if got := unwrapUndecodable("e1", payload); !bytes.Equal(got, payload) {
		t.Errorf("only payloads of synthetic ids are wrapped: %q", got)
	}
	for _, odd := range []string{`{}`, `x`, `{"undecodable_base64":"%"}`} {
		if got := unwrapUndecodable(id, []byte(odd)); string(got) != odd {
			t.Errorf("what is not wrapped stays as it is: %q became %q", odd, got)
		}
	}
}

func TestPayloadCodecRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(m *message.Message){
		"no metadata":       func(m *message.Message) { m.Metadata = message.Metadata{} },
		"a time":            func(m *message.Message) { m.Metadata.Set("occurred_at", "yesterday") },
		"a version":         func(m *message.Message) { m.Metadata.Set("schema_version", "two") },
		"an empty payload":  func(m *message.Message) { m.Payload = nil },
		"an id of bytes":    func(m *message.Message) { m.Metadata.Set("event_id", "\xff") },
		"a binary payload":  func(m *message.Message) { m.Payload = []byte{0xff} },
		"a version of zero": func(m *message.Message) { m.Metadata.Set("schema_version", "-3") },
	} {
		m, err := PayloadCodec{}.Marshal(fullEnvelope())
		if err != nil {
			t.Fatal(err)
		}
		spoil(m)
		var invalid *InvalidEventError
		if _, err := (PayloadCodec{}).Unmarshal(m); !errors.As(err, &invalid) {
			t.Errorf("%s: want an InvalidEventError, got %v", name, err)
		}
	}
}
