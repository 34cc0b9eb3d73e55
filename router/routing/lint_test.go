package routing_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

var update = flag.Bool("update", false, "write the findings of testdata/lint anew")

// Each file of testdata/lint is named after the code of its findings, and a variant, and has a routing file, the findings, and the
// same file mended, which has none.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, path := range lintCases(t) {
		code, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".txt"), ".")
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			parts := sections(t, path)
			found := lint(t, parts["routes.yaml"])
			var lines strings.Builder
			for _, f := range found {
				if f.Code != code {
					t.Errorf("found %s, which this file is not about", f)
				}
				fmt.Fprintln(&lines, f)
			}
			if len(found) == 0 {
				t.Errorf("there is no finding")
			}
			if *update {
				text := fmt.Sprintf("-- routes.yaml --\n%s-- findings --\n%s-- mended.yaml --\n%s", parts["routes.yaml"], lines.String(), parts["mended.yaml"])
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got, want := lines.String(), parts["findings"]; got != want {
				t.Errorf("findings:\n%swant:\n%s(go test -run TestLint -update writes them)", got, want)
			}
			for _, f := range lint(t, parts["mended.yaml"]) {
				t.Errorf("the mended file has %s", f)
			}
		})
	}
}

func lintCases(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/lint/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata/lint: %d files, %v", len(paths), err)
	}
	return paths
}

// sections splits a file at its lines "-- NAME --".
func sections(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	heads := regexp.MustCompile(`(?m)^-- (\S+) --\n`).FindAllSubmatchIndex(text, -1)
	parts := map[string]string{}
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		parts[string(text[h[2]:h[3]])] = string(text[h[1]:end])
	}
	return parts
}

func lint(t *testing.T, text string) []routing.Finding {
	t.Helper()
	table, err := routing.Parse("routes.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	found := table.Lint()
	if !slices.Equal(found, table.Lint()) {
		t.Errorf("linted again, the table has other findings")
	}
	again, err := routing.Parse("routes.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, again.Lint()) {
		t.Errorf("compiled again, the file has other findings")
	}
	return found
}

// Each code that the linter has is tested, and documented with its level.
func TestLintCodes(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{"invalid": true}
	for _, path := range lintCases(t) {
		code, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".txt"), ".")
		tested[code] = true
	}
	docs, err := os.ReadFile("../../docs/routing.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := fs.Glob(os.DirFS("."), "lint*.go")
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`l\.(error|warn|info)\([^"]*"([a-z-]+)"`)
	levels := map[string]routing.Level{"error": routing.LevelError, "warn": routing.LevelWarning, "info": routing.LevelInfo}
	codes := map[string]bool{}
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range calls.FindAllStringSubmatch(string(text), -1) {
			level, code := levels[call[1]], call[2]
			codes[code] = true
			if !tested[code] {
				t.Errorf("%s: %s has no file in testdata/lint", name, code)
			}
			if row := fmt.Sprintf("| `%s` | %s |", code, level); !strings.Contains(string(docs), row) {
				t.Errorf("%s: docs/routing.md has no row %s", name, row)
			}
		}
	}
	for code := range tested {
		if !codes[code] && code != "invalid" {
			t.Errorf("testdata/lint has %s, which no code of the linter is", code)
		}
	}
}

func TestLintFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const file = "routing: 1\nconsumers:\n  billing: {}\nevents:\n  order_placed: {schema: order.json}\nmatrix:\n  order_placed: [%s]\nactions:\n  order_placed:\n    billing:\n      - do: charge\n"
	write("order.json", `{"type": "object"}`)

	clean := write("clean.yaml", fmt.Sprintf(file, "billing"))
	if found, err := routing.LintFile(clean); err != nil || len(found) != 0 {
		t.Errorf("a clean file: %v, %v", found, err)
	}
	idle := write("idle.yaml", fmt.Sprintf(file, ""))
	found, err := routing.LintFile(idle)
	if err != nil || len(found) != 3 || found[0].File != idle || found[0].Code != "consumer-not-in-matrix" {
		t.Errorf("a file with an empty row: %v, %v", found, err)
	}
	faulty := write("faulty.yaml", fmt.Sprintf(file, "biling"))
	found, err = routing.LintFile(faulty)
	want := routing.Finding{File: faulty, Line: 7, Column: 18, Level: routing.LevelError, Code: "invalid"}
	if len(found) == 1 {
		want.Message = found[0].Message
	}
	if err != nil || len(found) != 1 || found[0] != want || !strings.Contains(found[0].Message, "billing") {
		t.Errorf("a file with a misspelt consumer: %v, %v", found, err)
	}
	if found, err := routing.LintFile(filepath.Join(dir, "none.yaml")); err == nil {
		t.Errorf("a file that is not there: %v", found)
	}
}

// New refuses what lint calls an error, and tells the same.
func TestLintErrorsKeepATableFromRunning(t *testing.T) {
	t.Parallel()
	for _, path := range lintCases(t) {
		parts := sections(t, path)
		table, err := routing.Parse("routes.yaml", []byte(parts["routes.yaml"]), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = routing.New(router.Config{Store: memstore.New()}, table, routing.Config{})
		for _, f := range table.Lint() {
			refused := err != nil && strings.Contains(err.Error(), f.String())
			if refused != (f.Level == routing.LevelError) {
				t.Errorf("%s: New says %v about %s", path, err, f)
			}
		}
	}
}
