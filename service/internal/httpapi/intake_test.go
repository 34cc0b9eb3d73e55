package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
)

func TestIntakeAccepts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := signed(event)
	r.Header.Set("Content-Type", "Application/JSON; charset=UTF-8")
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	var got accepted
	wantJSON(t, f.do(r), http.StatusAccepted, &got)
	if got.TraceID != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("trace id %q is not that of the traceparent", got.TraceID)
	}
	if len(f.acceptor.events) != 1 {
		t.Fatalf("accepted %d events", len(f.acceptor.events))
	}
	ev := f.acceptor.events[0]
	if ev.TraceID != got.TraceID || ev.ReceivedAt != now || ev.Attempt != 1 || ev.EventID != "evt_123" {
		t.Errorf("accepted %+v", ev)
	}
	if want := (courier.SignatureMeta{Algorithm: "hmac-sha256", Timestamp: now.Unix(), Signature: r.Header.Get(courier.HeaderSignature)}); ev.SignatureMeta != want {
		t.Errorf("signature %+v, want %+v", ev.SignatureMeta, want)
	}
	if f.acceptor.hashes["courier-x:evt_123"] != courier.CanonicalHash([]byte(event)) {
		t.Error("the acceptor got another hash")
	}
}

// refusal is a request that must be refused, made from a good one.
type refusal struct {
	name   string
	r      *http.Request
	status int
	detail string // what the problem's detail names
	field  string // what its errors name
}

func with(r *http.Request, edit func(http.Header)) *http.Request {
	edit(r.Header)
	return r
}

func replaced(part, by string) *http.Request { return signed(strings.Replace(event, part, by, 1)) }

func TestIntakeRefuses(t *testing.T) {
	t.Parallel()
	alteredBody := signed(event)
	alteredBody.Body = io.NopCloser(strings.NewReader(strings.Replace(event, "shp_456", "shp_457", 1)))
	wrongMethod := func(method string) *http.Request {
		r := signed(event)
		r.Method = method
		return r
	}
	chunked := signed(strings.Repeat(" ", 2<<20))
	chunked.ContentLength = -1
	cases := []refusal{
		{"no signature", with(signed(event), func(h http.Header) { h.Del("X-Signature") }), 401, "X-Signature is missing", "X-Signature"},
		{"no timestamp", with(signed(event), func(h http.Header) { h.Del("X-Signature-Timestamp") }), 401, "X-Signature-Timestamp is missing", "X-Signature-Timestamp"},
		{"signed with another secret", signedAt(event, []byte("guess"), now), 401, "X-Signature does not match", "X-Signature"},
		{"signature given twice", with(signed(event), func(h http.Header) { h.Add("X-Signature", "x") }), 401, "more than once", "X-Signature"},
		{"malformed signature", with(signed(event), func(h http.Header) { h.Set("X-Signature", "x") }), 401, "hexadecimal or base64", "X-Signature"},
		{"unknown key", with(signed(event), func(h http.Header) { h.Set("X-Signature-Key", "x-9") }), 401, "X-Signature-Key", "X-Signature-Key"},
		{"key of another secret", with(signed(event), func(h http.Header) { h.Set("X-Signature-Key", "master") }), 401, "does not match", "X-Signature"},
		{"330 s old", signedAt(event, secret, now.Add(-330*time.Second)), 401, "too old", "X-Signature-Timestamp"},
		{"330 s ahead", signedAt(event, secret, now.Add(330*time.Second)), 401, "in the future", "X-Signature-Timestamp"},
		{"timestamp altered", with(signed(event), func(h http.Header) { h.Set("X-Signature-Timestamp", fmt.Sprint(now.Unix()+1)) }), 401, "does not match", "X-Signature"},
		{"body altered by a byte", alteredBody, 401, "does not match", "X-Signature"},
		{"source of another secret", replaced("courier-x", "courier-y"), 401, "source", "source"},
		{"GET", wrongMethod(http.MethodGet), 405, "use POST", ""},
		{"HEAD", wrongMethod(http.MethodHead), 405, "use POST", ""},
		{"PUT", wrongMethod(http.MethodPut), 405, "use POST", ""},
		{"OPTIONS", wrongMethod(http.MethodOptions), 405, "use POST", ""},
		{"no content type", with(signed(event), func(h http.Header) { h.Del("Content-Type") }), 415, "application/json", "Content-Type"},
		{"form", with(signed(event), func(h http.Header) { h.Set("Content-Type", "application/x-www-form-urlencoded") }), 415, "application/json", "Content-Type"},
		{"Latin-1", with(signed(event), func(h http.Header) { h.Set("Content-Type", "application/json; charset=latin1") }), 415, "UTF-8", "Content-Type"},
		{"compressed", with(signed(event), func(h http.Header) { h.Set("Content-Encoding", "gzip") }), 415, "Content-Encoding", "Content-Encoding"},
		{"2 MiB", signed(strings.Repeat(" ", 2<<20)), 413, "1048576 bytes", ""},
		{"2 MiB without a length", chunked, 413, "1048576 bytes", ""},
		{"a byte too long", signed(event + strings.Repeat(" ", 1<<20+1-len(event))), 413, "1048576 bytes", ""},
		{"empty body", signed(""), 400, "unexpected end", ""},
		{"not JSON", signed("eventId=evt_123"), 400, "syntax error", ""},
		{"not an object", signed(`"evt_123"`), 400, "object", ""},
		{"trailing garbage", signed(event + "}"), 400, "data after the JSON value", ""},
		{"second value", signed(event + event), 400, "data after the JSON value", ""},
		{"duplicate key", replaced(`"source"`, `"eventId":"evt_124","source"`), 400, "duplicate key", ""},
		{"duplicate key in the payload", replaced(`"status"`, `"shipment\u0049d":"x","status"`), 400, "duplicate key", ""},
		{"invalid UTF-8", replaced("shp_456", "shp_\xff"), 400, "invalid UTF-8", ""},
		{"lone surrogate", replaced("shp_456", `\ud800`), 400, "lone surrogate", ""},
		{"10,000 deep", replaced(`"out_for_delivery"`, strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)), 400, "nested too deep", ""},
		{"not RFC 3339", replaced("2026-02-26T12:00:00Z", "26/02/2026 12:00"), 400, "RFC 3339", "occurredAt"},
		{"no payload", replaced(`"payload"`, `"Payload"`), 400, "payload", "payload"},
		{"wrong type of payload", replaced(`"payload":{`, `"payload":[],"other":{`), 400, "object", "payload"},
		{"wrong type of status", replaced(`"out_for_delivery"`, `{}`), 400, "a string, not an object", "payload.status"},
		{"wrong type of orderId", replaced(`"ord_789"`, `789`), 400, "a string, not a number", "payload.orderId"},
	}
	for field, value := range map[string]string{
		"eventId": "evt_123", "eventType": "shipment.status.updated", "occurredAt": "2026-02-26T12:00:00Z",
		"source": "courier-x", "idempotencyKey": "courier-x:evt_123", "payload.shipmentId": "shp_456",
	} {
		name := field[strings.LastIndex(field, ".")+1:]
		member := fmt.Sprintf(`%q:%q`, name, value)
		cases = append(cases,
			refusal{"missing " + field, replaced(member, `"other":1`), 400, field + ": is required", field},
			refusal{"empty " + field, replaced(member, fmt.Sprintf(`%q:""`, name)), 400, field + ": must not be empty", field},
			refusal{"null " + field, replaced(member, fmt.Sprintf(`%q:null`, name)), 400, field + ": must be a string", field},
			refusal{"wrong type of " + field, replaced(member, fmt.Sprintf(`%q:7`, name)), 400, field + ": must be a string", field},
		)
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			w := f.do(tc.r)
			p := wantProblem(t, w, tc.status, tc.detail)
			if tc.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != tc.field || p.Errors[0].Message == "") {
				t.Errorf("errors %+v do not name %q", p.Errors, tc.field)
			}
			if len(f.acceptor.events) > 0 {
				t.Errorf("accepted %+v", f.acceptor.events)
			}
			if (w.Header().Get("WWW-Authenticate") != "") != (tc.status == 401) {
				t.Errorf("WWW-Authenticate %q", w.Header().Get("WWW-Authenticate"))
			}
			if tc.status == 405 && w.Header().Get("Allow") != "POST" {
				t.Errorf("Allow %q", w.Header().Get("Allow"))
			}
			if log := f.log.String(); strings.Contains(log, "shp_45") || strings.Contains(log, string(secret)) || !strings.Contains(log, p.TraceID) {
				t.Errorf("the log tells too much, or not the trace id: %s", log)
			}
		})
	}
}

// Faults are told in the order of suspicion: who cannot sign learns nothing
// about the body.
func TestIntakeOrderOfChecks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := signedAt("not JSON", []byte("guess"), now)
	wantProblem(t, f.do(r), 401, "does not match")
	r = signedAt(strings.Repeat(" ", 2<<20), []byte("guess"), now)
	wantProblem(t, f.do(r), 413, "bytes")
	r = signedAt(strings.Repeat(" ", 2<<20), []byte("guess"), now)
	r.Header.Set("Content-Type", "text/plain")
	wantProblem(t, f.do(r), 415, "application/json")
	r = signed(strings.Replace(strings.Replace(event, "courier-x", "courier-y", 1), `"eventId"`, `"id"`, 1))
	wantProblem(t, f.do(r), 400, "eventId")
}

func TestIntakeReportsEveryField(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := wantProblem(t, f.do(signed(`{"eventId":5,"payload":{}}`)), 400, "(and 5 more)")
	if len(p.Errors) != 6 {
		t.Errorf("errors %+v", p.Errors)
	}
}

func TestIntakeLargestBody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if w := f.do(signed(event + strings.Repeat(" ", 1<<20-len(event)))); w.Code != http.StatusAccepted {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
}

func TestIntakeRepeatAndConflict(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var mu sync.Mutex
	traces := map[string]int{}
	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			w := f.do(signed(event))
			mu.Lock()
			defer mu.Unlock()
			traces[fmt.Sprint(w.Code, w.Body)]++
		})
	}
	clients.Wait()
	if len(traces) != 1 || len(f.acceptor.events) != 1 {
		t.Fatalf("100 times one event: answers %v, %d accepted", traces, len(f.acceptor.events))
	}
	// The same value in other words is the same body.
	if w := f.do(signed(" " + strings.Replace(event, "evt_123", `evt_\u003123`, 1))); w.Code != http.StatusAccepted {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	p := wantProblem(t, f.do(replaced("out_for_delivery", "delivered")), 409, "idempotency key")
	if len(p.Errors) != 1 || p.Errors[0].Field != "idempotencyKey" {
		t.Errorf("errors %+v", p.Errors)
	}
}

func TestIntakeUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.acceptor.err = errStore
	w := f.do(signed(event))
	wantProblem(t, w, 503, "send it again")
	if w.Header().Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
	}
	if strings.Contains(w.Body.String(), "db.internal") || !strings.Contains(f.log.String(), "db.internal") {
		t.Error("the cause belongs into the log, and nowhere else")
	}
}

// Who comes when too many wait already is told at once when to come again, and that is no
// error to look into.
func TestIntakeIsBusy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.acceptor.err = fmt.Errorf("accept: %w", ErrBusy)
	w := f.do(signed(event))
	wantProblem(t, w, 503, "too many wait already")
	if got := w.Header().Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q", got)
	}
	if log := f.log.String(); strings.Contains(log, "accept an event") || !strings.Contains(log, "route="+intakePath) {
		t.Errorf("the log has %s, want the request alone", log)
	}
}

func TestIntakeTraceparent(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tc := range []struct {
		header []string
		taken  bool
	}{
		{[]string{good}, true},
		{[]string{"cc" + good[2:] + "-more"}, true},
		{nil, false},
		{[]string{good, good}, false},
		{[]string{good + "-more"}, false},
		{[]string{"cc" + good[2:] + "more"}, false},
		{[]string{"ff" + good[2:]}, false},
		{[]string{strings.ToUpper(good)}, false},
		{[]string{"00-00000000000000000000000000000000-b7ad6b7169203331-01"}, false},
		{[]string{"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"}, false},
		{[]string{"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01"}, false},
		{[]string{good[:54]}, false},
		{[]string{""}, false},
	} {
		r := signed(event)
		r.Header["Traceparent"] = tc.header
		var got accepted
		wantJSON(t, newFixture(t).do(r), http.StatusAccepted, &got)
		if strings.Contains(strings.Join(tc.header, ","), got.TraceID) != tc.taken || len(got.TraceID) != 32 || !isLowerHex(got.TraceID) {
			t.Errorf("%q: trace id %q", tc.header, got.TraceID)
		}
	}
}

// Over a real connection: a client that sends too much still gets to read why,
// and one that breaks off leaves nothing behind.
func TestIntakeOverTheWire(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := httptest.NewServer(f.handler)
	t.Cleanup(server.Close)
	transport, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the server's client has another transport")
	}
	transport.ExpectContinueTimeout = time.Minute // who expects an answer waits for it
	send := func(body io.Reader, like *http.Request, edit func(*http.Request)) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/events/courier", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = like.Header
		edit(r)
		return server.Client().Do(r)
	}
	for name, edit := range map[string]func(*http.Request){
		"plain":    func(*http.Request) {},
		"chunked":  func(r *http.Request) { r.ContentLength = -1 },
		"expected": func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
	} {
		large := strings.Repeat(" ", 2<<20)
		res, err := send(strings.NewReader(large), signed(large), edit)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: status %d", name, res.StatusCode)
		}
		_ = res.Body.Close()
	}
	broken := io.MultiReader(strings.NewReader(event[:50]), errorReader{})
	if res, err := send(broken, signed(event), func(r *http.Request) { r.ContentLength = int64(len(event)) }); err == nil {
		t.Errorf("a broken request got status %d", res.StatusCode)
		_ = res.Body.Close()
	}
	server.Close() // waits for the handlers
	if len(f.acceptor.events) > 0 {
		t.Errorf("accepted %+v", f.acceptor.events)
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func BenchmarkIntake(b *testing.B) {
	keyring, err := courier.NewKeyring(courier.Secret{Value: secret})
	if err != nil {
		b.Fatal(err)
	}
	handler, err := New(Config{Acceptor: instant{}, Reader: reader{}, Keyring: keyring, DeadLetters: &letters{}, Now: func() time.Time { return now }})
	if err != nil {
		b.Fatal(err)
	}
	r := signed(event)
	b.ReportAllocs()
	for b.Loop() {
		r.Body = io.NopCloser(strings.NewReader(event))
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != http.StatusAccepted {
			b.Fatal(w.Body)
		}
	}
}

type instant struct{}

func (instant) Accept(_ context.Context, ev courier.Event, _ courier.Payload, _ string) (string, error) {
	return ev.TraceID, nil
}

// While too much waits, nothing of a request is read, and the courier is told when to come back; reads go on.
func TestOverloaded(t *testing.T) {
	t.Parallel()
	yes := true
	f := newFixture(t, func(c *Config) {
		c.Overloaded = func() (time.Duration, string, bool) { return 7 * time.Second, "too much waits", yes }
	})
	for _, body := range []string{event, "{", event} {
		w := f.do(signed(body))
		p := wantProblem(t, w, 503, "too much waits")
		if p.Type != "urn:waybill:problem:overloaded" || w.Header().Get("Retry-After") != "7" {
			t.Errorf("got %s, Retry-After %q", p.Type, w.Header().Get("Retry-After"))
		}
	}
	if len(f.acceptor.events) > 0 {
		t.Error("an event was taken in")
	}
	if w := f.do(read("/v1/shipments/shp_456")); w.Code != http.StatusOK {
		t.Errorf("reads: %d", w.Code)
	}
	yes = false
	if w := f.do(signed(event)); w.Code != http.StatusAccepted {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
}
