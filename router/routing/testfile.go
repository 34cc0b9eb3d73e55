package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// TestFile is a file of tests of a routing file: events, each with what is to become of it.
//
//	lookups:                                    # optional: of all tests that do not say otherwise
//	  citizen: {sms: true}                      # whatever the key
//	tests:
//	  - name: approval goes out by SMS, too
//	    event: {type: case_status_changed, payload: {case_id: c-1, new_status: approved}}
//	    lookups:
//	      case: {$keys: {c-1: {risk: LOW}}}     # under this key, and under no other
//	      office: {$error: out of reach}        # fails
//	    expect:                                 # every consumer that gets the event, and what it does
//	      audit_log: [{do: record}]
//	      notification_engine: [{do: notify, with: {channels: [portal, sms]}}]
//	      workflow_engine: []                   # gets it, and does nothing
//	      fraud_engine: {$error: retry}         # the attempt fails; or the reason code of a dead letter
//	    lane: critical                          # optional; or normal
//
// An event has the fields of an envelope, type in place of event_type if you like. What is left out is that of an event of version 1
// with the id "test", of 2026-01-01T00:00:00Z, with the payload {}. `with` is compared as a whole, lists in their order.
//
// A test fails if a lookup is asked for and not given: say what it finds, or that it fails.
type TestFile struct {
	Name  string // of the file, for messages
	Tests []Test

	src *routefile.TestFile
}

// Test is one of a file of tests.
type Test struct {
	Name     string
	Line     int
	Envelope eventing.Envelope // the event, with what the file leaves out
}

// LoadTests reads a file of tests. The error names each fault with its place, as FILE:LINE:COLUMN.
func LoadTests(path string) (*TestFile, error) {
	text, err := readFile(func() (fs.FileInfo, error) { return os.Stat(path) }, func() (*os.File, error) { return os.Open(path) })
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	return ParseTests(path, text)
}

// ParseTests is [LoadTests] for text. name is for messages.
func ParseTests(name string, text []byte) (*TestFile, error) {
	src, err := routefile.ParseTests(name, text)
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	f := &TestFile{Name: src.Name, src: src}
	for _, t := range src.Tests {
		f.Tests = append(f.Tests, Test{t.Text, t.Pos.Line, t.Event})
	}
	return f, nil
}

// TestReport is what became of tests.
type TestReport struct {
	File     string        `json:"file"`
	Version  string        `json:"routing_version"`
	Tests    int           `json:"tests"`
	Passed   int           `json:"passed"`
	Failures []TestFailure `json:"failures"`
	Coverage Coverage      `json:"coverage"`
}

// TestFailure is something that did not become of an event what a test expects.
type TestFailure struct {
	File string `json:"file"`
	Line int    `json:"line"` // of what is expected
	Test string `json:"test"`
	// Consumer is empty if the failure is about the event as a whole.
	Consumer string `json:"consumer,omitempty"`
	// Problem says it in one sentence. Expected and Got say it in the words of test files, where there is something to compare.
	Problem  string `json:"problem"`
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
}

// Coverage is what of a table tests have reached.
type Coverage struct {
	// Cells are those that the matrix ticks: reached if a test has such an event delivered.
	Cells Covered `json:"cells"`
	// Rules and Modifiers are reached if they matched.
	Rules     Covered `json:"rules"`
	Modifiers Covered `json:"modifiers"`
	// Unreached are what no test has reached, in the file's order.
	Unreached []Unreached `json:"unreached"`
}

// Covered counts.
type Covered struct {
	Reached int `json:"reached"`
	Total   int `json:"total"`
}

// Unreached is a cell, a rule or a modifier.
type Unreached struct {
	Line int    `json:"line"`
	Kind string `json:"kind"` // cell, rule or modifier
	Name string `json:"name"`
}

// Test runs tests. Events of older schema versions fail them: they are brought to the latest by Go functions, which a file does not
// have, and [Router.Test] has.
func (t *Table) Test(ctx context.Context, files ...*TestFile) TestReport {
	return t.test(ctx, nil, files)
}

// Test runs tests as [Table.Test] does, with the router's upcasters. Lookups are the tests' own.
func (r *Router) Test(ctx context.Context, files ...*TestFile) TestReport {
	return r.table.test(ctx, r.ups, files)
}

func (t *Table) test(ctx context.Context, ups upcasters, files []*TestFile) TestReport {
	report := TestReport{File: t.file.Name, Version: t.Version(), Failures: []TestFailure{}}
	cov := newCoverage()
	for _, f := range files {
		for i := range f.src.Tests {
			run := testRun{table: t, file: f.src, test: &f.src.Tests[i], ups: ups, cov: cov}
			run.run(ctx)
			report.Tests++
			if len(run.failures) == 0 {
				report.Passed++
			}
			report.Failures = append(report.Failures, run.failures...)
		}
	}
	report.Coverage = cov.of(t)
	return report
}

// testLookups are the results that a test, or else its file, gives.
func testLookups(f *routefile.TestFile, t *routefile.Test) Lookups {
	l := Lookups{}
	for _, list := range [][]routefile.TestLookup{f.Lookups, t.Lookups} {
		for _, given := range list {
			l[given.Text] = map[string]json.RawMessage{}
			for key, value := range given.Results {
				l[given.Text][key], _ = json.Marshal(value) // decoded JSON always encodes
			}
		}
	}
	return l
}

// undeclared names a lookup that the table does not declare; "" if there is none.
func (t *Table) undeclared(list []routefile.TestLookup) (at routefile.Name, hint string, found bool) {
	known := map[string]bool{}
	for _, l := range t.lookups {
		known[l.src.Text] = true
	}
	for _, given := range list {
		if !known[given.Text] {
			return given.Name, suggest(given.Text, maps.Keys(known)), true
		}
	}
	return routefile.Name{}, "", false
}
