package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waybill.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A flag wins over the environment, that over the file, that over the default.
func TestConfig(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	path := configFile(t, `
HMAC_SECRET: hunter2 of the couriers
BROKER_URL: redis://u:hunter2@h/0
LEASE_TTL: 7s
DLQ_TTL_DAYS: 11
RETRY_BACKOFF_MULTIPLIER: 1.5
HTTP_ADDR: 127.0.0.1:1
`)
	e["WAYBILL_CONFIG"], e["DLQ_TTL_DAYS"], e["ADMIN_TOKEN"] = path, "12", "hunter2 of the operators"
	type setting struct{ Setting, Value, Origin string }
	text := e.ok(t, "config", "--json", "--lease-ttl", "9s", "--retry-max-attempts", "4")
	got := map[string]setting{}
	for _, s := range decode[struct{ Settings []setting }](t, text).Settings {
		got[s.Setting] = s
	}
	for name, want := range map[string]setting{
		"LEASE_TTL":                {"LEASE_TTL", "9s", "flag"},
		"RETRY_MAX_ATTEMPTS":       {"RETRY_MAX_ATTEMPTS", "4", "flag"},
		"DLQ_TTL_DAYS":             {"DLQ_TTL_DAYS", "12", "environment"},
		"HTTP_ADDR":                {"HTTP_ADDR", "127.0.0.1:0", "environment"},
		"RETRY_BACKOFF_MULTIPLIER": {"RETRY_BACKOFF_MULTIPLIER", "1.5", path + ":6:27"},
		"HMAC_SECRET":              {"HMAC_SECRET", "********", path + ":2:14"},
		"ADMIN_TOKEN":              {"ADMIN_TOKEN", "********", "environment"},
		"BROKER_URL":               {"BROKER_URL", "redis://u:xxxxx@h/0", path + ":3:13"},
		"WORKER_CONCURRENCY":       {"WORKER_CONCURRENCY", "8", "default"},
		"ADMIN_TOKENS_FILE":        {"ADMIN_TOKENS_FILE", "", "default"},
	} {
		if got[name] != want {
			t.Errorf("%+v, want %+v", got[name], want)
		}
	}
	if len(got) != 24 {
		t.Errorf("%d settings: %s", len(got), text)
	}
	table := e.ok(t, "config")
	if !strings.Contains(table, "LEASE_TTL") || !strings.Contains(table, path+":4:12") || strings.Contains(table+text, "hunter2") {
		t.Errorf("config: %s", table)
	}
	other := configFile(t, "LEASE_TTL: 8s\n")
	if text := e.ok(t, "config", "--config", other); !strings.Contains(text, other+":1:12") || strings.Contains(text, path) {
		t.Errorf("the flag does not win: %s", text)
	}
}

func TestConfigOfCommands(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	path := configFile(t, "STORE_URL: "+e["STORE_URL"]+"\nLEASE_TTL: 5s\n")
	delete(e, "STORE_URL")
	e.ok(t, "migrate", "up", "--config", path)
	e["WAYBILL_CONFIG"] = path
	e.ok(t, "dlq", "list") // there is no database by default
	if r := (environment{programKey: "waybill", "WAYBILL_CONFIG": "/missing", "STORE_URL": sqliteURL(t)}).run(t, "migrate", "up"); r.code != 0 {
		t.Errorf("waybill has no such file: %+v", r)
	}
}

func TestFaultyConfig(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, args, want string }{
		{"unknown", "LEASE_TTLL: 4s\n", "run", ":1:1: unknown setting (did you mean LEASE_TTL?)"},
		{"no setting", "USER: anna\n", "run", ":1:1: unknown setting"},
		{"list", "- LEASE_TTL\n", "run", ":1:1: this must be a mapping"},
		{"list for a value", "LEASE_TTL: [hunter2]\n", "run", ":1:12: this must be a text, a number"},
		{"twice", "LEASE_TTL: 4s\nLEASE_TTL: 5s\n", "run", ":2:1: this key is there twice: first in line 1"},
		{"duration", "LEASE_TTL: soon\n", "run", ":1:12: "},
		{"range", "LEASE_TTL: 1ms\n", "run", "LEASE_TTL is 1ms: it must be at least 100ms (LEASE_TTL is from PATH:1:12)"},
		{"no port", "INTAKE: outbox\n", "run --http-addr 8777", `HTTP_ADDR is "8777": it must be HOST:PORT or :PORT`},
		{"port", "INTAKE: outbox\n", "run --http-addr :99999", `HTTP_ADDR is ":99999": it must be`},
		{"range of a flag", "HTTP_ADDR: x\n", "run --lease-ttl 1ms", "at least 100ms (LEASE_TTL is from the flag)"},
		{"both", "HMAC_SECRETS_FILE: x\n", "run --hmac-secret hunter2",
			"give one of them (HMAC_SECRET is from the flag, HMAC_SECRETS_FILE is from PATH:1:20)"},
	} {
		path := configFile(t, test.text)
		e := newEnvironment(t)
		e["WAYBILL_CONFIG"] = path
		r := e.run(t, strings.Fields(test.args)...)
		if r.code != 2 || !strings.Contains(r.stderr, strings.ReplaceAll(test.want, "PATH", path)) || strings.Contains(r.stderr, "hunter2") {
			t.Errorf("%s: %+v, want %s", test.name, r, test.want)
		}
	}
	if r := newEnvironment(t).run(t, "run", "--config", "/missing/file"); r.code != 2 || !strings.HasPrefix(r.stderr, "gateway: --config: stat /missing/file") {
		t.Errorf("no file: %+v", r)
	}
	e := newEnvironment(t)
	e["WAYBILL_CONFIG"] = "/missing/file"
	if r := e.run(t, "run"); r.code != 2 || !strings.HasPrefix(r.stderr, "gateway: WAYBILL_CONFIG: stat /missing/file") {
		t.Errorf("no file: %+v", r)
	}
	delete(e, "WAYBILL_CONFIG")
	path := configFile(t, "BROKER_URL: redis://u:hunter2@h/0\nLEASE_TTL: 5s\n")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := e.run(t, "run", "--config", path, "--http-addr", "256.0.0.1:1"); !strings.Contains(r.stderr, path+" has secrets, and others than its owner may use it (mode & 077 is 044)") ||
		strings.Contains(r.stderr, "hunter2") {
		t.Errorf("a file that others may read: %+v", r)
	}
	e["LEASE_TTL"] = "1ms"
	if r := e.run(t, "run"); !strings.Contains(r.stderr, "(LEASE_TTL is from the environment)") {
		t.Errorf("%+v", r)
	}
}
