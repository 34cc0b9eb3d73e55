package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/service/internal/cli"
)

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args string
		env  environment
		want string
	}{
		{"no command", "", nil, "gateway --help"},
		{"unknown command", "dlg list", nil, `did you mean "dlq"?`},
		{"unknown flag", "run --store sqlite:x", nil, "gateway run --help"},
		{"duration of a setting", "run", environment{"LEASE_TTL": "soon"}, "from LEASE_TTL"},
		{"number of a setting", "run", environment{"DLQ_TTL_DAYS": "many"}, "from DLQ_TTL_DAYS"},
		{"choice of a setting", "run", environment{"LOG_FORMAT": "xml"}, `"text","json"`},
		{"range of a setting", "run --retry-max-attempts 0", nil, "RETRY_MAX_ATTEMPTS is 0: it must be positive"},
		{"all settings at fault", "run --lease-ttl 1ms --dlq-ttl-days 0", nil, "DLQ_TTL_DAYS is 0"},
		{"unknown broker", "run --broker-url amqp://u:hunter2@h", nil, "it must be inproc:, redis://…"},
		{"mistyped broker", "run --broker-url redis://u:hunter2/@h", nil, "cannot be read"},
		{"option of a broker", "run --broker-url redis://u:hunter2@h?colour=red", nil, "cannot be read"},
		{"mistyped Postgres broker", "run --broker-url postgres://u:hunter2/@h", nil, "cannot be read"},
		{"broker of another process", "worker", nil, "reaches no other process"},
		{"the same of a dispatcher", "dispatch --broker-url inproc:", nil, "reaches no other process"},
		{"setting of a part", "worker --broker-url redis://h --retry-max-attempts 0", nil, "RETRY_MAX_ATTEMPTS is 0"},
		{"setting of another part", "dispatch --retry-max-attempts 0", nil, "gateway dispatch --help"},
		{"API without secrets", "api", nil, "openssl rand -hex 32"},
		{"two kinds of secrets", "run --hmac-secret hunter2 --hmac-secrets-file x", nil, "HMAC_SECRET and HMAC_SECRETS_FILE are both set"},
		{"unknown store", "run --store-url mysql://u:hunter2@h/x", nil, "must be sqlite:FILE, postgres://… or mongodb://"},
		{"unknown store of a command", "dlq list --store-url waybill.db", nil, "must be sqlite:FILE, postgres://… or mongodb://"},
		{"nothing to send", "send --hmac-secret s", nil, "<input>"},
		{"no secret", "send x.json", nil, "set HMAC_SECRET"},
		{"no URL", "send x.json --hmac-secret s --url localhost:8080", nil, "http://127.0.0.1:8080"},
		{"negative count", "send x.json --hmac-secret s --count -1", nil, "--count"},
		{"nothing to show", "dlq show", nil, "<id>"},
		{"unknown status", "dlq list --status dead", nil, "one of pending, reviewed, replayed, closed, not"},
		{"no limit", "dlq list --limit 0", nil, "--limit must lie between 1 and 10000"},
		{"nothing to replay", "dlq replay", nil, "--limit N"},
		{"ids and a limit", "dlq replay evt_1 --limit 5", nil, "not both"},
		{"no reason", "dlq close evt_1 --yes", nil, "--reason"},
		{"empty reason", "dlq close evt_1 --reason= --yes", nil, "--reason is empty"},
		{"nothing to requeue", "outbox requeue", nil, "--event-id ID or --since WHEN"},
		{"no point in time", "outbox requeue --since yesterday", nil, "2h30m or 7d, meaning ago"},
		{"backwards", "outbox requeue --since 1h --until 2h", nil, "--until must lie after --since"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := newEnvironment(t)
			for name, value := range test.env {
				e[name] = value
			}
			r := e.run(t, strings.Fields(test.args)...)
			if r.code != 2 || !strings.Contains(r.stderr, test.want) || r.stdout != "" {
				t.Errorf("exit code %d, output %q, error %q; want 2, none, and %q", r.code, r.stdout, r.stderr, test.want)
			}
			if strings.Contains(r.stderr, "hunter2") {
				t.Errorf("the error tells a password: %s", r.stderr)
			}
			if _, err := os.Stat(strings.TrimPrefix(e["STORE_URL"], "sqlite:")); err == nil {
				t.Error("a database was made")
			}
		})
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, args, want string }{
		{"no database", "dlq list", "give the whole path"},
		{"no database to count", "outbox stats", "give the whole path"},
		{"no database to migrate", "migrate status", "give the whole path"},
		{"no input", "send missing.json --hmac-secret s", "missing.json"},
		{"no gateway", "run --http-addr 256.0.0.1:1", "HTTP_ADDR"},
		{"no server", "migrate up --store-url postgres://u:hunter2@127.0.0.1:1/x", "connection refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newEnvironment(t).run(t, strings.Fields(test.args)...)
			if r.code != 1 || !strings.Contains(r.stderr, test.want) {
				t.Errorf("exit code %d, error %q; want 1 and %q", r.code, r.stderr, test.want)
			}
			if strings.Contains(r.stderr, "hunter2") || strings.Contains(r.stderr, "goroutine") {
				t.Errorf("the error tells too much: %s", r.stderr)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	leaves := []string{
		"run", "api", "dispatch", "worker", "send", "audit", "trace", "dlq list", "dlq groups", "dlq show", "dlq review", "dlq plan", "dlq apply", "dlq replay",
		"dlq schedule", "dlq unschedule", "dlq close", "dlq export", "outbox stats", "outbox requeue",
		"routes lint", "routes explain", "routes diff", "routes test", "routes schema", "migrate up", "migrate status", "migrate sql", "config", "schemas", "token", "version",
	}
	e := newEnvironment(t)
	for _, command := range append([]string{"", "dlq", "outbox", "routes", "migrate"}, leaves...) {
		text := e.ok(t, append(strings.Fields(command), "--help")...)
		if !strings.Contains(text, "Examples:\n\n    ") || !strings.Contains(text, strings.TrimSpace("gateway "+command)) {
			t.Errorf("gateway %s --help has no example:\n%s", command, text)
		}
	}
	for _, command := range []string{"dlq replay", "dlq plan"} {
		args := append(strings.Fields(command), "--help")
		if strings.Contains(e.ok(t, args...), "--force") || !strings.Contains(environment{programKey: "waybill"}.ok(t, args...), "--force") {
			t.Errorf("%s: --force is waybill's, but not the gateway's", command)
		}
	}
	if e.ok(t, "help", "dlq", "list") != e.ok(t, "dlq", "list", "--help") || e.ok(t, "--version") != e.ok(t, "version") {
		t.Error("help, or --version, is understood as something else")
	}
	all := e.ok(t, "--help")
	for _, command := range leaves {
		if !strings.Contains(all, "\n  "+command+" ") {
			t.Errorf("gateway --help does not list %s:\n%s", command, all)
		}
		if text := e.ok(t, append(strings.Fields(command), "--help")...); !strings.Contains(text, "--json") {
			t.Errorf("gateway %s has no --json", command)
		}
	}
	if n := strings.Count(all, "\n  ") - 2; n != len(leaves)+strings.Count(all, "\n    gateway") {
		t.Errorf("this test misses a command:\n%s", all)
	}
	settings := e.ok(t, "run", "--help")
	for _, name := range []string{
		"HTTP_ADDR", "INTAKE", "STORE_URL", "BROKER_URL", "HMAC_SECRET", "HMAC_SECRETS_FILE", "SIGNATURE_MAX_SKEW", "ADMIN_TOKEN", "ADMIN_TOKENS_FILE", "RETRY_MAX_ATTEMPTS", "RETRY_BACKOFF_BASE_MS",
		"RETRY_BACKOFF_MULTIPLIER", "RETRY_JITTER_PERCENT", "PROCESSED_TTL_DAYS", "DLQ_TTL_DAYS", "WORKER_CONCURRENCY", "WORKER_BATCH", "SHIPMENT_EVENTS_MAXLEN", "LEASE_TTL",
		"SHUTDOWN_TIMEOUT", "LOG_LEVEL", "LOG_FORMAT", "BACKPRESSURE_MAX_PENDING", "BACKPRESSURE_MAX_LAG",
	} {
		if !strings.Contains(settings, "($"+name+")") {
			t.Errorf("gateway run --help does not name %s", name)
		}
	}
	for part, foreign := range map[string][]string{
		"api":      {"LEASE_TTL", "RETRY_MAX_ATTEMPTS", "PROCESSED_TTL_DAYS"},
		"dispatch": {"BACKPRESSURE_MAX_PENDING", "HMAC_SECRET", "ADMIN_TOKEN", "ADMIN_TOKENS_FILE", "RETRY_MAX_ATTEMPTS", "WORKER_CONCURRENCY", "WORKER_BATCH"},
		"worker":   {"HMAC_SECRET", "ADMIN_TOKEN", "SIGNATURE_MAX_SKEW"},
	} {
		text := e.ok(t, part, "--help")
		for _, name := range foreign {
			if strings.Contains(text, "($"+name+")") {
				t.Errorf("gateway %s --help names %s, which it does not need", part, name)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	if text := e.ok(t, "version"); !strings.HasPrefix(text, "gateway ") || !strings.Contains(text, "go1.") {
		t.Errorf("version: %s", text)
	}
	v := object[struct{ Version, Go string }](t, e, "version")
	if v.Version == "" || !strings.HasPrefix(v.Go, "go1.") {
		t.Errorf("version: %+v", v)
	}
}

// Who acts is recorded; a dry run records nothing.
func TestWhoActs(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e["USER"] = ""
	e.ok(t, "migrate", "up")
	nobody := func() (string, error) { return "", errors.New("no such user") }
	for _, test := range []struct {
		args     string
		username func() (string, error)
		code     int
		want     string
	}{
		{"dlq review evt_1", nobody, 2, "say who with --by NAME, or set USER"},
		{"dlq replay evt_1", nobody, 2, "say who with --by NAME, or set USER"},
		{"dlq close evt_1 --reason test --yes", nobody, 2, "say who with --by NAME, or set USER"},
		{"dlq replay evt_1 --dry-run", nobody, 1, "no dead letter is called"},
		{"dlq close evt_1 --reason test --dry-run", nobody, 1, "no dead letter is called"},
		{"dlq review evt_1 --by anna", nobody, 1, "no dead letter is called"},
		{"dlq review evt_1", func() (string, error) { return "anna", nil }, 1, "no dead letter is called"},
	} {
		if r := e.start(t.Context(), cli.Program{Args: strings.Fields(test.args), Username: test.username}); r.code != test.code || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: %+v, want %d and %q", test.args, r, test.code, test.want)
		}
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	if text := e.ok(t, "migrate", "sql"); !strings.Contains(text, "CREATE TABLE event_outbox") || !strings.Contains(text, "CREATE TABLE courier_ledger") {
		t.Errorf("sql: %s", text)
	}
	if text := e.ok(t, "migrate", "sql", "--store-url", "postgres:"); !strings.Contains(text, "timestamptz") {
		t.Errorf("sql for Postgres: %s", text)
	}
	up := object[struct{ Applied []string }](t, e, "migrate", "up")
	if len(up.Applied) < 2 {
		t.Errorf("applied %v, want the library's steps and the gateway's", up.Applied)
	}
	if text := e.ok(t, "migrate", "up"); text != "The schema is up to date.\n" {
		t.Errorf("up, again: %q", text)
	}
	status := object[struct {
		Migrations []struct {
			Name      string
			AppliedAt *string `json:"applied_at"`
		}
	}](t, e, "migrate", "status")
	if len(status.Migrations) != len(up.Applied) {
		t.Errorf("status: %+v, want %v", status, up.Applied)
	}
	for _, m := range status.Migrations {
		if m.AppliedAt == nil {
			t.Errorf("%s is not applied", m.Name)
		}
	}
	if text := e.ok(t, "migrate", "status"); !strings.Contains(text, "00001_gateway_tables.sql") {
		t.Errorf("status: %s", text)
	}
}

func TestStatusOfAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	path := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := e.ok(t, "migrate", "status", "--store-url", "sqlite:"+path); !strings.Contains(text, "no: run gateway migrate up") {
		t.Errorf("status: %s", text)
	}
}

func TestFlagWinsOverSetting(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e["STORE_URL"] = "nonsense"
	e.ok(t, "migrate", "up", "--store-url", "sqlite:"+filepath.Join(t.TempDir(), "waybill.db"))
	if r := e.run(t, "migrate", "up"); r.code != 2 {
		t.Errorf("the setting is ignored: %+v", r)
	}
}

func TestSendReadsStandardInput(t *testing.T) {
	t.Parallel()
	g := newEnvironment(t).gateway(t, "--json")
	made := decode[struct {
		URL        string
		HMACSecret string `json:"hmac_secret"`
	}](t, g.stdout.String())
	g.env["HMAC_SECRET"], g.env["GATEWAY_URL"] = made.HMACSecret, made.URL
	event, err := os.ReadFile(samples)
	if err != nil {
		t.Fatal(err)
	}
	r := g.env.start(t.Context(), cli.Program{Args: []string{"send", "-", "--count", "30", "--json"}, Stdin: strings.NewReader(string(event))})
	if r.code != 0 || strings.Count(r.stdout, `"status":202`) != 30 || !strings.Contains(r.stdout, `"accepted":30`) {
		t.Errorf("send: %+v", r)
	}
	g.env["HMAC_SECRET"] = "another"
	if r := g.env.run(t, "send", samples); r.code != 1 || !strings.Contains(r.stderr, "13 of 13 events were not accepted") ||
		!strings.Contains(r.stderr, "Is HMAC_SECRET the one that the gateway printed?") {
		t.Errorf("send with another secret: %+v", r)
	}
}
