package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// letters records what is done.
type letters struct {
	acts   []string
	filter eventing.DeadLetterFilter
	found  []eventing.DeadLetter
	err    error
}

func (l *letters) List(_ context.Context, f eventing.DeadLetterFilter) ([]eventing.DeadLetter, error) {
	l.filter = f
	return l.found[:min(len(l.found), f.Limit)], l.err
}

func (l *letters) act(name string, t eventing.Target, by, note string) error {
	if l.err == nil {
		l.acts = append(l.acts, fmt.Sprintf("%s %s at %q by %s: %s", name, t.EventID, t.Consumer, by, note))
	}
	return l.err
}

func (l *letters) Review(_ context.Context, t eventing.Target, by, note string) error {
	return l.act("review", t, by, note)
}

func (l *letters) Replay(_ context.Context, t eventing.Target, by, note string) error {
	return l.act("replay", t, by, note)
}

func (l *letters) Discard(_ context.Context, t eventing.Target, by, note string) error {
	return l.act("discard", t, by, note)
}

func act(path, bearer, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/dead-letters/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	return r
}

func TestActs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, want := range map[string]string{
		"e%2F1/w%20x/review": `review e/1 at "w x" by anna: why`,
		"e1/-/replay":        `replay e1 at "" by anna: why`,
		"e1/w/discard":       `discard e1 at "w" by anna: why`,
	} {
		f.letters.acts = nil
		var done acted
		wantJSON(t, f.do(act(path, token, `{"note": "why"}`)), http.StatusOK, &done)
		if len(f.letters.acts) != 1 || f.letters.acts[0] != want || done.By != "anna" {
			t.Errorf("%s: done %q, answered %+v", path, f.letters.acts, done)
		}
	}
	if w := f.do(act("e1/w/replay", token, "")); w.Code != http.StatusOK {
		t.Errorf("without a body: %d %s", w.Code, w.Body)
	}
	if n := strings.Count(f.log.String(), "msg=audit"); n != 4 || !strings.Contains(f.log.String(), "level=INFO msg=audit act=replay eventId=e1 consumer=w by=anna outcome=done status=200") {
		t.Errorf("%d acts in the log: %s", n, f.log)
	}
}

// What is refused changes nothing, and is in the log.
func TestRefusedActs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, path, bearer, body string
		err                      error
		status                   int
		kind, logged             string
	}{
		{"no token", "e1/w/replay", "", "", nil, 401, "invalid-token", `by="" outcome=refused`},
		{"wrong token", "e1/w/replay", "hunter2", "", nil, 401, "invalid-token", `by="" outcome=refused`},
		{"no scope", "e1/w/replay", readToken, "", nil, 403, "insufficient-scope", "by=grafana outcome=refused"},
		{"no note", "e1/w/discard", token, "", nil, 400, "invalid-request", "by=anna outcome=refused"},
		{"long note", "e1/w/replay", token, `{"note": "` + strings.Repeat("n", 4097) + `"}`, nil, 400, "invalid-request", "by=anna outcome=refused"},
		{"unknown field", "e1/w/replay", token, `{"by": "hunter2"}`, nil, 400, "invalid-request", "by=anna outcome=refused"},
		{"two values", "e1/w/replay", token, `{} {}`, nil, 400, "invalid-request", "by=anna outcome=refused"},
		{"large", "e1/w/replay", token, strings.Repeat(" ", maxActBytes+1), nil, 413, "body-too-large", "by=anna outcome=refused"},
		{"long id", strings.Repeat("e", 256) + "/w/replay", token, "", nil, 404, "not-found", "by=anna outcome=refused"},
		{"unknown", "e1/w/replay", token, "", fmt.Errorf("x: %w", eventing.ErrNotFound), 404, "not-found", "by=anna outcome=refused"},
		{"closed", "e1/w/replay", token, "", fmt.Errorf("x: %w", eventing.ErrState), 409, "wrong-state", "by=anna outcome=refused"},
		{"no store", "e1/w/replay", token, "", errStore, 503, "unavailable", "by=anna outcome=unknown"},
	} {
		f := newFixture(t)
		f.letters.err = test.err
		p := wantProblem(t, f.do(act(test.path, test.bearer, test.body)), test.status, "")
		if p.Type != "urn:waybill:problem:"+test.kind || len(f.letters.acts) != 0 {
			t.Errorf("%s: %+v, done %q", test.name, p, f.letters.acts)
		}
		if !strings.Contains(f.log.String(), "level=WARN msg=audit") || !strings.Contains(f.log.String(), test.logged) || strings.Contains(f.log.String(), "hunter2") {
			t.Errorf("%s: log %s", test.name, f.log)
		}
	}
}

func TestListDeadLetters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 3 {
		f.letters.found = append(f.letters.found, eventing.DeadLetter{
			EventID: fmt.Sprint("e", i), Consumer: []string{"w", "", "w"}[i], Status: eventing.StatusPending, CreatedAt: now.Add(time.Duration(i) * time.Microsecond),
		})
	}
	list := func(query string) *http.Request {
		r := read("/v1/dead-letters" + query)
		r.Header.Set("Authorization", "Bearer "+readToken)
		return r
	}
	var page deadLetterPage
	wantJSON(t, f.do(list("?status=pending&consumer=w&limit=2")), http.StatusOK, &page)
	if len(page.DeadLetters) != 2 || page.DeadLetters[1].Consumer != "-" || page.Next == "" || f.letters.filter.Status != eventing.StatusPending || f.letters.filter.Consumer != "w" {
		t.Errorf("page %+v, filter %+v", page, f.letters.filter)
	}
	next := page.Next
	page = deadLetterPage{}
	wantJSON(t, f.do(list("?after="+next)), http.StatusOK, &page)
	if got := f.letters.filter.After; got != f.letters.found[1].Place() || page.Next != "" || f.letters.filter.Limit != defaultPage+1 {
		t.Errorf("after %+v, want that of the second; filter %+v", got, f.letters.filter)
	}
	for query, field := range map[string]string{
		"?status=dead": "status", "?limit=0": "limit", "?limit=1001": "limit", "?limit=": "limit", "?after=x": "after", "?stats=x": "stats", "?consumer=a&consumer=b": "consumer",
	} {
		if p := wantProblem(t, f.do(list(query)), http.StatusBadRequest, field); p.Type != "urn:waybill:problem:invalid-request" {
			t.Errorf("%s: %+v", query, p)
		}
	}
	r := list("")
	r.Header.Del("Authorization")
	wantProblem(t, f.do(r), http.StatusUnauthorized, "")
	f.letters.err = errStore
	if p := wantProblem(t, f.do(list("")), http.StatusServiceUnavailable, ""); strings.Contains(p.Detail, "db.internal") {
		t.Errorf("the answer tells an address: %s", p.Detail)
	}
}

func TestReadScope(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := read("/v1/shipments/shp_456")
	r.Header.Set("Authorization", "Bearer "+readToken)
	if w := f.do(r); w.Code != http.StatusOK {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	w := f.do(httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var document struct{ Paths map[string]json.RawMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/dead-letters", "/v1/dead-letters/{eventId}/{consumer}/replay"} {
		if document.Paths[path] == nil {
			t.Errorf("the document lacks %s", path)
		}
	}
}
