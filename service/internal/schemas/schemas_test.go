package schemas_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/schemas"
	"github.com/waybill-go/waybill/service/internal/schemas/schematest"
)

const body = `{"eventId":"evt_123","eventType":"shipment.status.updated","occurredAt":"2026-02-26T12:00:00Z","source":"courier-x",` +
	`"idempotencyKey":"courier-x:evt_123","payload":{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery"}}`

func event(t *testing.T) courier.Event {
	t.Helper()
	e, _, faults := courier.Parse([]byte(body))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	e.TraceID, e.ReceivedAt, e.Attempt = strings.Repeat("a", 32), time.Now().UTC(), 1
	e.SignatureMeta = courier.SignatureMeta{Algorithm: "hmac-sha256", Timestamp: 1772107200, Signature: "00"}
	return e
}

// documents are what the gateway takes or sends, and the Go type that writes it, if it is exported.
func documents(t *testing.T) map[string]any {
	t.Helper()
	return map[string]any{
		"courier-event":       json.RawMessage(body),
		"courier-events-main": event(t),
		"courier-events-dlq": map[string]any{
			"eventId": "evt_123", "idempotencyKey": "courier-x:evt_123", "traceId": "a", "attemptCount": 5, "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
			"terminalReasonMessage": "no answer", "payloadSnapshot": map[string]any{"shipmentId": "shp_456"}, "deadLetteredAt": "2026-02-26T12:05:00Z",
			"attemptHistory": []eventing.Attempt{{Attempt: 1, At: time.Now(), Outcome: "failed", ErrorCode: eventing.ReasonTimeout, ErrorMessage: "no answer"}},
		},
		"shipment.state.changed": map[string]any{
			"shipmentId": "shp_456", "orderId": "", "previousState": "", "currentState": "picked_up", "eventId": "evt_123", "eventType": "scan",
			"occurredAt": "2026-02-26T12:00:00Z", "source": "courier-x", "changedAt": "2026-02-26T12:00:01.5Z",
		},
	}
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	samples := documents(t)
	if len(schemas.All()) != len(samples) {
		t.Errorf("%d schemas, %d samples", len(schemas.All()), len(samples))
	}
	for _, s := range schemas.All() {
		t.Run(s.Type, func(t *testing.T) {
			t.Parallel()
			var text struct {
				Schema     string `json:"$schema"`
				Properties map[string]any
				Required   []string
			}
			if err := json.Unmarshal(s.Text, &text); err != nil {
				t.Fatal(err)
			}
			if text.Schema != "https://json-schema.org/draft/2020-12/schema" || s.ID != "urn:waybill:schema:"+s.Type+":"+strconv.Itoa(s.Version) || s.Title == "" {
				t.Errorf("it says of itself: %+v, %s", s, text.Schema)
			}
			encoded, err := json.Marshal(samples[s.Type])
			if err != nil {
				t.Fatal(err)
			}
			if err := schematest.Validate(s.Type, s.Version, encoded); err != nil {
				t.Fatalf("%s: %v", encoded, err)
			}
			var fields map[string]any
			if err := json.Unmarshal(encoded, &fields); err != nil {
				t.Fatal(err)
			}
			for name := range fields {
				if text.Properties[name] == nil {
					t.Errorf("%s is not described", name)
				}
			}
			for _, name := range text.Required {
				value := fields[name]
				delete(fields, name)
				invalid(t, s, fields, "without "+name)
				if name != "payloadSnapshot" { // may be anything
					fields[name] = true
					invalid(t, s, fields, "with a wrong "+name)
				}
				fields[name] = value
			}
			invalid(t, s, []any{}, "as an array")
		})
	}
	if _, ok := schemas.Find("courier-event", 2); ok {
		t.Error("found a version that there is not")
	}
}

func invalid(t *testing.T, s schemas.Schema, document any, what string) {
	t.Helper()
	encoded, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	if schematest.Validate(s.Type, s.Version, encoded) == nil {
		t.Errorf("%s is taken: %s", what, encoded)
	}
}

// The schema of what couriers send and the intake agree.
func TestCourierEvent(t *testing.T) {
	t.Parallel()
	replace := func(old, with string) string { return strings.Replace(body, old, with, 1) }
	for name, text := range map[string]string{
		"as it is":            body,
		"more fields":         replace(`{"eventId"`, `{"more":[1],"eventId"`),
		"more in the payload": replace(`"shipmentId"`, `"scan":{"depot":"Köln 2"},"shipmentId"`),
		"nulls":               replace(`"ord_789","status":"out_for_delivery"`, `null,"status":null`),
		"only a shipment":     replace(`,"orderId":"ord_789","status":"out_for_delivery"`, ``),
		"an offset":           replace(`12:00:00Z`, `12:00:00.123456+02:00`),
		"a strange status":    replace(`out_for_delivery`, `?!\u001b[2J`),
		"no event id":         replace(`"eventId":"evt_123",`, ``),
		"an empty id":         replace(`"evt_123"`, `""`),
		"a blank id":          replace(`"evt_123"`, `" "`),
		"a control character": replace(`"evt_123"`, `"a\u0000b"`),
		"a long id":           replace(`"evt_123"`, `"`+strings.Repeat("x", 256)+`"`),
		"the longest id":      replace(`"evt_123"`, `"`+strings.Repeat("x", 255)+`"`),
		"a long type":         replace(`shipment.status.updated`, strings.Repeat("x", 129)),
		"a number":            replace(`"evt_123"`, `7`),
		"no time":             replace(`2026-02-26T12:00:00Z`, `yesterday`),
		"no payload":          replace(`"payload"`, `"load"`),
		"a payload of text":   replace(`{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery"}`, `"x"`),
		"no shipment":         replace(`"shipmentId"`, `"ship"`),
		"a null shipment":     replace(`"shp_456"`, `null`),
		"a long order":        replace(`ord_789`, strings.Repeat("x", 256)),
		"a long status":       replace(`out_for_delivery`, strings.Repeat("x", 1025)),
	} {
		_, _, faults := courier.Parse([]byte(text))
		if err := schematest.Validate("courier-event", 1, []byte(text)); (err == nil) != (len(faults) == 0) {
			t.Errorf("%s: the intake says %v, the schema %v", name, faults, err)
		}
	}
	raw, err := os.ReadFile("../../../examples/couriers/samples.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		if err := schematest.Validate("courier-event", 1, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// Each field that Go writes is described: documents has one that leaves out empty ones.
func TestFields(t *testing.T) {
	t.Parallel()
	s, _ := schemas.Find("courier-events-main", 1)
	for i := range reflect.TypeFor[courier.Event]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[courier.Event]().Field(i).Tag.Get("json"), ",")
		if !bytes.Contains(s.Text, []byte(`"`+name+`": {`)) {
			t.Errorf("%s is not described", name)
		}
	}
}
