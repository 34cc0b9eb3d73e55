package cli_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/cli"
)

const routesDir = "testdata/routes/"

// Each of these prints what the file of its name says: exit code, standard output, standard error.
func TestRoutesOutput(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"lint":                 "lint routes.yaml",
		"lint-bad":             "lint bad.yaml broken.yaml",
		"lint-bad-json":        "lint bad.yaml --json",
		"lint-missing":         "lint missing.yaml bad.yaml broken.yaml",
		"explain":              "explain routes.yaml events.ndjson --event-id e-1 --lookups lookups.json",
		"explain-json":         "explain routes.yaml events.ndjson --event-id e-3 --lookups lookups.json --json",
		"explain-no-lookups":   "explain routes.yaml events.ndjson --event-id e-2",
		"explain-misspelt":     "explain routes.yaml misspelt.json",
		"explain-broken-table": "explain broken.yaml events.ndjson --event-id e-2",
		"diff":                 "diff routes.yaml new.yaml --events events.ndjson --lookups lookups.json",
		"diff-json":            "diff routes.yaml new.yaml --events events.ndjson --lookups lookups.json --json",
		"diff-turned-round":    "diff new.yaml routes.yaml --events events.ndjson --lookups lookups.json",
		"diff-itself":          "diff routes.yaml routes.yaml --events events.ndjson",
		"diff-types":           "diff routes.yaml new.yaml --events events.ndjson --type order_cancelled --type order_lost",
		"diff-by-hand":         "diff routes.yaml new.yaml --events by-hand.ndjson --lookups lookups.json",
		"diff-by-hand-json":    "diff routes.yaml new.yaml --events by-hand.ndjson --lookups lookups.json --type order_cancelled --json",
		"diff-since-by-hand":   "diff routes.yaml new.yaml --events by-hand.ndjson --since 2026-01-01",
		"diff-since":           "diff routes.yaml new.yaml --events events.ndjson --since 2026-02-27 --until 2026-02-28",
		"test":                 "test routes.yaml tests.yaml",
		"test-coverage":        "test routes.yaml tests.yaml --coverage",
		"test-failing":         "test routes.yaml tests.yaml failing.yaml",
		"test-failing-json":    "test routes.yaml failing.yaml --json",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := waybill().routes(t, strings.Fields(args)...)
			got := fmt.Sprintf("-- exit code --\n%d\n-- output --\n%s-- error --\n%s", r.code, r.stdout, r.stderr)
			path := routesDir + name + ".golden"
			if *update {
				must(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			must(t, err)
			if got != string(want) {
				t.Errorf("%s:\n%s\nwant:\n%s", args, got, want)
			}
		})
	}
}

func waybill() environment { return environment{programKey: "waybill"} }

// routes runs a command of routes whose files are those of testdata.
func (e environment) routes(t *testing.T, args ...string) ended {
	t.Helper()
	for i, arg := range args {
		for _, end := range []string{".yaml", ".json", ".ndjson"} {
			if strings.HasSuffix(arg, end) && !strings.ContainsRune(arg, '/') {
				args[i] = routesDir + arg
			}
		}
	}
	return e.run(t, append([]string{"routes"}, args...)...)
}

func TestRoutesSchema(t *testing.T) {
	t.Parallel()
	for _, e := range []environment{waybill(), newEnvironment(t)} {
		schema := decode[struct {
			Schema string `json:"$schema"`
		}](t, e.ok(t, "routes", "schema"))
		if schema.Schema != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("the schema is of %s", schema.Schema)
		}
	}
}

func TestRoutesUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"lint", "<file>", 2},
		{"lint missing.yaml", "missing.yaml", 1},
		{"lint " + dir, "is not a file, but a directory", 1},
		{"lint -", "there is no file called -", 2},
		{"explain routes.yaml", "say which event: EVENT.json", 2},
		{"explain routes.yaml missing.json", "missing.json", 1},
		{"explain routes.yaml events.ndjson", "has several events: say which with --event-id ID", 2},
		{"explain routes.yaml events.ndjson --event-id e-9", "there is no event e-9 in testdata/routes/events.ndjson", 1},
		{"explain routes.yaml routes.yaml", "not an envelope", 1},
		{"explain routes.yaml events.ndjson --event-id e-1 --lookups missing.json", "missing.json", 1},
		{"explain routes.yaml events.ndjson --event-id e-1 --lookups routes.yaml", "they look like", 1},
		{"explain routes.yaml events.ndjson --event-id e-1 --lookups tests.json", `did you mean {"customer": {"*": {"sms":true}}}?`, 1},
		{"explain routes.yaml --event-id e-1", "say which database: --store", 2},
		{"explain routes.yaml --event-id e-1 --store sqlite:" + dir + "/missing.db", "no such file", 1},
		{"diff routes.yaml", "<new>", 2},
		{"diff routes.yaml new.yaml", "say where the events are: --events FILE, or --store URL", 2},
		{"diff routes.yaml new.yaml --events events.ndjson --store sqlite:x", "--events or --store", 2},
		{"diff routes.yaml new.yaml --events events.ndjson --since 1h --until 2h", "--until must lie after --since", 2},
		{"diff routes.yaml new.yaml --events events.ndjson --since yesterday", "meaning ago", 2},
		{"diff routes.yaml new.yaml --events missing.ndjson", "missing.ndjson", 1},
		{"diff routes.yaml new.yaml --events=", "--events is empty", 2},
		{"diff routes.yaml new.yaml --events " + dir, "is a directory", 1},
		{"test routes.yaml", "<tests>", 2},
		{"test routes.yaml routes.yaml", "unknown key `routing`", 1},
		{"test broken.yaml failing.yaml routes.yaml", "unknown key `routing`", 1}, // and what is wrong with broken.yaml
	} {
		if r := waybill().routes(t, strings.Fields(test.args)...); r.code != test.code || !strings.Contains(r.stderr, test.want) || r.stdout != "" || !strings.HasPrefix(r.stderr, "waybill: ") {
			t.Errorf("%s: %+v, want %d and %s", test.args, r, test.code, test.want)
		}
	}
}

// A file that cannot be read does not keep the others from being linted, and is worse than what is found in them.
func TestRoutesLintUnread(t *testing.T) {
	t.Parallel()
	for _, files := range []string{"missing.yaml routes.yaml", "routes.yaml missing.yaml"} {
		r := waybill().routes(t, append([]string{"lint"}, strings.Fields(files)...)...)
		if r.code != 1 || !strings.Contains(r.stdout, "routes.yaml:28:5: info: ") || !strings.Contains(r.stderr, "missing.yaml: no such file") || strings.Contains(r.stderr, "0 errors") {
			t.Errorf("lint %s: %+v", files, r)
		}
	}
}

// Only the help of commands that read the database names it.
func TestRoutesHelp(t *testing.T) {
	t.Parallel()
	for _, e := range []environment{waybill(), newEnvironment(t)} {
		for command, stores := range map[string]bool{"lint": false, "explain": true, "diff": true, "test": false, "schema": false} {
			if help := e.ok(t, "routes", command, "--help"); strings.Contains(help, "--store") != stores {
				t.Errorf("routes %s --help:\n%s", command, help)
			}
		}
		if r := e.run(t, "routes", "lint", routesDir+"routes.yaml"); r.code != 0 {
			t.Errorf("lint: %+v", r)
		}
	}
}

func TestRoutesLintStrict(t *testing.T) {
	t.Parallel()
	info := filepath.Join(t.TempDir(), "info.yaml")
	must(t, os.WriteFile(info, []byte("routing: 1\nconsumers: {mail: {}}\nevents: {a: {}}\nmatrix: {a: [mail]}\nactions: {a: {mail: [{do: x}]}}\n"), 0o600))
	if r := waybill().run(t, "routes", "lint", info); r.code != 0 || !strings.Contains(r.stdout, ": info: ") || r.stderr != "" {
		t.Errorf("lint: %+v", r)
	}
	if r := waybill().run(t, "routes", "lint", "--strict", info); r.code != 3 || !strings.Contains(r.stderr, "0 errors, 0 warnings, 1 for information") {
		t.Errorf("lint --strict: %+v", r)
	}
}

// An event that is written by hand need not have an id and a time.
func TestRoutesExplainStandardInput(t *testing.T) {
	t.Parallel()
	r := waybill().start(t.Context(), cli.Program{
		Args: []string{"routes", "explain", routesDir + "routes.yaml", "-"}, Stdin: strings.NewReader("{\n\"event_type\": \"order_cancelled\",\n\"payload\": {}\n}\n"),
	})
	if r.code != 0 || !strings.Contains(r.stdout, "order_cancelled unnamed\n") || !strings.Contains(r.stdout, "does regret") {
		t.Errorf("explain: %+v", r)
	}
}

// Files of events are written by others, and may be broken in any way.
func TestRoutesHostileEvents(t *testing.T) {
	t.Parallel()
	const good = `{"event_id":"e-1","event_type":"order_cancelled","occurred_at":"2026-03-01T12:00:00Z","payload":{}}` + "\n"
	huge := `{"event_id":"e-2","payload":"` + strings.Repeat("x", 5<<20) + "\"}\n"
	diff := func(events string) ended {
		return waybill().start(t.Context(), cli.Program{
			Args: []string{"routes", "diff", routesDir + "routes.yaml", routesDir + "new.yaml", "--events", "-"}, Stdin: strings.NewReader(events),
		})
	}
	for _, test := range []struct {
		name, events string
		code         int
		compared     string
		want         []string // on standard error
	}{
		{"nothing", "", 3, "0 events", []string{"no events were compared"}},
		{"without a last line end", strings.TrimSpace(good), 3, "1 event ", nil},
		{"a byte order mark and Windows", "\uFEFF" + strings.ReplaceAll(good, "\n", "\r\n"), 3, "1 event ", nil},
		{"broken lines", good + "{\n" + good + "\n\"x\"\n" + good, 1, "3 events", []string{"standard input: 2 lines are no events", "\nline 2: ", "\nline 5: "}},
		{"bad UTF-8", good + "\"\xff\"\n", 1, "1 event ", []string{"line 2: invalid event: not valid UTF-8"}},
		{"a huge line", huge + good, 1, "1 event ", []string{"line 1: it has more than 4194304 bytes"}},
		{"an event over several lines", "{\n\"event_type\": \"order_cancelled\"\n}\n", 1, "0 events", []string{"3 lines are no events", "all of it on one line"}},
		{"an array", "[" + strings.TrimSpace(good) + "]\n", 1, "0 events", []string{"1 line is no event, ", "not an envelope, but a JSON array"}},
		{"other names", `{"type":"order_cancelled","payload":{}}` + "\n" + `{"event_type":"order_cancelled","data":{}}` + "\n", 1, "0 events", []string{
			`line 1: invalid event: event_type is empty; did you mean "event_type" where it says "type"?`,
			`line 2: invalid event: payload is missing; did you mean "payload" where it says "data"?`,
		}},
		{"ids that are the same", good + good, 3, "2 events compared, 2 with a difference", nil},
		{"a huge last line", good + strings.TrimSpace(huge), 1, "1 event ", []string{"line 2: it has more than"}},
		{"escapes", `{"event_id":"\u001b[2J","event_type":"order_cancelled","occurred_at":"2026-03-01T12:00:00Z","payload":{}}` + "\n\x1b[2J\n", 1, "1 event ", []string{"line 2: "}},
		{"many broken lines", strings.Repeat("x\n", 1000), 1, "0 events", []string{"standard input: 1000 lines are", "line 5: ", "and 995 more"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := diff(test.events)
			if r.code != test.code || !strings.Contains(r.stdout, "\n"+test.compared) && !strings.HasPrefix(r.stdout, test.compared) {
				t.Errorf("%.2000s", fmt.Sprintf("%+v", r))
			}
			for _, want := range test.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("it does not say %q: %.2000s", want, r.stderr)
				}
			}
			if strings.Contains(r.stdout+r.stderr, "\x1b") || len(r.stderr) > 10_000 {
				t.Errorf("it prints what others wrote: %.2000q", r.stdout+r.stderr)
			}
		})
	}
}

func TestRoutesOfAnEventLog(t *testing.T) {
	t.Parallel()
	testEventLog(t, sqliteURL(t), eventlog.SQLite)
}
func TestRoutesOfAnEventLogOnPostgres(t *testing.T) {
	t.Parallel()
	testEventLog(t, testserver.PostgresURL(t), eventlog.Postgres)
}

func testEventLog(t *testing.T, url string, dialect eventlog.Dialect) {
	t.Helper()
	e := application(t, url)
	if r := e.routes(t, "diff", "routes.yaml", "new.yaml"); r.code != 1 || !strings.Contains(r.stderr, "has no event log") {
		t.Errorf("a database without an event log: %+v", r)
	}
	record(t, e, dialect)
	r := e.routes(t, "diff", "routes.yaml", "new.yaml", "--lookups", "lookups.json")
	want, err := os.ReadFile(routesDir + "diff.golden")
	must(t, err)
	if got := fmt.Sprintf("-- exit code --\n%d\n-- output --\n%s-- error --\n%s", r.code, r.stdout, r.stderr); got != string(want) {
		t.Errorf("diff of the log:\n%s\nwant as of the file:\n%s", got, want)
	}
	r = e.routes(t, "diff", "routes.yaml", "new.yaml", "--type", "order_cancelled", "--since", "2026-03-01", "--until", "2026-03-02")
	if r.code != 3 || !strings.Contains(r.stdout, "\n1 event compared, 1 with a difference.\n") {
		t.Errorf("diff of a part of the log: %+v", r)
	}
	if r := e.routes(t, "explain", "routes.yaml", "--event-id", "e-4"); r.code != 0 || !strings.HasPrefix(r.stdout, "order_cancelled e-4\n") {
		t.Errorf("explain: %+v", r)
	}
	if r := e.routes(t, "explain", "routes.yaml", "--event-id", "e-9"); r.code != 1 || !strings.Contains(r.stderr, "there is no event e-9") {
		t.Errorf("explain of none: %+v", r)
	}
}

// record puts the events of the file into an event log.
func record(t *testing.T, e environment, dialect eventlog.Dialect) {
	t.Helper()
	s := e.open(t)
	driver, address := "pgx", e["STORE_URL"]
	if dialect == eventlog.SQLite {
		driver, address = "sqlite", strings.TrimPrefix(address, "sqlite:")
	}
	db, err := sql.Open(driver, address)
	must(t, err)
	_, err = eventlog.Migrations(dialect).Up(t.Context(), db)
	must(t, errors.Join(err, db.Close()))
	log, err := eventlog.New(eventlog.Config{Dialect: dialect})
	must(t, err)
	text, err := os.ReadFile(routesDir + "events.ndjson")
	must(t, err)
	must(t, s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
		for line := range strings.Lines(string(text)) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			event, err := eventing.DecodeEnvelope([]byte(line))
			if err != nil {
				return err
			}
			if err := log.Record(t.Context(), tx, event, nil); err != nil {
				return err
			}
		}
		return nil
	}))
}
