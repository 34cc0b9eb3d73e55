package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/service/internal/courier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReadShipment(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, want := range map[string]string{"/v1/shipments/shp_456": "shp_456", "/v1/shipments/a%2Fb%20c": "a/b c"} {
		var got courier.Shipment
		wantJSON(t, f.do(read(path)), http.StatusOK, &got)
		if got.ShipmentID != want || got.CurrentState != "delivered" || string(got.Metadata) != `{"place":"Lisboa"}` {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	wantProblem(t, f.do(read("/v1/shipments/shp_0")), 404, "nothing is known")
	wantProblem(t, f.do(read("/v1/shipments/"+strings.Repeat("x", courier.MaxIDLength+1))), 404, "nothing is known")
}

func TestReadEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, want := range map[string]int{"/v1/events/evt_123": 2, "/v1/events/evt_123?source=courier-y": 1} {
		var got struct{ Events []courier.EventStatus }
		wantJSON(t, f.do(read(path)), http.StatusOK, &got)
		if len(got.Events) != want {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	wantProblem(t, f.do(read("/v1/events/evt_0")), 404, "nothing is known")
	wantProblem(t, f.do(read("/v1/events/evt_123?source=nobody")), 404, "nothing is known")
}

func TestReadUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.Reader = reader{err: errStore} })
	for _, path := range []string{"/v1/shipments/shp_456", "/v1/events/evt_123"} {
		w := f.do(read(path))
		wantProblem(t, w, 503, "ask again")
		if w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "db.internal") {
			t.Errorf("%s: %v %s", path, w.Header(), w.Body)
		}
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	closed := newFixture(t, func(c *Config) { c.Tokens = nil })
	open := newFixture(t)
	for _, path := range []string{"/v1/shipments/shp_456", "/v1/events/evt_123"} {
		for header, allowed := range map[string]bool{
			"Bearer " + token: true, "bearer " + token: true,
			"": false, "Bearer": false, "Bearer ": false, "Bearer wrong": false, "Basic " + token: false, token: false, "Bearer " + token + "x": false,
		} {
			r := read(path)
			r.Header.Set("Authorization", header)
			w := open.do(r)
			if allowed && w.Code != http.StatusOK {
				t.Errorf("%q: status %d", header, w.Code)
			}
			if !allowed {
				wantProblem(t, w, 401, "ADMIN_TOKEN")
				if !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("WWW-Authenticate %q", w.Header().Get("WWW-Authenticate"))
				}
			}
			wantProblem(t, closed.do(r), 401, "ADMIN_TOKEN")
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	down := errors.New("postgres://user:password@db.internal is down")
	var storeErr, brokerErr error
	f := newFixture(t, func(c *Config) {
		c.Checks = []Check{
			{Name: "store", Ready: func(context.Context) error { return storeErr }},
			{Name: "broker", Ready: func(context.Context) error { return brokerErr }},
		}
	})
	get := func(path string) *httptest.ResponseRecorder {
		return f.do(httptest.NewRequest(http.MethodGet, path, nil))
	}
	var got health
	if wantJSON(t, get("/readyz"), http.StatusOK, &got); got.Status != "ready" {
		t.Errorf("got %+v", got)
	}
	brokerErr = down
	w := get("/readyz")
	p := wantProblem(t, w, 503, "broker")
	if len(p.Errors) != 1 || p.Errors[0].Field != "broker" || strings.Contains(w.Body.String(), "internal") {
		t.Errorf("got %s", w.Body)
	}
	if wantJSON(t, get("/healthz"), http.StatusOK, &got); got.Status != "ok" {
		t.Errorf("got %+v", got)
	}
	if w := f.do(httptest.NewRequest(http.MethodHead, "/healthz", nil)); w.Code != http.StatusOK {
		t.Errorf("HEAD: status %d", w.Code)
	}
}

// Metrics are open, on the API and beside the health of other processes; without any there is nothing.
func TestMetrics(t *testing.T) {
	t.Parallel()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })
	for name, handler := range map[string]http.Handler{
		"api": newFixture(t, func(c *Config) { c.Metrics = metrics }).handler, "health": NewHealth(nil, metrics, slog.New(slog.DiscardHandler)),
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK || w.Body.String() != "up 1\n" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %q", name, w.Code, w.Header(), w.Body)
		}
	}
	wantProblem(t, newFixture(t).do(read("/metrics")), 404, "")
	document := newFixture(t, func(c *Config) { c.Metrics = metrics }).do(read("/openapi.json"))
	if !strings.Contains(document.Body.String(), `"/metrics"`) {
		t.Error("/metrics is not in the OpenAPI document")
	}
}

func TestNotFoundAndMethod(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, path := range []string{"/", "/v1/events", "/v1/shipments/", "/v1/events/courier/x", "/docs/", "/v2/events/courier"} {
		wantProblem(t, f.do(read(path)), 404, "")
	}
	for path, allow := range map[string]string{
		"/v1/shipments/shp_456": "GET, HEAD", "/v1/shipments/a%2Fb": "GET, HEAD", "/healthz": "GET, HEAD", "/openapi.json": "GET, HEAD", "/v1/events/evt_123": "GET, HEAD",
	} {
		r := read(path)
		r.Method = http.MethodDelete
		w := f.do(r)
		wantProblem(t, w, 405, "DELETE")
		if got := w.Header().Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q, want %q", path, got, allow)
		}
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.Reader = reader{panicked: "out of cheese"} })
	w := f.do(read("/v1/shipments/shp_456"))
	p := wantProblem(t, w, 500, "trace id")
	if strings.Contains(w.Body.String(), "cheese") || !strings.Contains(f.log.String(), "cheese") || !strings.Contains(f.log.String(), p.TraceID) {
		t.Errorf("body %s, log %s", w.Body, f.log)
	}
	f = newFixture(t, func(c *Config) { c.Reader = reader{panicked: http.ErrAbortHandler} })
	defer func() {
		if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // as net/http does
			t.Errorf("got %v, want the abort to reach the server", v)
		}
	}()
	f.do(read("/v1/shipments/shp_456"))
}

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.Version = "1.2.3" })
	w := f.do(httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/openapi+json" {
		t.Fatalf("status %d, %s", w.Code, w.Header().Get("Content-Type"))
	}
	var doc struct {
		OpenAPI string
		Info    struct{ Version string }
		Paths   map[string]map[string]struct {
			Responses  map[string]struct{ Content map[string]any }
			Parameters []struct{ Name string }
			Security   []map[string]any
		}
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Version != "1.2.3" {
		t.Errorf("got %s, version %s", doc.OpenAPI, doc.Info.Version)
	}
	for path, responses := range map[string][]string{
		"post /v1/events/courier":        {"202", "400", "401", "405", "408", "409", "413", "415", "500", "503"},
		"get /v1/shipments/{shipmentId}": {"200", "401", "403", "404", "500", "503"},
		"get /v1/events/{eventId}":       {"200", "401", "403", "404", "500", "503"},
		"get /healthz":                   {"200", "500"},
		"get /readyz":                    {"200", "500", "503"},
	} {
		method, path, _ := strings.Cut(path, " ")
		op := doc.Paths[path][method]
		var got []string
		for status, response := range op.Responses {
			got = append(got, status)
			want := "application/json"
			if status >= "4" {
				want = "application/problem+json"
			}
			if _, ok := response.Content[want]; !ok {
				t.Errorf("%s %s: %s has the contents %v", method, path, status, response.Content)
			}
		}
		if slices.Sort(got); !slices.Equal(got, responses) {
			t.Errorf("%s %s: responses %v, want %v", method, path, got, responses)
		}
		if (len(op.Security) > 0) != strings.HasPrefix(path, "/v1/") {
			t.Errorf("%s %s: security %v", method, path, op.Security)
		}
	}
	if len(doc.Paths["/v1/events/courier"]["post"].Parameters) != 4 {
		t.Error("the signature's headers are not documented")
	}
	for _, name := range []string{"EventBody", "EventPayload"} {
		if doc.Components.Schemas[name]["additionalProperties"] != true {
			t.Errorf("%s: what a courier adds is taken, so the document must allow it", name)
		}
	}
	if doc.Components.Schemas["ErrorModel"] != nil {
		t.Error("the document shows a problem that is never sent")
	}
	// Every reference leads somewhere.
	for _, part := range strings.Split(w.Body.String(), `"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("no schema %q", name)
		}
	}
}

func TestNewRefusesHalfAConfig(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}); err == nil {
		t.Error("accepted nothing at all")
	}
	if _, err := New(Config{Acceptor: instant{}, Reader: reader{}, Keyring: &courier.Keyring{}, MaxBodyBytes: -1}); err == nil {
		t.Error("accepted a negative size")
	}
}

func TestServerIsBounded(t *testing.T) {
	t.Parallel()
	s := NewServer("127.0.0.1:0", newFixture(t).handler, slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.WriteTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 {
		t.Errorf("a server without bounds: %+v", s)
	}
}
