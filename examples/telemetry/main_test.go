package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testserver"
)

func TestMain(m *testing.M) {
	if program := os.Getenv(programEnv); program != "" {
		os.Exit(runProgram(program))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit))
}

// onEachStore runs a test on a SQLite file and on PostgreSQL.
func onEachStore(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, filepath.Join(t.TempDir(), "telemetry.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, testserver.PostgresURL(t))
	})
}

// The demonstration succeeds, also a second time on the same database, and tells what
// happened.
func TestRun(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		for range 2 {
			var out, errs bytes.Buffer
			if code := run(t.Context(), []string{"-store", address, "-windows", "2"}, &out, &errs); code != 0 || errs.Len() > 0 {
				t.Fatalf("exit code %d: %s\n%s", code, &errs, &out)
			}
			for _, part := range []string{
				"24 windows", "aurora/s3 has no tariff\n", "RETRIES_EXHAUSTED", "TARIFF_INVALID", "caused by the station",
				strings.SplitAfter(strings.ReplaceAll(replaySQL, "\n", "\n    "), "WHERE")[0], "OK: each window led to exactly one settlement.\n",
			} {
				if !strings.Contains(out.String(), part) {
					t.Errorf("the report lacks %q:\n%s", part, &out)
				}
			}
		}
	})
}

// A window that nobody hears of makes the demonstration fail.
func TestRunFindsLoss(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		world{T: t, db: open(t, address)}.exec(`INSERT INTO windows VALUES ('w', 'aurora', 's1', $1, 6)`, now())
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"-store", address, "-windows", "1"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), lost) || strings.Contains(out.String(), "OK") {
			t.Errorf("exit code %d, want 1: %s\n%s", code, &errs, &out)
		}
	})
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "telemetry.db")
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"unknown flag", []string{"-n", "2"}, 2, "telemetry: flag provided but not defined: -n; see telemetry --help"},
		{"argument", []string{"telemetry.db"}, 2, "telemetry: there is nothing but flags, and \"telemetry.db\" is none; see telemetry --help"},
		{"no windows", []string{"-windows", "0"}, 2, "from 1 to 10000"},
		{"too many", []string{"-windows", "10001"}, 2, "from 1 to 10000"},
		{"no time at all", []string{"-timeout", "0s"}, 2, "-timeout must be positive"},
		{"unknown store", []string{"-store", "mysql://user:secret@localhost/x"}, 1, "telemetry: a store of mysql:// is unknown"},
		{"no folder", []string{"-store", filepath.Join(file, "telemetry.db")}, 1, "telemetry: open SQLite"},
		{"no server", []string{"-store", "postgres://user:secret@127.0.0.1:1/none?connect_timeout=5"}, 1, "telemetry: open PostgreSQL"},
		{"no time", []string{"-store", file, "-timeout", "1ms"}, 1, "telemetry: not done after 1ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if code := run(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.says) {
				t.Errorf("exit code %d, want %d; it says %q, which should have %q", code, c.code, &errs, c.says)
			}
			if strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 && c.code == 2 {
				t.Errorf("it does not say one line: %s%s", &errs, &out)
			}
			if strings.Contains(errs.String(), "secret") {
				t.Errorf("it tells the password: %s", &errs)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, &out, &errs); code != 0 || errs.Len() > 0 || !strings.Contains(out.String(), "Examples:") || !strings.Contains(out.String(), "-windows int") {
		t.Errorf("exit code %d; it says %s%s", code, &out, &errs)
	}
}

// An interrupted demonstration ends, with an error; and the next one does its work.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"Stations close", "The operator mends"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "telemetry.db")
			ctx, cancel := context.WithCancel(t.Context())
			if code := run(ctx, []string{"-store", file}, &cancelling{cancel, step}, &bytes.Buffer{}); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			var errs bytes.Buffer
			if code := run(t.Context(), []string{"-store", file}, &bytes.Buffer{}, &errs); code != 0 {
				t.Errorf("afterwards: exit code %d, want 0: %s", code, &errs)
			}
		})
	}
}

// cancelling cancels when something is written to it.
type cancelling struct {
	cancel context.CancelFunc
	at     string
}

func (c *cancelling) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.at) {
		c.cancel()
	}
	return len(b), nil
}

// within fails a test that waits for longer.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
