package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/service/internal/cli"
	"github.com/waybill-go/waybill/service/internal/store"
)

// An unset variable of a shell selects nothing, and above all not everything.
func TestEmptyFlags(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	die(t, e.open(t), "e1", "billing", "no answer", 1)
	for _, args := range []string{
		"dlq list --match=", "dlq plan --consumer=", "dlq groups --reason=", "dlq export --key=", "dlq replay --limit 10 --consumer=", "dlq plan --out=",
		"outbox requeue --event-id=",
	} {
		if r := e.run(t, strings.Fields(args)...); r.code != 2 || !strings.Contains(r.stderr, " is empty: give it a value, or leave it out") || r.stdout != "" {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if r := e.run(t, "dlq", "close", "e1", "--reason", " ", "--yes"); r.code != 2 || !strings.Contains(r.stderr, "--reason must say why") {
		t.Errorf("close without a reason: %+v", r)
	}
	if r := e.run(t, "dlq", "show", "e1", "--consumer", ""); r.code != 1 || !strings.Contains(r.stderr, `"e1" has no dead letter at consumer ""; it has:`+"\n  e1 at billing (pending)") {
		t.Errorf("show at no consumer: %+v", r)
	}
}

// The commands that are printed work on the same databases and select the same.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	address := sqliteURL(t)
	e := application(t, address)
	die(t, e.open(t), "e1", "billing", "no answer", 1)
	delete(e, "STORE_URL")
	text := e.ok(t, "dlq", "groups", "--store", address, "--since", "2026-02-26", "--until", "2099-01-01", "--type", "order.placed", "--key", "order/7",
		"--status", "pending", "--stage", "handle", "--match", "payload.amount > 1 || true")
	want := "waybill dlq plan --consumer billing --reason DOWNSTREAM_TIMEOUT_EXHAUSTED --error 'no answer' --type order.placed --stage handle" +
		" --since 2026-02-26 --until 2099-01-01 --key order/7 --status pending --match 'payload.amount > 1 || true' --store " + address + "\n"
	if !strings.Contains(text, "    replay:  "+want) || !strings.Contains(text, "waybill dlq show e1 --consumer billing --store "+address+"\n") {
		t.Errorf("groups:\n%s\nwant %s", text, want)
	}
	path := filepath.Join(t.TempDir(), "a plan.json")
	if text := e.ok(t, "dlq", "plan", "--out", path, "--store", address); !strings.Contains(text, "waybill dlq apply '"+path+"' --store "+address+"\n") {
		t.Errorf("plan: %s", text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := &stopsAt{stop: cancel}
	r := e.start(ctx, cli.Program{
		Args: []string{"dlq", "apply", path, "--rate", "5", "--note", "it's fixed", "--store", address}, Interactive: true, Stdin: started,
	})
	if r.code != 1 || !strings.Contains(r.stderr, "1 left; to go on: waybill dlq apply '"+path+`' --rate 5 --note 'it'\''s fixed' --store `+address) {
		t.Errorf("interrupted: %+v", r)
	}
}

// stopsAt says yes, and then interrupts.
type stopsAt struct{ stop func() }

func (s *stopsAt) Read(b []byte) (int, error) {
	s.stop()
	return copy(b, "y\n"), nil
}

// What --match cannot decide about is told, counted, and ends with exit code 3.
func TestUndecidedMatches(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	db := e.open(t)
	die(t, db, "e1", "billing", "no answer", 1)
	for args, hint := range map[string]bool{"payload.missing > 1": true, "payload == 1 / 0": false} {
		for _, command := range []string{"list", "groups", "plan", "export"} {
			r := e.run(t, "dlq", command, "--json", "--match", args)
			if r.code != 3 || !strings.Contains(r.stderr, "--match fails for 1 dead letter, which is left out; the first is e1 at billing: ") || strings.Contains(r.stderr, "has(payload.amount)") != hint {
				t.Errorf("%s --match %q: %+v", command, args, r)
			}
			if command != "export" && decode[struct{ Undecided int }](t, r.stdout).Undecided != 1 {
				t.Errorf("%s does not count them: %s", command, r.stdout)
			}
		}
	}
	for _, match := range []string{"event.typ == 'x'", "letter.age > 1", "event.type"} {
		if r := e.run(t, "dlq", "list", "--match", match); r.code != 2 {
			t.Errorf("--match %q: %+v", match, r)
		}
	}
}

func TestListTellsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	db := e.open(t)
	for _, id := range []string{"e1", "e2", "e3"} {
		die(t, db, id, "billing", "no answer", 1)
	}
	for limit, want := range map[string]bool{"2": true, "3": false} {
		r := e.run(t, "dlq", "list", "--json", "--limit", limit)
		got := decode[struct {
			Truncated   bool
			DeadLetters []letter `json:"dead_letters"`
		}](t, r.stdout)
		if got.Truncated != want || len(got.DeadLetters) != map[bool]int{true: 2, false: 3}[want] || strings.Contains(r.stderr, "raise --limit") != want {
			t.Errorf("limit %s: %+v", limit, r)
		}
	}
	for _, command := range []string{"list", "groups"} {
		if text := e.ok(t, "dlq", command, "--reason", "NONE"); !strings.Contains(text, "None of the open dead letters matches; there are others") {
			t.Errorf("%s: %s", command, text)
		}
	}
	if text := e.ok(t, "dlq", "show", "e1", "--json"); !strings.Contains(text, `"event": {`) {
		t.Errorf("show: %s", text)
	}
	if r := e.run(t, "dlq", "show", "e1", "--consumer", "nope"); !strings.Contains(r.stderr, `"e1" has no dead letter at consumer "nope"; it has:`+"\n  e1 at billing (pending)") {
		t.Errorf("show at another consumer: %+v", r)
	}
	e.ok(t, "dlq", "review", "e1")
	if r := e.run(t, "dlq", "review", "e1"); r.code != 1 || !strings.Contains(r.stderr, "is reviewed already: replay, schedule or close it") {
		t.Errorf("review again: %+v", r)
	}
	if s := object[map[string]any](t, e, "outbox", "stats")["dead_letter_consumers"].(map[string]any); len(s) != 4 || s["closed"] != 0.0 {
		t.Errorf("stats: %v", s)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	die(t, e.open(t), "e1", "billing", "no answer", 1)
	for args, code := range map[string]int{
		"list --since 7d": 0, "list --since 2026-02-26": 0, "list --since 7x": 2, "list --since 99999d": 2, "list --since=-1d": 2,
		"schedule e1 --at 9999h": 2, "schedule e1 --at 367d": 2, "schedule e1 --at 30d": 0,
	} {
		if r := e.run(t, append([]string{"dlq"}, strings.Fields(args)...)...); r.code != code {
			t.Errorf("%s: %+v, want exit code %d", args, r, code)
		}
	}
	address := e["STORE_URL"]
	if r := e.run(t, "dlq", "plan", "--store", address, "--store", address); r.code != 2 || !strings.Contains(r.stderr, "is given twice with --store") {
		t.Errorf("a store twice: %+v", r)
	}
}

// A plan by force may come to nothing at a consumer; with --json, too, people see what they are asked about.
func TestApplyByForceTells(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	db := e.open(t)
	target := die(t, db, "e1", "search", "index closed", 1)
	e.ok(t, "dlq", "replay", "e1")
	process(t, db, target, 1)
	path, _ := e.planFile(t, "--force")
	r := e.start(t.Context(), cli.Program{Args: []string{"dlq", "apply", path, "--json"}, Interactive: true, Stdin: strings.NewReader("y\n")})
	if r.code != 0 || !strings.Contains(r.stderr, "1 dead letter of search in sqlite:") || !strings.Contains(r.stderr, "Policy.RefuseForce") || !json.Valid([]byte(r.stdout)) {
		t.Errorf("apply: %+v", r)
	}
}

// coded is like an error of SQLite's driver.
type coded int

func (coded) Error() string { return "database is locked" }
func (c coded) Code() int   { return int(c) }

func TestBusy(t *testing.T) {
	t.Parallel()
	if !store.Busy(coded(5)) || !store.Busy(coded(517)) || store.Busy(coded(1)) || store.Busy(os.ErrNotExist) {
		t.Error("SQLITE_BUSY is not told from other errors")
	}
}
