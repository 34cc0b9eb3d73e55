package courier

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const valid = `{"eventId":"evt_123","eventType":"shipment.status.updated","occurredAt":"2026-02-26T13:00:00+01:00","source":"courier-x",` +
	`"idempotencyKey":"courier-x:evt_123","payload":{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery","extra":[1]}}`

func TestParse(t *testing.T) {
	t.Parallel()
	ev, payload, faults := Parse([]byte(valid))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if ev.EventID != "evt_123" || ev.EventType != "shipment.status.updated" || ev.Source != "courier-x" || ev.IdempotencyKey != "courier-x:evt_123" {
		t.Fatalf("got %+v", ev)
	}
	if want := time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC); ev.OccurredAt != want {
		t.Fatalf("occurredAt %v, want %v", ev.OccurredAt, want)
	}
	if want := (Payload{ShipmentID: "shp_456", OrderID: "ord_789", Status: "out_for_delivery"}); payload != want {
		t.Fatalf("payload %+v, want %+v", payload, want)
	}
}

func TestParseTakes(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string][2]string{
		"null status":         {`"out_for_delivery"`, `null`},
		"absent status":       {`"status":"out_for_delivery",`, ``},
		"any status":          {`out_for_delivery`, `Teleported\u0000 <b>`},
		"null order":          {`"ord_789"`, `null`},
		"absent order":        {`"orderId":"ord_789",`, ``},
		"fraction of second":  {`13:00:00+01:00`, `13:00:00.123456789Z`},
		"lower case zone":     {`13:00:00+01:00`, `13:00:00z`},
		"unknown field":       {`{"eventId"`, `{"x":{},"eventId"`},
		"field of other case": {`{"eventId"`, `{"EventID":7,"eventId"`},
		"non-ASCII shipment":  {`shp_456`, `Sendung Nr. 5/ä`},
		"longest shipment":    {`shp_456`, strings.Repeat("s", MaxIDLength)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := strings.Replace(valid, edit[0], edit[1], 1)
			if body == valid {
				t.Fatal("the edit changes nothing")
			}
			ev, want, faults := Parse([]byte(body))
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			if got, err := DecodePayload(ev.Payload); err != nil || got != want {
				t.Fatalf("the worker reads %+v (%v), want %+v", got, err, want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	type refusal struct{ name, old, new, field, message string }
	cases := []refusal{
		{"no payload", `"payload":{`, `"other":{`, "payload", "required"},
		{"payload null", `"payload":{`, `"payload":null,"other":{`, "payload", "object"},
		{"payload array", `"payload":{`, `"payload":[],"other":{`, "payload", "object"},
		{"date only", `2026-02-26T13:00:00+01:00`, `2026-02-26`, "occurredAt", "RFC 3339"},
		{"no zone", `13:00:00+01:00`, `13:00:00`, "occurredAt", "RFC 3339"},
		{"comma fraction", `13:00:00+01:00`, `13:00:00,5Z`, "occurredAt", "RFC 3339"},
		{"hour of one digit", `13:00:00+01:00`, `3:00:00Z`, "occurredAt", "RFC 3339"},
		{"zone of a day", `+01:00`, `+24:00`, "occurredAt", "RFC 3339"},
		{"zone minute 60", `+01:00`, `+01:60`, "occurredAt", "RFC 3339"},
		{"leap second", `13:00:00+01:00`, `23:59:60Z`, "occurredAt", "RFC 3339"},
		{"30 February", `02-26T`, `02-30T`, "occurredAt", "RFC 3339"},
		{"zone beyond a day", `+01:00`, `+25:00`, "occurredAt", "RFC 3339"},
		{"Unix time as text", `2026-02-26T13:00:00+01:00`, `1772107200`, "occurredAt", "RFC 3339"},
		{"Unix time", `"2026-02-26T13:00:00+01:00"`, `1772107200`, "occurredAt", "a number"},
		{"year 10000 in UTC", `2026-02-26T13:00:00+01:00`, `9999-12-31T23:59:59-01:00`, "occurredAt", "9999"},
		{"year 1", `2026-02-26T13:00:00+01:00`, `0001-01-01T00:00:00Z`, "occurredAt", "1970"},
		{"order number", `"ord_789"`, `789`, "payload.orderId", "a number"},
		{"status object", `"out_for_delivery"`, `{}`, "payload.status", "an object"},
		{"status boolean", `"out_for_delivery"`, `true`, "payload.status", "a boolean"},
		{"long status", `out_for_delivery`, strings.Repeat("s", MaxStatusLength+1), "payload.status", "1024 bytes"},
		{"long type", `shipment.status.updated`, strings.Repeat("t", MaxEventTypeLength+1), "eventType", "128 bytes"},
		{"duplicate key", `{"eventId"`, `{"eventId":"x","eventId"`, "", "duplicate key"},
		{"not an object", valid, `[]`, "", "object"},
		{"too deep", `[1]`, strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), "", "too deep"},
	}
	values := map[string]string{
		"eventId": "evt_123", "eventType": "shipment.status.updated", "occurredAt": "2026-02-26T13:00:00+01:00",
		"source": "courier-x", "idempotencyKey": "courier-x:evt_123", "payload.shipmentId": "shp_456",
	}
	for field, value := range values {
		name := field[strings.LastIndex(field, ".")+1:]
		member := fmt.Sprintf(`%q:%q`, name, value)
		cases = append(cases,
			refusal{field + " missing", member, `"other":0`, field, "required"},
			refusal{field + " empty", member, fmt.Sprintf(`%q:""`, name), field, "not be empty"},
			refusal{field + " blank", member, fmt.Sprintf(`%q:"  "`, name), field, "not be empty"},
			refusal{field + " null", member, fmt.Sprintf(`%q:null`, name), field, "not null"},
			refusal{field + " number", member, fmt.Sprintf(`%q:5`, name), field, "not a number"},
			refusal{field + " array", member, fmt.Sprintf(`%q:["x"]`, name), field, "not an array"},
			refusal{field + " NUL", member, fmt.Sprintf(`%q:"a\u0000"`, name), field, "control characters"},
			refusal{field + " too long", member, fmt.Sprintf(`%q:%q`, name, strings.Repeat("x", MaxIDLength+1)), field, "bytes"},
			refusal{field + " in other case", member, fmt.Sprintf(`%q:%q`, strings.ToUpper(name), value), field, "required"},
		)
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			body := strings.Replace(valid, tc.old, tc.new, 1)
			if body == valid {
				t.Fatal("the edit changes nothing")
			}
			ev, _, faults := Parse([]byte(body))
			if len(faults) != 1 || faults[0].Field != tc.field || !strings.Contains(faults[0].Message, tc.message) {
				t.Fatalf("got %+v, want %q to be at fault: %q", faults, tc.field, tc.message)
			}
			if ev.EventID != "" {
				t.Fatalf("a refused body gave the event %+v", ev)
			}
		})
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, _, faults := Parse([]byte(`{"eventId":1,"occurredAt":"now","payload":{"orderId":2}}`))
	var got []string
	for _, f := range faults {
		got = append(got, f.Field)
	}
	want := []string{"eventId", "eventType", "occurredAt", "source", "idempotencyKey", "payload.shipmentId", "payload.orderId"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestEventJSON(t *testing.T) {
	t.Parallel()
	ev, _, faults := Parse([]byte(valid))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	ev.TraceID, ev.Attempt = "req_a1b2c3", 1
	ev.SignatureMeta = SignatureMeta{Algorithm: "hmac-sha256", Timestamp: 1772107200, Signature: "00ff"}
	ev.ReceivedAt = time.Date(2026, 2, 26, 12, 0, 1, 0, time.UTC)
	got, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"eventId":"evt_123","eventType":"shipment.status.updated","occurredAt":"2026-02-26T12:00:00Z","source":"courier-x",` +
		`"idempotencyKey":"courier-x:evt_123","traceId":"req_a1b2c3","signatureMeta":{"algorithm":"hmac-sha256","timestamp":1772107200,"signature":"00ff"},` +
		`"payload":{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery","extra":[1]},"receivedAt":"2026-02-26T12:00:01Z","attempt":1}`
	if string(got) != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"eventId":1,"payload":{"shipmentId":"\u0000"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		ev, want, faults := Parse(raw)
		if len(faults) > 0 {
			return
		}
		queued, err := json.Marshal(ev)
		if err != nil {
			t.Fatalf("an accepted event cannot be queued: %v", err)
		}
		var back Event
		if err := json.Unmarshal(queued, &back); err != nil || back.IdempotencyKey != ev.IdempotencyKey || !back.OccurredAt.Equal(ev.OccurredAt) {
			t.Fatalf("got %+v back (%v), want %+v", back, err, ev)
		}
		if got, err := DecodePayload(back.Payload); err != nil || got != want {
			t.Fatalf("the worker reads the payload %+v (%v), want %+v", got, err, want)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, faults := Parse([]byte(valid)); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
