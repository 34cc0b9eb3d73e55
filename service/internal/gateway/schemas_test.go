package gateway

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/schemas/schematest"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// What goes to the queues satisfies the schemas that are published.
func TestMessagesSatisfySchemas(t *testing.T) {
	t.Parallel()
	cfg := testConfig("sqlite:"+filepath.Join(t.TempDir(), "waybill.db"), "a secret")
	s := newSender(serve(t, cfg), "a secret", 1)
	defer s.close()
	body, key := event(1, 1, time.Now())
	if a, err := s.post(t.Context(), body); err != nil || a.status != http.StatusAccepted {
		t.Fatalf("%+v, %v", a, err)
	}
	var encoded []byte
	id := courier.EventID("courier-x", key)
	if err := storetest.Open(t, cfg.StoreURL).Read.QueryRowContext(t.Context(), `SELECT payload FROM event_outbox WHERE event_id = $1`, id).Scan(&encoded); err != nil {
		t.Fatal(err)
	}
	accepted, err := eventing.DecodeEnvelope(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if err := schematest.Validate("courier-events-main", 1, accepted.Payload); err != nil {
		t.Errorf("%s: %v", accepted.Payload, err)
	}

	attempts := []eventing.Attempt{{Attempt: 1, At: time.Now(), Outcome: "failed", ErrorCode: eventing.ReasonTimeout, ErrorMessage: "no answer", TraceParent: "00-…"}}
	for name, payload := range map[string][]byte{"an event": encoded, "no event": []byte(`{"undecodable_base64": ""}`), "no JSON": []byte(`{`)} {
		row, err := deadLetterRow(eventing.Failure{
			Run: eventing.Run{Delivery: eventing.Delivery{EventID: id, Payload: payload}}, Now: time.Now(), Attempts: 1, History: attempts, Reason: eventing.ReasonRetriesExhausted,
		})
		if err != nil {
			t.Fatal(err)
		}
		letter, err := eventing.DecodeEnvelope(row.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if err := schematest.Validate("courier-events-dlq", 1, letter.Payload); err != nil {
			t.Errorf("%s: %s: %v", name, letter.Payload, err)
		}
	}
}
