package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/cli"
)

type attempt struct {
	Attempt   int
	ErrorCode string
}

type letter struct {
	EventID        string `json:"event_id"`
	Consumer       string `json:"consumer_name"`
	CourierEventID string `json:"courier_event_id"`
	Source         string
	Reason         string    `json:"reason_code"`
	AttemptCount   int       `json:"attempt_count"`
	History        []attempt `json:"attempt_history"`
	Status         string
	Resolution     string
	Notes          []struct{ Act, By, Note string }
	Event          struct {
		Payload struct{ EventID string }
	}
}

func (e environment) letters(t *testing.T, args ...string) []letter {
	t.Helper()
	return object[struct {
		DeadLetters []letter `json:"dead_letters"`
	}](t, e, append([]string{"dlq", "list"}, args...)...).DeadLetters
}

type stats struct {
	Outbox      map[string]int `json:"event_outbox"`
	Inbox       int            `json:"processed_events"`
	Deliveries  map[string]int `json:"event_deliveries"`
	DeadLetters map[string]int `json:"dead_letter_consumers"`
	PendingAge  *float64       `json:"oldest_pending_age_seconds"`
	OldestSent  *string        `json:"oldest_sent_at"`
}

// quiet waits until the gateway has done all that it can with so many events.
func (e environment) quiet(t *testing.T, events int) stats {
	t.Helper()
	return eventually(t, func() stats { return object[stats](t, e, "outbox", "stats") }, func(s stats) bool {
		return s.Outbox["pending"] == 0 && s.Inbox+s.Deliveries["dead"] == events
	})
}

// TestLife is what somebody new does: the commands that run prints, and then
// those for what has gone wrong.
func TestLife(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	g := e.gateway(t)
	printed := regexp.MustCompile(`(?s)serves at (http://127\.0\.0\.1:\d+)\n.*` +
		`  export PATH="\$PWD/bin:\$PATH" HMAC_SECRET=(\w{64}) ADMIN_TOKEN=(\w{64}) STORE_URL=(\S+)\n` +
		`  gateway send examples/couriers/samples.ndjson --rate 20 --url (\S+)\n` +
		`  curl -H "Authorization: Bearer \$ADMIN_TOKEN" (\S+/v1/shipments/shp_456)\n  gateway dlq list\n`).FindStringSubmatch(g.stdout.String())
	if printed == nil {
		t.Fatalf("run printed %s", g.stdout)
	}
	url, secret, token := printed[1], printed[2], printed[3]
	if printed[4] != e["STORE_URL"] || printed[5] != url {
		t.Errorf("the commands are others' : %q", printed)
	}

	e["HMAC_SECRET"] = secret
	if text := e.ok(t, "send", samples, "--rate", "20", "--url", printed[5]); !strings.Contains(text, "13 accepted") {
		t.Errorf("send: %s", text)
	}
	s := e.quiet(t, 13)
	if s.Outbox["sent"] != 12 || s.Outbox["failed"] != 1 || s.Inbox != 12 || s.DeadLetters["pending"] != 1 || s.PendingAge != nil || s.OldestSent == nil {
		t.Errorf("stats: %+v", s)
	}
	if text := e.ok(t, "outbox", "stats"); !regexp.MustCompile(`event_outbox +sent +12\n`).MatchString(text) || !strings.Contains(text, "oldest pending: -\n") {
		t.Errorf("stats: %s", text)
	}
	shipment := decode[struct{ CurrentState, LastEventID string }](t, get(t, printed[6], token))
	if shipment.CurrentState != "delivered" || shipment.LastEventID != "evt_124" {
		t.Errorf("shipment: %+v", shipment)
	}
	late := decode[struct {
		Events []struct{ Status, Outcome string }
	}](t, get(t, url+"/v1/events/evt_122", token))
	if len(late.Events) != 1 || late.Events[0].Status != "processed" || late.Events[0].Outcome != "late" {
		t.Errorf("late event: %+v", late)
	}

	e.operate(t)
	closed := decode[struct {
		Events []struct {
			Status     string
			DeadLetter struct{ ReviewStatus, Resolution string }
		}
	}](t, get(t, url+"/v1/events/evt_141", token))
	if len(closed.Events) != 1 || closed.Events[0].Status != "dead_lettered" || closed.Events[0].DeadLetter.ReviewStatus != "closed" ||
		closed.Events[0].DeadLetter.Resolution != "discarded" {
		t.Errorf("event that was given up: %+v", closed)
	}

	if code := g.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, s := range []string{secret, token} {
		if strings.Contains(g.stderr.String(), s) {
			t.Errorf("the log tells a secret: %s", g.stderr)
		}
	}
	if !strings.Contains(g.stderr.String(), "INVALID_STATUS") || !strings.Contains(g.stderr.String(), "gateway stops") ||
		!strings.HasSuffix(g.stderr.String(), "msg=\"gateway stopped\"\n") {
		t.Errorf("log: %s", g.stderr)
	}
}

// operate looks after the dead letter of the samples.
func (e environment) operate(t *testing.T) {
	t.Helper()
	letters := e.letters(t)
	if len(letters) != 1 {
		t.Fatalf("dead letters: %+v, want one", letters)
	}
	l := letters[0]
	if l.CourierEventID != "evt_141" || l.Source != "courier-x" || l.Reason != "INVALID_STATUS" || l.Status != "pending" || l.AttemptCount != 1 ||
		len(l.History) != 1 || l.History[0] != (attempt{1, "INVALID_STATUS"}) {
		t.Errorf("dead letter: %+v", l)
	}
	if text := e.ok(t, "dlq", "list"); !regexp.MustCompile(`(?m)^evt_141 +courier-x +shipment-projection +INVALID_STATUS +1 +pending +0 +\d+s +` + l.EventID + `$`).MatchString(text) {
		t.Errorf("list: %s", text)
	}
	if text := e.ok(t, "dlq", "show", "evt_141"); !strings.Contains(text, "Attempts\n  1  ") || !strings.Contains(text, `"shipmentId": "shp_457"`) {
		t.Errorf("show: %s", text)
	}
	if shown := object[letter](t, e, "dlq", "show", l.EventID); shown.EventID != l.EventID || shown.Event.Payload.EventID != "evt_141" {
		t.Errorf("show by the envelope's id: %+v", shown)
	}
	if r := e.run(t, "dlq", "show", "evt_124"); r.code != 1 || !strings.Contains(r.stderr, "gateway dlq list --all") {
		t.Errorf("show what is not dead: %+v", r)
	}

	e.ok(t, "dlq", "review", "evt_141", "--note", "asked the courier")
	if r := e.run(t, "dlq", "review", "evt_141"); r.code != 1 || !strings.Contains(r.stderr, "is reviewed already: replay, schedule or close it") {
		t.Errorf("review again: %+v", r)
	}
	if text := e.ok(t, "dlq", "replay", "evt_141", l.EventID, "--dry-run"); strings.Count(text, "would be replayed") != 1 {
		t.Errorf("dry run: %s", text)
	}
	if reviewed := e.letters(t, "--status", "reviewed"); len(reviewed) != 1 {
		t.Errorf("a dry run has changed something: %+v", e.letters(t))
	}
	if text := e.ok(t, "dlq", "plan", "--match", `payload.eventId == "evt_141"`); !strings.Contains(text, "1 dead letter would be replayed; 0 parked behind would follow; 0 left out.\n") {
		t.Errorf("plan: %s", text)
	}
	e.ok(t, "dlq", "replay", "--limit", "5", "--by", "bob", "--note", "try again")
	again := eventually(t, func() letter { return object[letter](t, e, "dlq", "show", "evt_141") }, func(l letter) bool { return l.Status == "pending" })
	if again.AttemptCount != 2 || len(again.History) != 2 || len(again.Notes) != 2 || again.Notes[0].By != "anna" || again.Notes[1].By != "bob" ||
		again.Notes[1].Note != "try again" {
		t.Errorf("after the replay: %+v", again)
	}

	if r := e.run(t, "dlq", "close", "evt_141", "--reason", "test"); r.code != 2 || !strings.Contains(r.stderr, "evt_141 of courier-x") || !strings.Contains(r.stderr, "--yes") {
		t.Errorf("close without a yes: %+v", r)
	}
	if r := e.start(t.Context(), cli.Program{Args: []string{"dlq", "close", "evt_141", "--reason", "test"}, Interactive: true, Stdin: strings.NewReader("no\n")}); r.code != 1 {
		t.Errorf("close with a no: %+v", r)
	}
	if len(e.letters(t)) != 1 {
		t.Fatal("it was closed without a yes")
	}
	if r := e.start(t.Context(), cli.Program{Args: []string{"dlq", "close", "evt_141", "--reason", "test"}, Interactive: true, Stdin: strings.NewReader("y\n")}); r.code != 0 {
		t.Errorf("close with a yes: %+v", r)
	}
	if text := e.ok(t, "dlq", "list"); text != "No open dead letters (--all shows closed ones).\n" {
		t.Errorf("open ones: %s", text)
	}
	if text := e.ok(t, "dlq", "list", "--all"); !strings.Contains(text, "closed, discarded") {
		t.Errorf("all: %s", text)
	}
	if closed := e.letters(t, "--all"); len(closed) != 1 || closed[0].Status != "closed" || closed[0].Resolution != "discarded" {
		t.Errorf("closed ones: %+v", closed)
	}
	if r := e.run(t, "dlq", "replay", "evt_141"); r.code != 1 || !strings.Contains(r.stderr, "is closed, discarded: it cannot be replayed") {
		t.Errorf("replay a closed one: %+v", r)
	}

	if r := e.run(t, "dlq", "close", "evt_141", "--reason", "test"); r.code != 1 || !strings.Contains(r.stderr, "is closed, discarded: it cannot be discarded") || strings.Contains(r.stderr, "--yes") {
		t.Errorf("close a closed one: %+v", r)
	}
	if text := e.ok(t, "dlq", "replay", "--limit", "5"); text != "No such dead letter is pending or reviewed.\n" {
		t.Errorf("replay of what is closed: %s", text)
	}

	if text := e.ok(t, "outbox", "requeue", "--since", "1h", "--dry-run"); text != "12 events would be sent again.\n" {
		t.Errorf("requeue, dry: %s", text)
	}
	if text := e.ok(t, "outbox", "requeue", "--since", "2h", "--until", "1h"); !strings.Contains(text, "the oldest sent event that is kept was sent at") {
		t.Errorf("requeue nothing: %s", text)
	}
	// Two couriers call an event of theirs so.
	if n := object[struct{ Requeued int }](t, e, "outbox", "requeue", "--event-id", "evt_123").Requeued; n != 2 {
		t.Errorf("requeued %d, want 2", n)
	}
	if s := e.quiet(t, 12); s.Inbox != 12 {
		t.Errorf("after requeueing: %+v", s)
	}
}

func TestLifeOnPostgres(t *testing.T) { t.Parallel(); testLifeOnServer(t, testserver.PostgresURL(t)) }
func TestLifeOnMongo(t *testing.T)    { t.Parallel(); testLifeOnServer(t, testserver.MongoURL(t)) }

// testLifeOnServer is the same where nothing is made up and nobody is new.
func testLifeOnServer(t *testing.T, address string) {
	t.Helper()
	e := newEnvironment(t)
	e["STORE_URL"] = address
	if r := e.run(t, "run"); r.code != 2 || !strings.Contains(r.stderr, "openssl rand -hex 32") || r.stdout != "" {
		t.Errorf("run without secrets: %+v", r)
	}
	if r := e.run(t, "dlq", "list"); r.code != 1 || !strings.Contains(r.stderr, "gateway migrate up") {
		t.Errorf("list of a database without tables: %+v", r)
	}
	e["HMAC_SECRET"], e["ADMIN_TOKEN"] = "hunter2-hmac", "hunter2-token"
	g := e.gateway(t)
	url, found := strings.CutPrefix(strings.TrimSpace(g.stdout.String()), "The gateway serves at ")
	if !found {
		t.Fatalf("run printed %s", g.stdout)
	}
	e.ok(t, "send", samples, "--url", url)
	e.quiet(t, 13)
	e.operate(t)
}

func TestGivenSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		e := newEnvironment(t)
		e["HMAC_SECRET"], e["ADMIN_TOKEN"], e["LOG_LEVEL"], e["LOG_FORMAT"] = "hunter2-hmac", "hunter2-token", "debug", format
		g := e.gateway(t)
		url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(g.stdout.String())
		sent := e.ok(t, "send", samples, "--url", url)
		e.quiet(t, 13)
		get(t, url+"/v1/shipments/shp_456", e["ADMIN_TOKEN"])
		g.stop()
		if !strings.Contains(g.stdout.String(), `HMAC_SECRET and ADMIN_TOKEN: as given`) {
			t.Errorf("run printed %s", g.stdout)
		}
		if all := g.stdout.String() + g.stderr.String() + sent; strings.Contains(all, "hunter2") {
			t.Errorf("a secret is printed: %s", all)
		}
		if json := strings.HasPrefix(g.stderr.String(), "{"); json != (format == "json") {
			t.Errorf("log format: %s", g.stderr)
		}
	}
}

// Two couriers may use one event id: whoever acts has to say which is meant.
func TestOneIDOfTwoCouriers(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	g := e.gateway(t, "--json")
	made := decode[struct {
		URL        string
		HMACSecret string `json:"hmac_secret"`
	}](t, g.stdout.String())
	e["HMAC_SECRET"], e["GATEWAY_URL"] = made.HMACSecret, made.URL
	var lines strings.Builder
	for _, source := range []string{"courier-x", "northpost"} {
		lines.WriteString(`{"eventId":"evt_1","eventType":"scan","occurredAt":"2026-02-26T12:00:00Z","source":"` + source + `","idempotencyKey":"` + source +
			`:evt_1","payload":{"shipmentId":"shp_1","status":"\u001b[2J?!"}}` + "\n")
	}
	file := filepath.Join(t.TempDir(), "events.ndjson")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	e.ok(t, "send", file)
	e.quiet(t, 2)
	for _, args := range []string{"show evt_1", "replay evt_1", "close evt_1 --reason test --yes"} {
		r := e.run(t, append([]string{"dlq"}, strings.Fields(args)...)...)
		if r.code != 2 || !strings.Contains(r.stderr, "evt_1 of courier-x at shipment-projection (pending)") ||
			!strings.Contains(r.stderr, "evt_1 of northpost") || !strings.Contains(r.stderr, "--source") {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if l := object[letter](t, e, "dlq", "show", "evt_1", "--source", "northpost"); l.Source != "northpost" {
		t.Errorf("show: %+v", l)
	}
	if text := e.ok(t, "dlq", "show", "evt_1", "--source", "northpost"); strings.Contains(text, "\x1b") {
		t.Errorf("show writes to the terminal: %q", text)
	}
	e.ok(t, "dlq", "close", "evt_1", "--source", "northpost", "--reason", "test", "--yes")
	// Of the two, only one is left to act on.
	e.ok(t, "dlq", "review", "evt_1")
	if left := e.letters(t); len(left) != 1 || left[0].Source != "courier-x" || left[0].Status != "reviewed" {
		t.Errorf("left: %+v", left)
	}
	if shown := e.letters(t, "--consumer", "nobody"); len(shown) != 0 {
		t.Errorf("of another consumer: %+v", shown)
	}
}
