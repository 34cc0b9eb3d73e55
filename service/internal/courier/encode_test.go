package courier_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// The queue's messages are what encoding/json makes of an event.
func FuzzAppendJSON(f *testing.F) {
	f.Add("evt_1", "courier-x", "shp <&> \u2028 \"\\ \x7f é \xff", "key\tand\nmore", int64(1772107200), int64(123456789), 1)
	f.Add("", "", "", "", int64(0), int64(0), 0)
	f.Fuzz(func(t *testing.T, id, source, trace, key string, seconds, nanos int64, attempt int) {
		at := time.Unix(seconds%(1<<37), nanos%1e9).UTC()
		if at.Year() < 1970 || at.Year() > 9999 {
			return
		}
		e := courier.Event{
			EventID: id, EventType: id + source, OccurredAt: at, Source: source, IdempotencyKey: key, TraceID: trace,
			SignatureMeta: courier.SignatureMeta{Algorithm: "hmac-sha256", Timestamp: seconds, Signature: key},
			Payload:       json.RawMessage(`{"shipmentId":"<é>"}`), ReceivedAt: at, Attempt: attempt, BodyHash: trace,
		}
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(e); err != nil {
			t.Fatal(err)
		}
		if got := append(e.AppendJSON(nil), '\n'); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("got  %s\nwant %s", got, want.Bytes())
		}
	})
}
