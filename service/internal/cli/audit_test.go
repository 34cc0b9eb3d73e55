package cli_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/cli"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
)

const projection = "shipment-projection"

// audited is what an audit prints as JSON.
type audited struct {
	code     int
	findings []string // sorted
	summary  summary
	file     string // all of it
}

type summary struct {
	Rows       int `json:"event_outbox"`
	Consumers  map[string]map[string]int
	Missing    int
	Unknown    int
	OldestSent *time.Time `json:"oldest_sent_at"`
}

func (e environment) audit(t *testing.T, p cli.Program) (a audited) {
	t.Helper()
	p.Args = append([]string{"audit", "--json", "--grace", "1ns"}, p.Args...)
	r := e.start(t.Context(), p)
	a.code = r.code
	ended := false
	for line := range strings.Lines(r.stdout) {
		f := decode[struct {
			EventID        string `json:"event_id"`
			Standing       string
			CourierEventID string `json:"courier_event_id"`
			Source         string
			Summary        *summary
		}](t, line)
		switch {
		case ended:
			t.Errorf("after the summary: %s", line)
		case f.Summary != nil:
			a.summary, ended = *f.Summary, true
		case f.Source == "":
			a.findings = append(a.findings, f.Standing+" "+f.EventID)
		default:
			a.findings = append(a.findings, f.Standing+" "+f.CourierEventID+" of "+f.Source)
		}
	}
	if !ended {
		t.Fatalf("no summary: %+v", r)
	}
	slices.Sort(a.findings)
	if a.file = filepath.Join(t.TempDir(), "audit.ndjson"); os.WriteFile(a.file, []byte(r.stdout), 0o600) != nil {
		t.Fatal("the file cannot be written")
	}
	return a
}

// lose has the broker lose events on their way to the worker, by the couriers' ids: the
// worker has never seen them.
func (e environment) lose(t *testing.T, eventIDs ...string) {
	t.Helper()
	if e.onMongo() {
		e.loseOnMongo(t, eventIDs)
		return
	}
	for _, id := range eventIDs {
		e.exec(t, `DELETE FROM processed_events WHERE event_id IN (SELECT envelope_id FROM courier_ledger WHERE event_id = $1)`, id)
		e.exec(t, `DELETE FROM shipment_events WHERE event_id = $1`, id)
	}
}

// unkept removes an event from the outbox, by the courier's id.
func (e environment) unkept(t *testing.T, eventID string) {
	t.Helper()
	if e.onMongo() {
		e.unkeptOnMongo(t, eventID)
		return
	}
	e.exec(t, `DELETE FROM event_outbox WHERE event_id IN (SELECT envelope_id FROM courier_ledger WHERE event_id = $1)`, eventID)
}

// exec changes the database beside everybody.
func (e environment) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	s, err := store.Open(t.Context(), e["STORE_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
		r, err := tx.ExecContext(t.Context(), query, args...)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return fmt.Errorf("%s: %d rows, %w", query, n, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAudit(t *testing.T) { t.Parallel(); testAudit(t, newEnvironment(t)) }
func TestAuditOnPostgres(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e["STORE_URL"] = testserver.PostgresURL(t)
	testAudit(t, e)
}
func TestAuditOnMongo(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e["STORE_URL"] = testserver.MongoURL(t)
	testAudit(t, e)
}

func testAudit(t *testing.T, e environment) {
	t.Helper()
	e["HMAC_SECRET"], e["ADMIN_TOKEN"] = "hunter2-hmac", "hunter2-token"
	g := e.gateway(t, "--json")
	url := decode[struct{ URL string }](t, g.stdout.String()).URL
	e.ok(t, "send", samples, "--url", url)
	e.quiet(t, 13)
	g.stop()
	if a := e.audit(t, cli.Program{}); a.code != 0 || a.findings != nil || a.summary.OldestSent == nil ||
		a.summary.Consumers[projection]["processed"] != 12 || a.summary.Consumers[projection]["dead"] != 1 {
		t.Errorf("audit of all that was sent: %+v", a)
	}
	if text := e.ok(t, "audit"); !strings.Contains(text, projection+"  processed  12\n") || strings.Contains(text, "requeue") {
		t.Errorf("audit: %s", text)
	}

	e.lose(t, "evt_123", "evt_131") // the first of two couriers
	lost := []string{"missing evt_123 of courier-x", "missing evt_123 of northpost", "missing evt_131 of northpost"}
	a := e.audit(t, cli.Program{})
	if a.code != 3 || !slices.Equal(a.findings, lost) || a.summary.Missing != 3 || a.summary.Consumers[projection]["missing"] != 3 {
		t.Errorf("audit of what was lost: %+v", a)
	}
	if r := e.run(t, "audit", "--grace", "1ns"); r.code != 3 || !strings.Contains(r.stdout, "evt_131  northpost  "+projection+"  missing") ||
		!strings.Contains(r.stdout, "\n    gateway audit --json --grace 1ns > audit.ndjson\n    gateway outbox requeue --from-audit audit.ndjson\n") || !strings.Contains(r.stderr, "3 events are missing, 0 unknown") {
		t.Errorf("audit: %+v", r)
	}
	if r := e.run(t, "audit", "--grace", "1h"); r.code != 0 || !strings.Contains(r.stdout, "in_flight  3\n") {
		t.Errorf("with a long grace: %+v", r)
	}
	if text := e.ok(t, "audit", "--grace", "1ns", "--until", "1h"); strings.Contains(text, projection) {
		t.Errorf("of another time: %s", text)
	}
	e.auditList(t)

	if text := e.ok(t, "outbox", "requeue", "--from-audit", a.file, "--dry-run"); text != "3 events would be sent again.\n" {
		t.Errorf("requeue, dry: %s", text)
	}
	// One of them is not kept any more.
	e.unkept(t, "evt_131")
	if a := e.audit(t, cli.Program{Args: []string{"--ids", "-"}, Stdin: strings.NewReader("evt_131\nevt_never\n")}); !slices.Equal(a.findings, []string{"unknown evt_131 of northpost", "unknown evt_never"}) {
		t.Errorf("audit of what was accepted, and of what was not: %+v", a)
	}
	if r := e.run(t, "outbox", "requeue", "--event-id", "evt_131"); r.code != 3 || !strings.Contains(r.stdout, "\n  evt_131 of northpost\n") {
		t.Errorf("requeue by the courier's id: %+v", r)
	}
	file, err := os.Open(a.file)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := e.start(t.Context(), cli.Program{Args: []string{"outbox", "requeue", "--from-audit", "-"}, Stdin: file})
	if r.code != 3 || !strings.Contains(r.stdout, "2 events will be sent again.\n1 event not kept any more") || !strings.Contains(r.stdout, "\n  evt_131 of northpost\n") ||
		!strings.Contains(r.stderr, "1 event cannot be sent again") {
		t.Errorf("requeue: %+v", r)
	}
	if a := e.audit(t, cli.Program{}); a.code != 0 || a.summary.Consumers[projection]["pending"] != 2 {
		t.Errorf("audit of what is sent again: %+v", a)
	}
	g = e.gateway(t)
	e.quiet(t, 12)
	g.stop()
	if a := e.audit(t, cli.Program{}); a.code != 0 || a.findings != nil || a.summary.Consumers[projection]["processed"] != 11 {
		t.Errorf("audit after that: %+v", a)
	}
	if text := e.ok(t, "outbox", "requeue", "--from-audit", e.audit(t, cli.Program{}).file); text != "Nothing is missing by that audit.\n" {
		t.Errorf("requeue of nothing: %s", text)
	}
	e.requeueMany(t)
	if r := e.run(t, "outbox", "requeue", "--event-id", "evt_141", "--event-id", "evt_120"); r.code != 3 || !strings.Contains(r.stdout, "1 event will be sent again.") ||
		!strings.Contains(r.stdout, "1 event dead, not sent; what can be done about it: gateway dlq show ID:\n  evt_141 of courier-x\n") {
		t.Errorf("requeue of what is dead: %+v", r)
	}
}

// requeueMany names the first of many that are gone, as the audit did.
func (e environment) requeueMany(t *testing.T) {
	t.Helper()
	var audited strings.Builder
	for i := range 5 * eventing.AuditBatch {
		fmt.Fprintf(&audited, `{"event_id":"gone-%05d","standing":"missing","courier_event_id":"evt_%d","source":"northpost"}`+"\n", i, i)
	}
	audited.WriteString(`{"summary":{}}` + "\n")
	r := e.start(t.Context(), cli.Program{Args: []string{"outbox", "requeue", "--from-audit", "-"}, Stdin: strings.NewReader(audited.String())})
	if r.code != 3 || !strings.Contains(r.stdout, "5000 events not kept any more") || !strings.Contains(r.stdout, ":\n  evt_0 of northpost\n  evt_1 of northpost\n") {
		t.Errorf("requeue of what is gone: %d, %s %s", r.code, r.stdout, r.stderr)
	}
}

// auditList has a client ask about its own ids.
func (e environment) auditList(t *testing.T) {
	t.Helper()
	a := e.audit(t, cli.Program{
		Args: []string{"--ids", "-"}, Stdin: strings.NewReader("evt_124\nevt_123\r\n\n evt_141\nevt_never\nevt_123\nevt_never\n"),
	})
	want := []string{"missing evt_123 of courier-x", "missing evt_123 of northpost", "unknown evt_never"}
	if a.code != 3 || !slices.Equal(a.findings, want) || a.summary.Unknown != 1 || a.summary.Rows != 4 {
		t.Errorf("audit of a list: %+v", a)
	}
	for _, test := range []struct{ list, want string }{
		{"evt_124\n" + strings.Repeat("x", 5000), "one a line"},
		{"evt_124\n\xff\n", "line 2 is not text"},
		{"evt_124\x00\n", "line 1 is not text"},
	} {
		r := e.start(t.Context(), cli.Program{Args: []string{"audit", "--ids", "-"}, Stdin: strings.NewReader(test.list)})
		if r.code != 1 || !strings.Contains(r.stderr, test.want) || r.stdout != "" {
			t.Errorf("audit of a list that is none: %+v, want %s", r, test.want)
		}
	}
}

// TestAuditNamesTheFirst has more findings than people read.
func TestAuditNamesTheFirst(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e.ok(t, "migrate", "up")
	var list strings.Builder
	for i := range 1234 {
		fmt.Fprintf(&list, "evt_%04d\n", i)
	}
	r := e.start(t.Context(), cli.Program{Args: []string{"audit", "--ids", "-"}, Stdin: strings.NewReader(list.String())})
	if r.code != 3 || strings.Count(r.stdout, "evt_") != 20 || !strings.Contains(r.stdout, "\nand 1214 more; --json lists all.\n") ||
		!strings.Contains(r.stderr, "0 events are missing, 1234 unknown") {
		t.Errorf("audit: %+v", r)
	}
	if a := e.audit(t, cli.Program{Args: []string{"--ids", "-"}, Stdin: strings.NewReader(list.String())}); len(a.findings) != 1234 {
		t.Errorf("as JSON there are %d", len(a.findings))
	}
}

func TestAuditUsage(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e.ok(t, "migrate", "up")
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "audit.ndjson")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"audit --grace 0s", 2, "--grace must be positive"},
		{"audit --since 1h --until 2h", 2, "--until must lie after --since"},
		{"audit --ids missing.txt", 1, "missing.txt"},
		{"outbox requeue --from-audit x --since 1h", 2, "--from-audit goes alone"},
		{"outbox requeue --from-audit x --event-id e", 2, "--from-audit goes alone"},
		{"outbox requeue --from-audit missing.ndjson", 1, "missing.ndjson"},
		{"outbox requeue --from-audit " + write(""), 1, "summary"},
		{"outbox requeue --from-audit " + write(`{"event_id":"e1","standing":"missing"}`+"\n"), 1, "it was cut off"},
		{"outbox requeue --from-audit " + write("evt_1\n"), 1, "gateway audit --json"},
	} {
		if r := e.run(t, strings.Fields(test.args)...); r.code != test.code || !strings.Contains(r.stderr, test.want) || r.stdout != "" {
			t.Errorf("%s: %+v, want %d and %q", test.args, r, test.code, test.want)
		}
	}
}

// An id may be that of several couriers' events, and that of another event's envelope,
// which anybody can compute: an audit of it accounts for all of them.
func TestAuditOfAnAmbiguousID(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e["HMAC_SECRET"], e["ADMIN_TOKEN"] = "hunter2-hmac", "hunter2-token"
	g := e.gateway(t, "--json")
	url := decode[struct{ URL string }](t, g.stdout.String()).URL
	e.ok(t, "send", samples, "--url", url)
	e.quiet(t, 13)
	g.stop()
	e.lose(t, "evt_131")
	envelope := courier.EventID("northpost", "northpost:evt_131")
	e.exec(t, `UPDATE courier_ledger SET event_id = $1 WHERE event_id = 'evt_124'`, envelope)
	ask := func(id string, args ...string) audited {
		t.Helper()
		return e.audit(t, cli.Program{Args: append([]string{"--ids", "-"}, args...), Stdin: strings.NewReader(id)})
	}
	if a := ask(envelope); a.code != 3 || a.summary.Rows != 2 || !slices.Equal(a.findings, []string{"missing evt_131 of northpost"}) {
		t.Errorf("an envelope's id that is a courier's, too: %+v", a)
	}
	if a := ask("evt_123"); a.code != 0 || a.summary.Rows != 2 {
		t.Errorf("two couriers' id: %+v", a)
	}
	if a := ask("evt_123", "--source", "northpost"); a.code != 0 || a.summary.Rows != 1 {
		t.Errorf("one courier's id: %+v", a)
	}
	if a := ask("evt_131", "--source", "courier-x"); a.code != 3 || a.summary.Unknown != 1 {
		t.Errorf("an id that this courier does not have: %+v", a)
	}
	if r := e.start(t.Context(), cli.Program{Args: []string{"audit", "--ids", "-"}, Stdin: strings.NewReader("\n")}); r.code != 1 || !strings.Contains(r.stderr, "empty") {
		t.Errorf("an empty list: %+v", r)
	}
}
