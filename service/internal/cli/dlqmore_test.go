package cli_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/cli"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The exchange format, a dead letter in each of its states.
func TestExport(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	db := e.open(t)
	letters := eventing.NewDeadLetters(db.Events)
	ctx := t.Context()
	die(t, db, "0198a000-0000-7000-8000-000000000001", "notification_engine", "smtp: connection refused", 6)
	must(t, letters.Review(ctx, die(t, db, "0198a000-0000-7000-8000-000000000002", "notification_engine", "m", 1), "anna", ""))
	must(t, letters.Schedule(ctx, die(t, db, "0198a000-0000-7000-8000-000000000003", "audit_log", "m", 1), time.Now().Add(time.Hour), "anna", ""))
	must(t, letters.Replay(ctx, die(t, db, "0198a000-0000-7000-8000-000000000004", "audit_log", "m", 1), "anna", ""))
	must(t, letters.Discard(ctx, die(t, db, "0198a000-0000-7000-8000-000000000005", "audit_log", "m", 1), "anna", "a duplicate"))
	resolved := die(t, db, "0198a000-0000-7000-8000-000000000006", "fraud_engine", "m", 2)
	must(t, letters.Replay(ctx, resolved, "anna", ""))
	process(t, db, resolved, 1)
	id, wrapped := eventing.Undecodable([]byte("\xff no JSON"))
	must(t, db.Events.Quarantine(ctx, eventing.Failure{
		Run: eventing.Run{Delivery: eventing.Delivery{EventID: id, Consumer: "fraud_engine", Payload: wrapped}}, Now: noon.Add(time.Hour), State: eventing.StateDead, Attempts: 1,
		Stage: eventing.StageDecode, Reason: eventing.ReasonEnvelopeMalformed, Message: "no JSON", DeadLetterUntil: time.Now().Add(time.Hour),
	}))

	got := e.ok(t, "dlq", "export")
	path := filepath.Join("testdata", "export.ndjson")
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal([]byte(got), want) {
		t.Errorf("export:\n%s\nwant:\n%s", got, want)
	}
	if n := strings.Count(e.ok(t, "dlq", "export", "--open"), "\n"); n != 5 {
		t.Errorf("%d are open, want 5", n)
	}
	if text := e.ok(t, "dlq", "export", "--consumer", "audit_log", "--status", "closed"); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"status":"discarded"`) {
		t.Errorf("export of one consumer: %s", text)
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	die(t, e.open(t), "e1", "billing", "no answer", 1)
	if text := e.ok(t, "dlq", "schedule", "e1", "--at", "2h", "--note", "maintenance"); text != "e1 at billing: scheduled\n" {
		t.Errorf("schedule: %s", text)
	}
	if text := e.ok(t, "dlq", "list"); !strings.Contains(text, "reviewed, replays at "+time.Now().UTC().Add(2*time.Hour).Format("2006-01-02T")) &&
		!strings.Contains(text, "reviewed, replays at ") {
		t.Errorf("list: %s", text)
	}
	if r := object[planned](t, e, "dlq", "plan"); r.Targets != 0 || len(r.Skipped) != 1 || r.Skipped[0].Reason != "scheduled: replays by itself" {
		t.Errorf("plan: %+v", r)
	}
	e.ok(t, "dlq", "unschedule", "e1", "--note", "over")
	if r := e.run(t, "dlq", "unschedule", "e1"); r.code != 1 || !strings.Contains(r.stderr, "e1 at billing is not scheduled") {
		t.Errorf("unschedule again: %+v", r)
	}
	l := e.letters(t)[0]
	if l.Status != "reviewed" || len(l.Notes) != 2 || l.Notes[0].Act != "scheduled" || l.Notes[1].Act != "unscheduled" {
		t.Errorf("dead letter: %+v", l)
	}
	e.ok(t, "dlq", "close", "e1", "--reason", "a test", "--yes")
	if r := e.run(t, "dlq", "schedule", "e1", "--at", "1h"); r.code != 1 || !strings.Contains(r.stderr, "is closed, discarded: it cannot be scheduled; what was discarded is not run again: send the event anew") {
		t.Errorf("schedule a closed one: %+v", r)
	}
}

func TestForce(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	db := e.open(t)
	target := die(t, db, "e1", "search", "index closed", 1)
	force := []string{"dlq", "replay", "e1", "--force", "--consumer", "search", "--note", "rebuilt"}
	if r := e.run(t, append(force, "--yes")...); r.code != 1 || !strings.Contains(r.stderr, "search has not processed it") && !strings.Contains(r.stderr, "without --force") {
		t.Errorf("what was not processed: %+v", r)
	}
	e.ok(t, "dlq", "replay", "e1")
	process(t, db, target, 1)
	if r := e.run(t, "dlq", "replay", "e1"); r.code != 1 || !strings.Contains(r.stderr, "is closed, resolved: it cannot be replayed; its consumer has processed it: --force --consumer NAME runs it again") {
		t.Errorf("without force: %+v", r)
	}
	if r := e.run(t, force...); r.code != 2 || !strings.Contains(r.stderr, "Its effect happens once more") || !strings.Contains(r.stderr, "add --yes") {
		t.Errorf("without a yes: %+v", r)
	}
	if text := e.ok(t, append(force, "--dry-run")...); text != "e1 at search: would be forced\n" {
		t.Errorf("dry run: %s", text)
	}
	r := e.start(t.Context(), cli.Program{Args: force, Interactive: true, Stdin: strings.NewReader("yes\n")})
	if r.code != 0 || r.stdout != "e1 at search: forced\n" || !strings.Contains(r.stderr, "may still refuse to run it again (Policy.RefuseForce)") || strings.Contains(r.stderr, "recorded nowhere") {
		t.Errorf("force: %+v", r)
	}
	l := object[letter](t, e, "dlq", "show", "e1")
	if last := l.Notes[len(l.Notes)-1]; last.Act != "forced" || last.By != "anna" || last.Note != "rebuilt" {
		t.Errorf("acts: %+v", l.Notes)
	}
	if s := object[stats](t, e, "outbox", "stats"); s.Outbox["pending"] == 0 {
		t.Errorf("nothing is sent: %+v", s)
	}
	if r := e.run(t, "dlq", "replay", "e9", "--force", "--consumer", "search", "--yes"); r.code != 1 || !strings.Contains(r.stderr, "not found") || !strings.Contains(r.stderr, "e9 has no dead letter at search") || strings.Contains(r.stderr, "RefuseForce") {
		t.Errorf("of an unknown event: %+v", r)
	}
	must(t, eventing.NewDeadLetters(db.Events).Discard(t.Context(), die(t, db, "e2", "search", "gone", 1), "anna", "a test"))
	if r := e.run(t, "dlq", "replay", "e2", "--force", "--consumer", "search", "--yes"); r.code != 1 || !strings.Contains(r.stderr, "append the event anew") || strings.Contains(r.stderr, "without --force") {
		t.Errorf("of a discarded one: %+v", r)
	}
}
