package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/cli"
)

// planned is what dlq plan prints as JSON.
type planned struct {
	eventing.PlanReport
	Plan string
}

// planFile plans into a file.
func (e environment) planFile(t *testing.T, args ...string) (path string, report planned) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "plan.json")
	return path, object[planned](t, e, append([]string{"dlq", "plan", "--out", path}, args...)...)
}

// planWithin is what a plan may take. In the short form others use the machine, too.
func planWithin() time.Duration {
	if testkit.Long() {
		return 2 * time.Second
	}
	return 30 * time.Second
}

// Ten thousand dead letters are planned in less than two seconds.
func TestPlanOfManyIsQuick(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{"sqlite": sqliteURL, "postgres": func(t *testing.T) string { return testserver.PostgresURL(t) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := application(t, url(t))
			e.seed(t, "10000")
			for _, match := range []string{"", `payload.amount > 5000 && event.type == "order.placed"`} {
				began := time.Now()
				path, report := e.planFile(t, map[bool][]string{false: {"--match", match}}[match == ""]...)
				took := time.Since(began)
				t.Logf("%s, match %q: %d targets in %s", name, match, report.Targets, took)
				if want := map[bool]int{true: 10_000, false: 2500}[match == ""]; report.Targets != want || took > planWithin() {
					t.Errorf("match %q: %d targets in %s; want %d in %s", match, report.Targets, took, want, planWithin())
				}
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the plan's file: %v, %v; want that only its owner may read it", info, err)
				}
			}
			if text := e.ok(t, "dlq", "plan"); !strings.Contains(text, "10000 dead letters would be replayed; 0 parked behind would follow; 0 left out.\nNothing was changed or written") {
				t.Errorf("plan: %s", text)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	db := e.open(t)
	letters := eventing.NewDeadLetters(db.Events)
	die(t, db, "e1", "billing", "no answer within 31s", 3)
	die(t, db, "e2", "billing", "no answer within 30s", 3)
	die(t, db, "e3", "search", "index \"x\" is closed", 1)
	replayed, resolved := die(t, db, "e4", "search", "gone", 1), die(t, db, "e5", "search", "gone", 1)
	must(t, letters.Replay(t.Context(), replayed, "bob", ""))
	must(t, letters.Replay(t.Context(), resolved, "bob", ""))
	process(t, db, resolved, 1)

	text := e.ok(t, "dlq", "plan")
	for _, want := range []string{
		"TYPE          CONSUMER  REPLAYS  OF THEM FORCED  PARKED BEHIND\norder.placed  billing   2        0               0\norder.placed  search    1        0               0\n",
		"2         billing   DOWNSTREAM_TIMEOUT_EXHAUSTED  no answer within <n>  e1\n",
		"1         closed: resolved             e5 at search\n1         replayed already: on its way  e4 at search\n",
		"3 dead letters would be replayed; 0 parked behind would follow; 2 left out.\n",
	} {
		if !strings.Contains(squeeze(text), squeeze(want)) {
			t.Errorf("plan does not say %q:\n%s", want, text)
		}
	}
	for args, want := range map[string]int{
		"--consumer search":                      1,
		"--consumer search --consumer billing":   3,
		"--consumer search --force":              2,
		"--type order.paid":                      0,
		"--reason DOWNSTREAM_TIMEOUT_EXHAUSTED":  3,
		"--stage dispatch":                       0,
		"--since 2026-02-26T12:01:00Z --limit 1": 1,
		"--until 2026-02-26T12:01:00Z":           1, // only e3 died that early
		"--key order/7":                          3,
		"--key order/8":                          0,
		"--tenant acme":                          0,
		"--status reviewed":                      0,
		"--match letter.consumer=='billing'":     2,
		"--match event.id.endsWith('1')":         1,
	} {
		if r := object[planned](t, e, append([]string{"dlq", "plan"}, strings.Fields(args)...)...); r.Targets != want {
			t.Errorf("plan %s: %+v, want %d targets", args, r, want)
		}
	}
	path, _ := e.planFile(t)
	if r := e.run(t, "dlq", "plan", "--out", path); r.code != 1 || !strings.Contains(r.stderr, "is there already") {
		t.Errorf("over another plan: %+v", r)
	}
	if r := e.run(t, "dlq", "plan", "--key", "order/8", "--out", path); r.code != 1 || !strings.Contains(r.stderr, "is there already") {
		t.Errorf("with nothing to plan, over another plan: %+v", r)
	}
	if r := e.run(t, "dlq", "apply", path+".none"); r.code != 1 || !strings.Contains(r.stderr, "dlq plan --out") {
		t.Errorf("apply of no file: %+v", r)
	}
	if r := e.run(t, "dlq", "apply", path); r.code != 2 || !strings.Contains(r.stderr, "3 replays") && !strings.Contains(r.stderr, "add --yes") {
		t.Errorf("apply without a yes: %+v", r)
	}
}

// squeeze makes any number of spaces one.
func squeeze(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }), " ")
}

// One plan for two databases is applied to both, and to no others.
func TestPlanOfTwoStores(t *testing.T) {
	t.Parallel()
	a, b := application(t, sqliteURL(t)), application(t, testserver.PostgresURL(t))
	a.seed(t, "20")
	b.seed(t, "30")
	both := []string{"--store", a["STORE_URL"], "--store", b["STORE_URL"]}
	path, report := a.planFile(t, both...)
	if report.Targets != 50 {
		t.Fatalf("plan: %+v", report)
	}
	text, err := os.ReadFile(path)
	must(t, err)
	if address, _, _ := strings.Cut(strings.TrimPrefix(b["STORE_URL"], "postgres://"), "@"); strings.Contains(address, ":") && strings.Contains(string(text), strings.SplitN(address, ":", 2)[1]+"@") {
		t.Error("the plan tells a password")
	}
	if r := a.run(t, "dlq", "apply", path, "--yes"); r.code != 2 || !strings.Contains(r.stderr, "the plan is also for postgres://") {
		t.Errorf("apply to one of two: %+v", r)
	}
	if r := application(t, sqliteURL(t)).run(t, "dlq", "apply", path, "--yes"); r.code != 2 || !strings.Contains(r.stderr, "the plan is not for sqlite:") {
		t.Errorf("apply to a third: %+v", r)
	}
	done := object[eventing.Applied](t, a, append([]string{"dlq", "apply", path, "--yes", "--rate=0"}, both...)...)
	if done.Replayed != 50 || done.Left != 0 || done.Plan != report.Plan {
		t.Errorf("applied: %+v", done)
	}
	for e, n := range map[*environment]int{&a: 20, &b: 30} {
		if s := object[stats](t, *e, "outbox", "stats"); s.Outbox["pending"] != n || s.DeadLetters["replayed"] != n {
			t.Errorf("%s: %+v, want %d replayed", (*e)["STORE_URL"], s, n)
		}
	}
}

func TestApplyTells(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	e.seed(t, "30")
	path, report := e.planFile(t)
	e.ok(t, "dlq", "close", "e100003", "--reason", "a test", "--yes")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := e.start(ctx, cli.Program{Args: []string{"dlq", "apply", path, "--yes"}}); r.code != 1 || r.stdout+r.stderr == "" {
		t.Errorf("interrupted at once: %+v", r)
	}
	forged := filepath.Join(t.TempDir(), "forged.json")
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(forged, []byte(strings.Replace(string(text), `"made_by":"`, `"made_by":"x\n  1 dead letter in all `, 1)), 0o600))
	if r := e.run(t, "dlq", "apply", forged); r.code != 2 || !strings.Contains(r.stderr, ` of x\n  1 dead letter in all `) {
		t.Errorf("a line that the plan would add to the question: %+v", r)
	}
	args := []string{"dlq", "apply", path, "--rate", "0", "--note", "fixed"}
	if r := e.start(t.Context(), cli.Program{Args: args, Interactive: true, Stdin: strings.NewReader("n\n")}); r.code != 1 || !strings.Contains(r.stderr, "nothing was done") ||
		!strings.Contains(r.stderr, "23 dead letters of billing in sqlite:") {
		t.Errorf("a no: %+v", r)
	}
	r := e.start(t.Context(), cli.Program{Args: args, Interactive: true, Stdin: strings.NewReader("y\n")})
	if r.code != 3 || !strings.Contains(r.stdout, "29 of 30 dead letters replayed; 1 left alone; 0 left.\n") ||
		!strings.Contains(squeeze(r.stdout), "1 changed since the plan: now closed: discarded e100003 at billing") || !strings.Contains(r.stderr, "1 dead letter was left alone") {
		t.Errorf("apply: %+v", r)
	}
	if r := e.run(t, "dlq", "apply", path, "--yes", "--json"); r.code != 3 || decode[eventing.Applied](t, r.stdout).Before != 29 {
		t.Errorf("apply again: %+v", r)
	}
	if text := e.ok(t, "dlq", "show", "e100001"); !strings.Contains(text, "fixed") || !strings.Contains(text, "plan "+report.Plan) {
		t.Errorf("show: %s", text)
	}
	must(t, os.WriteFile(path, []byte(strings.Replace(string(text), `"version":1`, `"version":7`, 1)), 0o600))
	if r := e.run(t, "dlq", "apply", path, "--yes"); r.code != 1 || !strings.Contains(r.stderr, "its version is 7") {
		t.Errorf("a plan of another version: %+v", r)
	}
}

// The gateway's ledger is final.
func TestGatewayRefusesForce(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e.ok(t, "migrate", "up")
	forced := filepath.Join(t.TempDir(), "plan.json")
	text, err := json.Marshal(eventing.Plan{Version: 1, ID: "p", Force: true, Stores: []eventing.StorePlan{}})
	must(t, err)
	must(t, os.WriteFile(forced, text, 0o600))
	for _, args := range []string{"dlq replay evt_1 --force --consumer " + projection, "dlq plan --force", "dlq apply --yes " + forced} {
		if r := e.run(t, strings.Fields(args)...); r.code != 2 || !strings.Contains(r.stderr, "its ledger says that a processed event is final") {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	e.seed(t, "40")
	text := e.ok(t, "dlq", "groups")
	if !strings.Contains(squeeze(text), "30 dead letters billing RETRIES_EXHAUSTED last ") ||
		!strings.Contains(text, "    error:   no answer within <n>\n    example: waybill dlq show e100001 --consumer billing\n"+
			"    replay:  waybill dlq plan --consumer billing --reason RETRIES_EXHAUSTED --error 'no answer within <n>'\n") {
		t.Errorf("groups: %s", text)
	}
	// The printed command plans just these.
	if r := object[planned](t, e, "dlq", "plan", "--consumer", "billing", "--reason", "RETRIES_EXHAUSTED", "--error", "no answer within <n>"); r.Targets != 30 {
		t.Errorf("plan of the group: %+v", r)
	}
	groups := object[struct{ Groups []eventing.FailureGroup }](t, e, "dlq", "groups", "--consumer", "search").Groups
	if len(groups) != 1 || groups[0].Count != 10 {
		t.Errorf("groups: %+v", groups)
	}
	if n := len(e.letters(t, "--limit", strconv.Itoa(40), "--consumer", "search", "--type", "order.placed")); n != 10 {
		t.Errorf("%d of search, want 10", n)
	}
}
