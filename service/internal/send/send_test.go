package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/service/internal/courier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a courier's secret"

// gateway answers as the real one does, and keeps what it was sent.
type gateway struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	header http.Header
	// answer overrides the 202; it gets the number of the request, from 1.
	answer func(n int, w http.ResponseWriter) bool
}

func newGateway(t *testing.T, answer func(n int, w http.ResponseWriter) bool) *gateway {
	t.Helper()
	keyring, err := courier.NewKeyring(courier.Secret{KeyID: "k1", Value: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{answer: answer}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.bodies, g.header = append(g.bodies, string(body)), r.Header
		signature := courier.Signature{Timestamp: r.Header.Get(courier.HeaderTimestamp), Value: r.Header.Get(courier.HeaderSignature), KeyID: r.Header.Get(courier.HeaderKeyID)}
		if _, err := keyring.Verify(signature, body, time.Now(), courier.DefaultMaxSkew); err != nil || r.URL.Path != intakePath || r.Method != http.MethodPost {
			http.Error(w, fmt.Sprint(r.Method, r.URL, err), http.StatusUnauthorized)
			return
		}
		if g.answer != nil && g.answer(len(g.bodies), w) {
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, `{"traceId":"trace-%d"}`, len(g.bodies))
	}))
	t.Cleanup(g.Close)
	return g
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRunReadsEveryKindOfInput(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"b.json":   "\ufeff{\n  \"eventId\": \"b1\"\n}\n",
		"a.ndjson": "{\"eventId\":\"a1\"}\n\n{\"eventId\":\"a2\"}\r\n",
		"c.json":   " [ {\"eventId\":\"c1\"},\n{\"eventId\":\"c2\"} ] ",
		"skip.txt": "no JSON",
	})
	if err := os.Mkdir(filepath.Join(dir, "z.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, nil)
	var out bytes.Buffer
	summary, err := Run(t.Context(), Config{
		URL: g.URL, Secret: secret, Out: &out,
		Inputs: []string{dir, "-", filepath.Join(dir, "b.json")}, Stdin: strings.NewReader(`{"eventId":"in1"}{"eventId":"in2"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`{"eventId":"a1"}`, `{"eventId":"a2"}`, "{\n  \"eventId\": \"b1\"\n}", `{"eventId":"c1"}`, `{"eventId":"c2"}`,
		`{"eventId":"in1"}`, `{"eventId":"in2"}`, "{\n  \"eventId\": \"b1\"\n}"}
	if !slices.Equal(g.bodies, want) {
		t.Errorf("sent %q, want %q", g.bodies, want)
	}
	if summary.Events != 8 || summary.Accepted != 8 || summary.Statuses[202] != 8 || summary.Retries != 0 || summary.P50 <= 0 || summary.P99 < summary.P50 {
		t.Errorf("summary %+v", summary)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 9 || !strings.HasPrefix(lines[0], "202  trace-1 ") || !strings.HasSuffix(lines[0], "  a1") || !strings.HasPrefix(lines[8], "8 events in ") {
		t.Errorf("told:\n%s", out.String())
	}
	if g.header.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", g.header)
	}
}

func TestRunCountsThroughTheInput(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	in := `{"eventId":"e1","idempotencyKey":"k:e1","payload":{"eventId":"inner","shipmentId":"s"},"n":9007199254740993}` + "\n" + `{"eventId":"e2","idempotencyKey":"k:e2"}`
	if _, err := Run(t.Context(), Config{URL: g.URL, Secret: secret, Inputs: []string{"-"}, Stdin: strings.NewReader(in), Count: 5, Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(in, "\n")
	want := []string{
		first, second,
		`{"eventId":"e1#2","idempotencyKey":"k:e1#2","payload":{"eventId":"inner","shipmentId":"s"},"n":9007199254740993}`,
		`{"eventId":"e2#2","idempotencyKey":"k:e2#2"}`,
		`{"eventId":"e1#3","idempotencyKey":"k:e1#3","payload":{"eventId":"inner","shipmentId":"s"},"n":9007199254740993}`,
	}
	if !slices.Equal(g.bodies, want) {
		t.Errorf("sent %q, want %q", g.bodies, want)
	}
}

func TestRunManyConcurrently(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(n int, w http.ResponseWriter) bool {
		if n%10 == 0 {
			http.Error(w, `{"detail":"no more room","traceId":"t"}`, http.StatusConflict)
		}
		return n%10 == 0
	})
	var out bytes.Buffer
	summary, err := Run(t.Context(), Config{
		URL: g.URL, Secret: secret, Inputs: []string{"-"}, Stdin: strings.NewReader(`{"eventId":"e","idempotencyKey":"e"}`), Count: 500, Out: &out, Progress: true,
	})
	if err == nil || !strings.Contains(err.Error(), "50 of 500 events were not accepted") || !strings.Contains(err.Error(), "409 no more room") {
		t.Errorf("error %v", err)
	}
	if summary.Accepted != 450 || summary.Statuses[409] != 50 {
		t.Errorf("summary %+v", summary)
	}
	seen := map[string]bool{}
	for _, body := range g.bodies {
		seen[body] = true
	}
	if len(seen) != 500 {
		t.Errorf("%d distinct events, want 500", len(seen))
	}
	told := out.String()
	if n := strings.Count(told, "409  t "); n != maxFaults {
		t.Errorf("%d lines of refused events, want %d", n, maxFaults)
	}
	if !strings.Contains(told, "\r[") || !strings.Contains(told, "/500  ") || !strings.Contains(told, "500 events in ") || !strings.Contains(told, "50 × 409 Conflict") || strings.Contains(told, "202  trace") {
		t.Errorf("told: %q", told)
	}
}

func TestRunKeepsTheRate(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	start := time.Now()
	summary, err := Run(t.Context(), Config{URL: g.URL, Secret: secret, Inputs: []string{"-"}, Stdin: strings.NewReader(`{}`), Count: 11, Rate: 100})
	if err != nil || summary.Accepted != 11 {
		t.Fatalf("%+v, %v", summary, err)
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("11 events at 100/s took %s", took)
	}
}

func TestRunTellsInJSON(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(n int, w http.ResponseWriter) bool {
		if n == 2 {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"title":"The event is not valid","detail":"source: is required","traceId":"t2"}`)
		}
		return n == 2
	})
	var out bytes.Buffer
	_, err := Run(t.Context(), Config{URL: g.URL, Secret: secret, Inputs: []string{"-"}, Stdin: strings.NewReader("{\"eventId\":\"e1\"}\n{\"eventId\":\"e2\"}"), Out: &out, JSON: true, Progress: true})
	if want := "send: 1 of 2 events were not accepted; the first, e2 (stdin:2): 400 source: is required"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	type line struct {
		Status                           int
		TraceID, EventID, Problem, Where string
		Summary                          struct {
			Events, Accepted int
			Statuses         map[string]int
		}
	}
	var lines []line
	for decoder := json.NewDecoder(&out); ; {
		var l line
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if len(lines) != 3 || lines[0].Status != 202 || lines[0].TraceID != "trace-1" || lines[0].EventID != "e1" {
		t.Fatalf("got %+v", lines)
	}
	if l := lines[1]; l.Status != 400 || l.TraceID != "t2" || l.Problem != "source: is required" || l.Where != "stdin:2" {
		t.Errorf("got %+v", l)
	}
	if s := lines[2].Summary; s.Events != 2 || s.Accepted != 1 || s.Statuses["400"] != 1 {
		t.Errorf("got %+v", s)
	}
}

func TestRunRefusesBadInput(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	dir := write(t, map[string]string{
		"line.ndjson": "{}\n{\"eventId\":\n\n}x\n", "open.json": "[{}", "after.json": "[{}] {}", "empty.json": " ", "list.json": "[]",
	})
	good := Config{URL: g.URL, Secret: secret, Inputs: []string{"-"}, Stdin: strings.NewReader("{}")}
	for name, tc := range map[string]struct {
		edit func(*Config)
		want string
	}{
		"no file":        {func(c *Config) { c.Inputs = []string{filepath.Join(dir, "none")} }, "no such file"},
		"no JSON":        {func(c *Config) { c.Inputs = []string{filepath.Join(dir, "line.ndjson")} }, "line.ndjson:2: not JSON"},
		"open list":      {func(c *Config) { c.Inputs = []string{filepath.Join(dir, "open.json")} }, "the list does not end"},
		"after the list": {func(c *Config) { c.Inputs = []string{filepath.Join(dir, "after.json")} }, "more after the list"},
		"empty":          {func(c *Config) { c.Inputs = []string{filepath.Join(dir, "empty.json")} }, "no event"},
		"empty list":     {func(c *Config) { c.Inputs = []string{filepath.Join(dir, "list.json")} }, "no event"},
		"no inputs":      {func(c *Config) { c.Inputs = nil }, "nothing to send"},
		"no secret":      {func(c *Config) { c.Secret = "" }, "HMAC_SECRET"},
		"no URL":         {func(c *Config) { c.URL = "localhost:8080" }, "must look like"},
		"count":          {func(c *Config) { c.Count = -1 }, "count"},
		"rate":           {func(c *Config) { c.Rate = -1 }, "rate"},
		"concurrency":    {func(c *Config) { c.Concurrency = maxConcurrency + 1 }, "concurrency"},
	} {
		cfg := good
		tc.edit(&cfg)
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v does not contain %q", name, err, tc.want)
		}
	}
	if len(g.bodies) > 0 {
		t.Errorf("sent %q", g.bodies)
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	g := newGateway(t, func(n int, _ http.ResponseWriter) bool {
		if n == 3 {
			cancel()
		}
		return false
	})
	summary, err := Run(ctx, Config{URL: g.URL, Secret: secret, Inputs: []string{"-"}, Stdin: strings.NewReader(`{}`), Count: 1_000_000, Concurrency: 1})
	if !errors.Is(err, context.Canceled) || summary.Events < 2 || summary.Events > 10 {
		t.Errorf("%+v, %v", summary, err)
	}
}

// waits records what a client waited for, and takes no time.
type waits struct{ got []time.Duration }

func (w *waits) wait(ctx context.Context, d time.Duration) error {
	w.got = append(w.got, d)
	return ctx.Err()
}

func newClient(url string, attempts int) (*client, *waits) {
	w := &waits{}
	return &client{http: newHTTPClient(1), target: url + intakePath, secret: []byte(secret), attempts: attempts, wait: w.wait, notices: &notices{w: io.Discard}}, w
}

func TestSendTriesAgain(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(n int, w http.ResponseWriter) bool {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		case 3:
			w.WriteHeader(http.StatusBadGateway)
		}
		return n <= 3
	})
	c, w := newClient(g.URL, 10)
	defer c.http.CloseIdleConnections()
	res := c.send(t.Context(), newItem([]byte(`{"eventId":"e"}`), "x"))
	if !res.accepted() || res.attempts != 4 || res.traceID != "trace-4" {
		t.Errorf("got %+v", res)
	}
	if len(w.got) != 3 || w.got[0] != 7*time.Second || w.got[1] != longestRetryAfter || w.got[2] > longestPause || w.got[2] < firstPause {
		t.Errorf("waited %v", w.got)
	}
}

func TestSendGivesUp(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // nobody listens there now
	c, w := newClient("http://"+address, 3)
	res := c.send(t.Context(), newItem([]byte(`{}`), "x"))
	if res.status != 0 || res.attempts != 3 || !res.spent || len(w.got) != 2 || !strings.Contains(res.trouble("it"), "no answer from it (connection refused)") {
		t.Errorf("got %+v after %v", res, w.got)
	}
	if res.problem != "connection refused" {
		t.Errorf("problem %q", res.problem)
	}
}

func TestSendDoesNotRepeatARefusal(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 409, 413, 500, 302} {
		g := newGateway(t, func(_ int, w http.ResponseWriter) bool {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			return true
		})
		c, _ := newClient(g.URL, 10)
		res := c.send(t.Context(), newItem([]byte(`{}`), "x"))
		c.http.CloseIdleConnections()
		if res.status != status || res.attempts != 1 || res.problem != http.StatusText(status) {
			t.Errorf("%d: got %+v", status, res)
		}
	}
}

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "2": 2 * time.Second, "-1": 0, "soon": 0, "99999999999999999999": 0, "2147483647": longestRetryAfter,
		"Thu, 26 Feb 2026 12:00:05 GMT": 5 * time.Second, "Thu, 26 Feb 2026 11:00:00 GMT": 0,
	} {
		if got := parseRetryAfter(value, now); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for attempt := 1; attempt < 100; attempt++ {
		if d := pause(attempt); d < firstPause/2 || d > longestPause {
			t.Errorf("attempt %d: %s", attempt, d)
		}
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tc := range []struct {
		of   []time.Duration
		p    int
		want time.Duration
	}{{nil, 50, 0}, {hundred[:1], 99, 1}, {hundred, 50, 50}, {hundred, 99, 99}, {hundred[:3], 50, 2}} {
		if got := percentile(tc.of, tc.p); got != tc.want {
			t.Errorf("p%d of %d: got %d, want %d", tc.p, len(tc.of), got, tc.want)
		}
	}
}

func TestPrintableKeepsTerminalsSafe(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "-", "evt 1 é": "evt 1 é", "\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`} {
		if got := printable(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}
