package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/internal/testserver"
)

func TestWaybillHelp(t *testing.T) {
	t.Parallel()
	e := environment{programKey: "waybill"}
	leaves := []string{
		"dlq list", "dlq groups", "dlq show", "dlq review", "dlq plan", "dlq apply", "dlq replay", "dlq schedule", "dlq unschedule", "dlq close", "dlq export",
		"outbox stats", "outbox requeue", "routes lint", "routes explain", "routes diff", "routes test", "routes schema", "migrate up", "migrate status", "migrate sql", "version",
	}
	all := e.ok(t, "--help")
	for _, command := range append([]string{"", "dlq", "outbox", "routes", "migrate"}, leaves...) {
		text := e.ok(t, append(strings.Fields(command), "--help")...)
		if !strings.Contains(text, "Examples:\n\n    ") || !strings.Contains(text, "waybill") {
			t.Errorf("waybill %s --help has no example:\n%s", command, text)
		}
		for _, foreign := range []string{"gateway", "ourier", "--source", "--from-audit", "${"} {
			if strings.Contains(text, foreign) {
				t.Errorf("waybill %s --help speaks of %s:\n%s", command, foreign, text)
			}
		}
	}
	for _, command := range leaves {
		if !strings.Contains(all, "\n  "+command+" ") {
			t.Errorf("waybill --help does not list %s:\n%s", command, all)
		}
		storeless := slices.Contains([]string{"routes lint", "routes test", "routes schema"}, command)
		if text := e.ok(t, append(strings.Fields(command), "--help")...); !strings.Contains(text, "--json") || strings.Contains(text, "--store=URL") == storeless {
			t.Errorf("waybill %s lacks --json, or --store, or has no use for it:\n%s", command, text)
		}
	}
	if text := e.ok(t, "version"); !strings.HasPrefix(text, "waybill ") {
		t.Errorf("version: %s", text)
	}
}

func TestWaybillUsage(t *testing.T) {
	t.Parallel()
	missing := "sqlite:" + filepath.Join(t.TempDir(), "missing.db")
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"dlq list", "say which database: --store", 2},
		{"--store " + missing + " dlq list", "no such file", 1},
		{"dlq list --store sqlite:a --store sqlite:b", "on one database", 2},
		{"--store mysql://u:hunter2@h/x dlq list", "must be sqlite:FILE, postgres://… or mongodb://", 2},
		{"--store " + missing + " dlq plan --match payload.amount>", "line 1, column", 2},
		{"--store " + missing + " dlq plan --match size(payload)", "must yield a bool", 2},
		{"--store " + missing + " dlq plan --stage sending", "one of dispatch, decode, handle, not", 2},
		{"--store " + missing + " dlq plan --since 1h --until 2h", "--until must lie after --since", 2},
		{"--store " + missing + " dlq replay e --source x", "unknown flag --source", 2},
		{"--store " + missing + " dlq replay e --force", "--force goes with ids and --consumer", 2},
		{"--store " + missing + " dlq replay e --yes", "--yes goes with --force", 2},
		{"--store " + missing + " dlq schedule e", "--at", 2},
		{"--store " + missing + " dlq schedule e --at 2020-01-01T00:00:00Z", "--at must lie in the future", 2},
		{"--store " + missing + " dlq schedule e --at soon", "meaning from now", 2},
		{"--store " + missing + " dlq apply plan.json --rate=-1", "--rate must lie between", 2},
		{"--store " + missing + " dlq apply nowhere.json", "nowhere.json", 1},
		{"audit", "unexpected argument audit", 2},
	} {
		e := environment{programKey: "waybill", "USER": "anna"}
		r := e.run(t, strings.Fields(test.args)...)
		if r.code != test.code || !strings.Contains(r.stderr, test.want) || r.stdout != "" || !strings.HasPrefix(r.stderr, "waybill: ") {
			t.Errorf("%s: exit code %d, output %q, error %q; want %d, none, and %q", test.args, r.code, r.stdout, r.stderr, test.code, test.want)
		}
		if strings.Contains(r.stderr, "hunter2") {
			t.Errorf("the error tells a password: %s", r.stderr)
		}
	}
	if _, err := os.Stat(strings.TrimPrefix(missing, "sqlite:")); err == nil {
		t.Error("a database was made")
	}
}

// The library's tables are all that waybill makes, and all that it needs.
func TestWaybillMigrates(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{"sqlite": sqliteURL, "postgres": func(t *testing.T) string { return testserver.PostgresURL(t) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := environment{programKey: "waybill", "STORE_URL": url(t), "USER": "anna"}
			if r := e.run(t, "dlq", "list"); r.code != 1 || name == "postgres" && !strings.Contains(r.stderr, "migrate up") {
				t.Errorf("list without tables: %+v", r)
			}
			e.ok(t, "migrate", "up")
			if text := e.ok(t, "migrate", "status"); strings.Contains(text, "gateway") || !strings.Contains(text, "00001_event_tables.sql") {
				t.Errorf("status: %s", text)
			}
			if text := e.ok(t, "migrate", "sql"); strings.Contains(text, "courier_ledger") || !strings.Contains(text, "CREATE TABLE dead_letter_events") {
				t.Errorf("sql: %s", text)
			}
			if text := e.ok(t, "dlq", "list"); text != "No open dead letters (--all shows closed ones).\n" {
				t.Errorf("list: %s", text)
			}
			if s := object[stats](t, e, "outbox", "stats"); s.Inbox != 0 {
				t.Errorf("stats: %+v", s)
			}
		})
	}
	foreign := environment{programKey: "waybill", "STORE_URL": "sqlite:" + filepath.Join(t.TempDir(), "empty.db")}
	if err := os.WriteFile(strings.TrimPrefix(foreign["STORE_URL"], "sqlite:"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := foreign.run(t, "dlq", "list"); r.code != 1 || !strings.Contains(r.stderr, "none of the library's tables") {
		t.Errorf("another's file: %+v", r)
	}
}
