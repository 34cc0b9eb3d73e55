package routing_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/router/routing"
)

// Whoever follows the walk-through of docs/routing.md, piece by piece, is told by lint what the docs say, and in the end has
// a file without faults, and a test of it that passes.
func TestDocsWalkThrough(t *testing.T) {
	t.Parallel()
	docs := read(t, "../../docs/routing.md")
	_, walk, _ := strings.Cut(docs, "\n## Add an event type and a consumer\n")
	if !strings.Contains(walk, "`- appointment` in the list of `notification`, after `- case_closure`") || !strings.Contains(walk, "`payload.form == \"visit\"`. Lint has nothing more to say") {
		t.Fatalf("the walk-through goes another way, which this test does not know:\n%s", walk)
	}
	var said []string // by lint, in the docs
	for _, m := range regexp.MustCompile("(?s)\\$ waybill routes lint routes.yaml\n(.*?)```").FindAllStringSubmatch(walk, -1) {
		said = append(said, withoutPlaces(m[1]))
	}
	file := read(t, "../../examples/casework/routes.yaml")
	steps := []func(){}
	for _, section := range []string{"consumers", "matrix", "events", "actions"} {
		piece := regexp.MustCompile("(?s)at the top of `" + section + "`.*?```yaml\n(.*?)```").FindStringSubmatch(walk)
		if piece == nil {
			t.Fatalf("the walk-through has nothing for %s", section)
		}
		steps = append(steps, func() { file = replaceOnce(t, file, "\n"+section+":\n", "\n"+section+":\n"+piece[1]) })
	}
	steps = append(steps, func() {
		file = replaceOnce(t, file, "          - case_closure\n", "          - case_closure\n          - appointment\n")
	})
	if len(said) != len(steps) {
		t.Fatalf("the walk-through has %d steps, and lints %d times", len(steps), len(said))
	}
	for i, step := range steps {
		step()
		if got, want := findings(t, file), said[i]; !strings.HasPrefix(want, got) || got == "" {
			t.Errorf("after step %d lint says\n%sand the docs\n%s", i+1, got, want)
		}
	}
	file = replaceOnce(t, file, `"vist"`, `"visit"`)
	if got := findings(t, file); got != "" {
		t.Errorf("in the end, lint says\n%s", got)
	}

	piece := regexp.MustCompile("(?s)At the end of `routes_test.yaml`:\n\n```yaml\n(.*?)```").FindStringSubmatch(walk)
	if piece == nil {
		t.Fatal("the walk-through has no test")
	}
	table, err := routing.Parse("routes.yaml", []byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := routing.ParseTests("routes_test.yaml", []byte(read(t, "../../examples/casework/routes_test.yaml")+piece[1]))
	if err != nil {
		t.Fatal(err)
	}
	report := table.Test(t.Context(), tests)
	if report.Passed != report.Tests || len(report.Coverage.Unreached) > 0 {
		t.Errorf("%d of %d tests pass, %v, and leave out %v", report.Passed, report.Tests, report.Failures, report.Coverage.Unreached)
	}
}

// findings is what lint says of a file, but for information, without the places.
func findings(t *testing.T, file string) string {
	t.Helper()
	path := t.TempDir() + "/routes.yaml"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := routing.LintFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, f := range found {
		if f.Level != routing.LevelInfo {
			f.File = "routes.yaml"
			lines.WriteString(f.String() + "\n")
		}
	}
	return withoutPlaces(lines.String())
}

// withoutPlaces has a routing file's comments grow, and lines move, without the docs being wrong.
func withoutPlaces(text string) string {
	return regexp.MustCompile(`(?m)^routes\.yaml:\d+:\d+: `).ReplaceAllString(text, "")
}

func replaceOnce(t *testing.T, text, old, with string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("%q is there %d times, want once", old, n)
	}
	return strings.Replace(text, old, with, 1)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
