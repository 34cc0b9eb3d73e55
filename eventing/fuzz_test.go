package eventing

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// compacted makes payloads comparable: encoding takes their white space out.
func compacted(t *testing.T, e Envelope) Envelope {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, e.Payload); err != nil {
		t.Fatalf("a decoded payload is JSON: %v", err)
	}
	e.Payload = b.Bytes()
	return e
}

func FuzzDecodeEnvelope(f *testing.F) {
	for _, e := range []Envelope{fullEnvelope(), minimalEnvelope()} {
		b, err := EncodeEnvelope(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"event_id":"e","event_type":"T","occurred_at":"0001-01-01T00:00:00.000000001+23:59","payload":[ 1 ]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEnvelope(b)
		if err != nil {
			var invalid *InvalidEventError
			if !errors.As(err, &invalid) {
				t.Fatalf("want an InvalidEventError, got %T", err)
			}
			return
		}
		encoded, err := EncodeEnvelope(e)
		if err != nil {
			if len(b) > MaxEnvelopeBytes/8 {
				return // escaping can make it too large
			}
			t.Fatalf("what was decoded encodes: %v", err)
		}
		spliced, err := encodeDecoded(e)
		if err == nil {
			var same bytes.Buffer
			if err := json.Compact(&same, spliced); err != nil || !bytes.Equal(same.Bytes(), encoded) {
				t.Fatalf("what was decoded is encoded as\n%s (%v), else as\n%s", spliced, err, encoded)
			}
		} else if len(b) < MaxEnvelopeBytes/8 {
			t.Fatalf("what was decoded encodes: %v", err)
		}
		back, err := DecodeEnvelope(encoded)
		if err != nil {
			t.Fatalf("what was encoded decodes: %v", err)
		}
		if want := compacted(t, e); !reflect.DeepEqual(back, want) {
			t.Fatalf("decoding and encoding are inverse\n got %+v\nwant %+v", back, want)
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add("e1", "T", "2026-01-02T03:04:05Z", "1", "K", []byte(`{}`))
	f.Add("", "", "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, id, eventType, occurredAt, version, key string, payload []byte) {
		m := message.NewMessage("m", payload)
		for name, value := range map[string]string{
			"event_id": id, "event_type": eventType, "occurred_at": occurredAt, "schema_version": version, "ordering_key": key,
		} {
			m.Metadata.Set(name, value)
		}
		e, err := PayloadCodec{}.Unmarshal(m)
		if err != nil {
			return
		}
		out, err := PayloadCodec{}.Marshal(e)
		if err != nil {
			t.Fatalf("what was read can be written: %v", err)
		}
		back, err := PayloadCodec{}.Unmarshal(out)
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("reading and writing are inverse: %v\n got %+v\nwant %+v", err, back, e)
		}
	})
}

func FuzzUndecodable(f *testing.F) {
	f.Add([]byte("no envelope"))
	f.Add([]byte{0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		id, payload := Undecodable(b)
		if !IsUndecodable(id) || !json.Valid(payload) {
			t.Fatalf("a synthetic id and JSON text, got %s and %s", id, payload)
		}
		if got := unwrapUndecodable(id, payload); !bytes.Equal(got, b) {
			t.Fatalf("unwrapping gives back the bytes: %q, not %q", got, b)
		}
		unwrapUndecodable(id, b) // whatever a column holds: no panic
	})
}

func FuzzCompleteRow(f *testing.F) {
	f.Add("e1", "T", []byte(`{"payload":{}}`))
	f.Add("e1", "", []byte(`{"event_type":"T","payload":1}`))
	f.Add("undecodable-00", "", []byte(`{"undecodable_base64":"e30="}`))
	f.Fuzz(func(t *testing.T, id, eventType string, payload []byte) {
		row, err := CompleteRow(OutboxRow{ID: "row", EventID: id, EventType: eventType, Payload: payload, CreatedAt: fullEnvelope().OccurredAt})
		if err != nil {
			return
		}
		e, err := DecodeEnvelope(row.Payload)
		if err != nil {
			t.Fatalf("a completed row holds an envelope: %v", err)
		}
		if e.ID != id || e.Type != row.EventType || e.OrderKey() != row.OrderingKey || row.Partition != PartitionOf(row.OrderingKey, id) {
			t.Fatalf("a completed row agrees with its envelope: %+v, %+v", row, e)
		}
		again, err := CompleteRow(row)
		if err != nil || !bytes.Equal(again.Payload, row.Payload) {
			t.Fatalf("completing a complete row changes nothing: %v", err)
		}
	})
}
