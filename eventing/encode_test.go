package eventing

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// What encode writes is what encoding/json makes of a wireEnvelope.
func FuzzEncode(f *testing.F) {
	f.Add("e-1", "Type", "<&> \u2028 \"\\ \x7f é \xff", "", "key\tand\nmore", int64(1772107200), 1, []byte(`{"a" : [1, "é\u2028<"]}`))
	f.Add("", "", "", "t", "", int64(0), 0, []byte(`null`))
	f.Add("e", "T", "c", "t", "k", int64(-1), -1, []byte(`{`))
	f.Fuzz(func(t *testing.T, id, kind, text, optional, key string, seconds int64, version int, payload []byte) {
		at := time.Unix(seconds%(1<<37), seconds%1e9).UTC()
		if at.Year() < 1 || at.Year() > 9999 {
			return
		}
		e := Envelope{Header: Header{
			ID: id, Type: kind, OccurredAt: at, CorrelationID: text, CausationID: optional, TenantID: text, StationID: optional,
			SchemaVersion: version, AggregateType: kind, AggregateID: optional, OrderingKey: key, IdempotencyKey: text,
			TraceParent: optional, TraceState: key,
		}, Payload: payload}
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		wantErr := encoder.Encode(wireEnvelope{
			EventID: id, EventType: kind, OccurredAt: at, CorrelationID: text, CausationID: optional, TenantID: text, StationID: optional,
			SchemaVersion: version, AggregateType: kind, AggregateID: optional, OrderingKey: key, IdempotencyKey: text,
			TraceParent: optional, TraceState: key, Payload: payload,
		})
		got, err := encode(e)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err == nil && !bytes.Equal(append(got, '\n'), want.Bytes()) {
			t.Errorf("got  %s\nwant %s", got, want.Bytes())
		}
	})
}
