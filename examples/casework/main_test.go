package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testserver"
)

func TestMain(m *testing.M) {
	// Lookups may take as long as they do on a busy machine: what follows when they fail is for the tests to say.
	routesFile = regexp.MustCompile(`timeout: [0-9]+ms`).ReplaceAll(routesFile, []byte("timeout: 5s"))
	if program := os.Getenv(programEnv); program != "" {
		os.Exit(runProgram(program))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit))
}

// onEachStore runs a test on a SQLite file and on PostgreSQL.
func onEachStore(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, filepath.Join(t.TempDir(), "casework.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, testserver.PostgresURL(t))
	})
}

// The demonstration succeeds, also again on the same database, and tells what happened. In the end, the outbox has
// forgotten the first time.
func TestRun(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		runs := []string{"16"}
		if t.Name() == "TestRun/sqlite" {
			runs = append(runs, "1")
		}
		for _, cases := range runs {
			var out, errs bytes.Buffer
			if code := run(t.Context(), []string{"-store", address, "-cases", cases}, &out, &errs); code != 0 || errs.Len() > 0 {
				t.Fatalf("exit code %d: %s\n%s", code, &errs, &out)
			}
			parts := []string{cases + " cases, seed 1", "workflow_engine", "nothing is under way.\n"}
			if cases != "1" {
				parts = append(parts, "held, cleared and granted", "→ 78 HIGH", "on_hold → intake", "The operator looks after the 2 frozen cases",
					`cannot be taken from "under_review" to "approved"`, "waybill dlq replay ", "waybill dlq close ", "2 cases are frozen, and 6 of their later events wait; 2 alerts")
			}
			for _, part := range parts {
				if !strings.Contains(out.String(), part) {
					t.Errorf("the report lacks %q:\n%s", part, &out)
				}
			}
			if cases != "1" {
				checkRun(t, address)
			}
		}
	})
}

// paths are the ways that the cases of each story go in the end.
var paths = map[string]string{
	"granted":                                "intake validation eligibility_check under_review approved payment_pending payment_processed closed",
	"ineligible":                             "intake validation eligibility_check rejected closed",
	"document rejected, and replaced":        "intake validation eligibility_check under_review approved payment_pending payment_processed closed",
	"granted against the rules":              "intake validation eligibility_check rejected under_review approved payment_pending payment_processed closed",
	"evaluated twice":                        "intake validation eligibility_check under_review approved payment_pending payment_processed closed",
	"payment failed at first":                "intake validation eligibility_check under_review approved payment_pending payment_processed closed",
	"payment given up, then made by hand":    "intake validation eligibility_check under_review approved payment_pending payment_processed closed",
	"reopened":                               "intake validation eligibility_check rejected closed under_review approved payment_pending payment_processed closed",
	"document expired":                       "intake validation eligibility_check under_review approved payment_pending payment_processed closed",
	"rejected by the handler":                "intake validation eligibility_check under_review rejected closed",
	"held, cleared and granted":              "intake on_hold intake validation eligibility_check under_review approved payment_pending payment_processed closed",
	"held, and rejected as fraud":            "intake on_hold rejected closed",
	"held, and approved by an administrator": "intake on_hold approved payment_pending payment_processed closed",
	"damaged by hand":                        "intake validation eligibility_check under_review approved payment_pending payment_processed closed",
	"decided twice":                          "intake validation eligibility_check under_review approved payment_pending payment_processed closed",
}

// checkRun checks that each case has gone its way, that all types of events have come, and that each planned failure has had its effect.
func checkRun(t *testing.T, address string) {
	t.Helper()
	db := open(t, address)
	s, err := newSystem(db, config{})
	if err != nil {
		t.Fatal(err)
	}
	w := world{T: t, system: s}
	told := map[string]bool{}
	for _, l := range newPlan(1, 16, firstDay).lives {
		told[l.story] = true
		if got := w.path(l); got != paths[l.story] {
			t.Errorf("%s: case %s went by way of\n%s, want\n%s", l.story, l.reference, got, paths[l.story])
		}
	}
	if len(told) != len(stories) || len(paths) != len(stories) {
		t.Errorf("%d stories were told, want %d", len(told), len(stories))
	}
	logged := map[string]bool{}
	for _, eventType := range w.texts(`SELECT DISTINCT event_type FROM events`) {
		logged[eventType] = true
	}
	for _, eventType := range s.table.EventTypes() {
		if !logged[eventType] {
			t.Errorf("there is no %s", eventType)
		}
	}
	for what, query := range map[string]string{
		"letter given up by SMS":                 `SELECT count(*) FROM notifications WHERE channel = 'sms' AND status = 'given_up'`,
		"letter given up by email":               `SELECT count(*) FROM notifications WHERE channel = 'email' AND status = 'given_up'`,
		"letter instead":                         `SELECT count(*) FROM notifications WHERE instead_of <> ''`,
		"email that was sent at last":            `SELECT count(*) FROM notifications WHERE channel = 'email' AND failures = 2 AND status <> 'given_up'`,
		"case that was not assessed":             `SELECT count(*) FROM fraud_signals WHERE signal_type = 'NOT_ASSESSED'`,
		"event that was logged at last":          `SELECT count(*) FROM events WHERE retry_count > 0`,
		"mended case":                            `SELECT count(*) FROM dead_letter_consumers WHERE resolution = 'resolved'`,
		"decision given up":                      `SELECT count(*) FROM dead_letter_consumers WHERE resolution = 'discarded'`,
		"case that was held":                     `SELECT count(*) FROM case_transitions WHERE new_status = 'on_hold'`,
		"letter to an administrator":             `SELECT count(*) FROM notifications WHERE recipient = 'admin' AND priority = 'immediate'`,
		"letter to the local office":             `SELECT count(*) FROM notifications WHERE recipient = 'local_office'`,
		"letter to a fraud officer":              `SELECT count(*) FROM notifications WHERE recipient = 'fraud_officer'`,
		"critical event":                         `SELECT count(*) FROM event_outbox WHERE lane IN ('critical', 'expedited')`,
		"event with the hash of an IP":           `SELECT count(*) FROM events WHERE CAST(metadata AS text) LIKE '%ip_hash%'`,
		"event with a trace":                     `SELECT count(*) FROM events WHERE CAST(metadata AS text) LIKE '%trace_id%'`,
		"case of before there were more offices": `SELECT count(*) FROM events WHERE event_type = 'case_created' AND CAST(payload AS text) NOT LIKE '%intake_office_id%'`,
	} {
		if w.count(query) == 0 {
			t.Errorf("there is no %s", what)
		}
	}
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "casework.db")
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"unknown flag", []string{"-n", "2"}, 2, "casework: flag provided but not defined: -n; see casework --help"},
		{"bad seed", []string{"-seed", "-1"}, 2, `casework: invalid value "-1" for flag -seed: parse error; see casework --help`},
		{"argument", []string{"casework.db"}, 2, "casework: there is nothing but flags, and \"casework.db\" is none; see casework --help"},
		{"no cases", []string{"-cases", "0"}, 2, "from 1 to 10000"},
		{"too many", []string{"-cases", "10001"}, 2, "from 1 to 10000"},
		{"no time at all", []string{"-timeout", "0s"}, 2, "-timeout must be positive"},
		{"unknown store", []string{"-store", "mysql://user:secret@localhost/x"}, 1, "casework: a store of mysql:// is unknown"},
		{"no folder", []string{"-store", filepath.Join(file, "casework.db")}, 1, "casework: open SQLite"},
		{"no server", []string{"-store", "postgres://user:secret@127.0.0.1:1/none?connect_timeout=5"}, 1, "casework: open PostgreSQL"},
		{"no time", []string{"-store", file, "-timeout", "1ms"}, 1, "casework: not done after 1ms"},
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
	if code := run(t.Context(), []string{"--help"}, &out, &errs); code != 0 || errs.Len() > 0 || !strings.Contains(out.String(), "Examples:") || !strings.Contains(out.String(), "-cases int") {
		t.Errorf("exit code %d; it says %s%s", code, &out, &errs)
	}
}

// An interrupted demonstration ends, with an error. The next one finds what is left, and says so.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "casework.db")
	ctx, cancel := context.WithCancel(t.Context())
	if code := run(ctx, []string{"-store", file, "-cases", "2"}, &cancelling{cancel, "Wed 17"}, &bytes.Buffer{}); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-store", file, "-cases", "2"}, &out, &errs); code != 0 {
		t.Errorf("afterwards: exit code %d, want 0: %s", code, &errs)
	}
	if !strings.Contains(out.String(), "validation") {
		t.Errorf("what was interrupted is still there:\n%s", &out)
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
