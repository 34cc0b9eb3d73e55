package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/credentials"
)

const (
	token     = "the admin token"
	readToken = "grafana's token"
	event     = `{"eventId":"evt_123","eventType":"shipment.status.updated","occurredAt":"2026-02-26T12:00:00Z","source":"courier-x",` +
		`"idempotencyKey":"courier-x:evt_123","payload":{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery"}}`
)

var (
	now    = time.Date(2026, 2, 26, 12, 0, 1, 0, time.UTC)
	secret = []byte("courier-x's secret")
	master = []byte("everybody's secret")
)

// acceptor stores in memory, as the real one is told to in its contract.
type acceptor struct {
	mu     sync.Mutex
	events []courier.Event
	hashes map[string]string
	err    error
}

func (a *acceptor) Accept(_ context.Context, ev courier.Event, _ courier.Payload, hash string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return "", a.err
	}
	for _, known := range a.events {
		if known.IdempotencyKey != ev.IdempotencyKey {
			continue
		}
		if a.hashes[ev.IdempotencyKey] != hash {
			return "", ErrConflict
		}
		return known.TraceID, nil
	}
	a.events = append(a.events, ev)
	a.hashes[ev.IdempotencyKey] = hash
	return ev.TraceID, nil
}

type reader struct {
	err      error
	panicked any
}

func (rd reader) Shipment(_ context.Context, id string) (courier.Shipment, error) {
	if rd.panicked != nil {
		panic(rd.panicked)
	}
	if rd.err != nil {
		return courier.Shipment{}, rd.err
	}
	if id != "shp_456" && id != "a/b c" {
		return courier.Shipment{}, ErrNotFound
	}
	return courier.Shipment{ShipmentID: id, CurrentState: "delivered", Metadata: json.RawMessage(`{"place":"Lisboa"}`)}, nil
}

func (rd reader) Events(_ context.Context, id, source string) ([]courier.EventStatus, error) {
	var found []courier.EventStatus
	for _, s := range []string{"courier-x", "courier-y"} {
		if id == "evt_123" && (source == "" || source == s) {
			found = append(found, courier.EventStatus{EventID: id, Source: s, Status: courier.StatusProcessed, Outcome: courier.OutcomeLate})
		}
	}
	return found, rd.err
}

type fixture struct {
	acceptor *acceptor
	letters  *letters
	handler  http.Handler
	log      *bytes.Buffer
}

func newFixture(t *testing.T, edit ...func(*Config)) *fixture {
	t.Helper()
	keyring, err := courier.NewKeyring(
		courier.Secret{KeyID: "x-1", Source: "courier-x", Value: secret},
		courier.Secret{KeyID: "master", Value: master},
	)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{letters: &letters{}, acceptor: &acceptor{hashes: map[string]string{}}, log: &bytes.Buffer{}}
	cfg := Config{
		Acceptor: f.acceptor, Reader: reader{}, Keyring: keyring, Tokens: &credentials.Tokens{}, DeadLetters: f.letters,
		Now:    func() time.Time { return now },
		Logger: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	cfg.Tokens.Replace(credentials.NewToken("anna", token, credentials.ScopeRead, credentials.ScopeOperate),
		credentials.NewToken("grafana", readToken, credentials.ScopeRead))
	for _, e := range edit {
		e(&cfg)
	}
	if f.handler, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w
}

// signed is a request that the intake accepts, if body does.
func signed(body string) *http.Request {
	return signedAt(body, secret, now)
}

func signedAt(body string, key []byte, at time.Time) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/events/courier", strings.NewReader(body))
	timestamp, signature := courier.Sign(key, []byte(body), at)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(courier.HeaderTimestamp, timestamp)
	r.Header.Set(courier.HeaderSignature, signature)
	return r
}

func read(path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// wantProblem checks that the answer is a complete problem and returns it.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, detail string) problem {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if p.Status != status || !strings.HasPrefix(p.Type, "urn:waybill:problem:") || p.Title == "" || len(p.TraceID) != 32 {
		t.Errorf("incomplete problem: %s", w.Body)
	}
	if !strings.Contains(p.Detail, detail) {
		t.Errorf("detail %q does not name the fault %q", p.Detail, detail)
	}
	return p
}

func wantJSON(t *testing.T, w *httptest.ResponseRecorder, status int, v any) {
	t.Helper()
	if w.Code != status || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("status %d (%s), want %d: %s", w.Code, w.Header().Get("Content-Type"), status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
}

var errStore = errors.New("dial tcp db.internal:5432: connection refused")
