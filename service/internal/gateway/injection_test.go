package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// hostile is what fields are tried with: statements and operators of databases, templates, terminals, paths.
var hostile = []string{
	`'; DROP TABLE courier_ledger; --`, `" OR ""="`, `1) OR (1=1`, `' UNION SELECT secret FROM secrets --`, `$1`, `?`, `:name`, `%s%n`, `\`, `'`, `"`,
	`$where`, `{"$gt": ""}`, `$ne`, `a.b.c`, `this.x == 1; while(1){}`, `__proto__`, `{{.Secret}}`, `${jndi:ldap://x/a}`, `<script>alert(1)</script>`,
	`../../etc/passwd`, `a/b`, `#`, `;`, `|`, `&x=y`, `\u0000`, "\u202e", "😀", `null`, `true`, `-1e999`,
}

// What couriers and operators write is text and nothing else, in every field, on every store.
func TestInjection(t *testing.T) {
	t.Parallel()
	onEachPair(t, func(t *testing.T, storeURL, brokerURL string) {
		s := newSite(t, storeURL, brokerURL)
		quoted := func(v any) string {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		for i, text := range hostile {
			text = fmt.Sprint(text, i) // as ids they are distinct
			s.send(fmt.Sprintf(`{"eventId":%s,"eventType":%[1]s,"occurredAt":"2026-02-26T12:00:00Z","source":%[1]s,"idempotencyKey":%[1]s,`+
				`"payload":{"shipmentId":%[1]s,"orderId":%[1]s,"status":"ok",%[1]s:%[1]s,"nested":{%[1]s:[%[1]s]}}}`, quoted(text)))
		}
		for i, text := range hostile {
			text = fmt.Sprint(text, i)
			e := s.becomes(url.PathEscape(text), url.QueryEscape(text), courier.StatusProcessed)
			if e.EventID != text || e.EventType != text || e.Source != text || e.IdempotencyKey != text || e.ShipmentID != text || e.Outcome != courier.OutcomeApplied {
				t.Errorf("%q was read back as %+v", text, e)
			}
			got := s.shipment(url.PathEscape(text))
			var meta map[string]any
			if err := json.Unmarshal(got.Metadata, &meta); err != nil || quoted(meta[text]) != quoted(text) || quoted(meta["nested"]) != quoted(map[string]any{text: []any{text}}) {
				t.Errorf("%q has the metadata %s, %v", text, got.Metadata, err)
			}
			if got.ShipmentID != text || got.OrderID != text || got.LastEventID != text || got.LastEventType != text {
				t.Errorf("%q was read back as %+v", text, got)
			}
		}

		// As a status it is refused by the worker, and read back from the dead letter.
		for i, text := range hostile {
			s.send(says("courier-x", fmt.Sprint("evt_", i), 10, `{"shipmentId":"shp_1","status":`+quoted("!"+text)+`}`))
		}
		for i := range hostile {
			s.becomes(fmt.Sprint("evt_", i), "courier-x", courier.StatusDeadLettered)
		}
		open := s.letters("pending")
		if len(open) != len(hostile) {
			t.Fatalf("%d dead letters, want %d", len(open), len(hostile))
		}
		for i, text := range hostile {
			if got := s.call(http.MethodPost, open[i]+"/discard", `{"note": `+quoted(text)+`}`, nil); got != http.StatusOK {
				t.Errorf("a discard for %q: %d", text, got)
			}
		}

		// Where text is wanted, an operator of a database is not.
		for _, value := range []string{`{"$gt":""}`, `{"$ne":null}`, `["a"]`, `1`, `true`} {
			body := says("courier-x", "evt_x", 10, `{"shipmentId":"shp_1"}`)
			for _, field := range []string{`"evt_x"`, `"courier-x"`, `"courier-x:evt_x"`, `"shp_1"`, `"shipment.status.updated"`} {
				a, err := s.sender.post(t.Context(), []byte(strings.Replace(body, field, value, 1)))
				if err != nil || a.status != http.StatusBadRequest {
					t.Errorf("%s for %s: %+v, %v", value, field, a, err)
				}
			}
		}

		// Queries find nothing that is not there.
		for _, text := range hostile {
			for _, path := range []string{"/v1/shipments/" + url.PathEscape(text), "/v1/events/" + url.PathEscape(text), "/v1/events/evt_0?source=" + url.QueryEscape(text)} {
				if got := s.call(http.MethodGet, path, "", nil); got != http.StatusNotFound {
					t.Errorf("%s: %d", path, got)
				}
			}
			for _, path := range []string{"/v1/dead-letters?status=", "/v1/dead-letters?after=", "/v1/dead-letters?limit="} {
				if got := s.call(http.MethodGet, path+url.QueryEscape(text), "", nil); got != http.StatusBadRequest {
					t.Errorf("%s%s: %d", path, text, got)
				}
			}
			if got := s.call(http.MethodPost, "/v1/dead-letters/"+url.PathEscape(text)+"/"+url.PathEscape(text)+"/replay", `{}`, nil); got != http.StatusNotFound {
				t.Errorf("a replay of %q: %d", text, got)
			}
		}
	})
}
