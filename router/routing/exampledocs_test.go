package routing_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing"
)

// The program of docs/routing.md is the example of the package, with the file that the page shows; so it compiles, and does what the page says.
func TestDocsShowTheProgram(t *testing.T) {
	t.Parallel()
	docs := read(t, "../../docs/routing.md")
	if !strings.Contains(docs, "```yaml\n"+read(t, "testdata/shop.yaml")+"```\n") {
		t.Error("docs/routing.md does not show testdata/shop.yaml as it is")
	}
	program, output, _ := strings.Cut(read(t, "example_test.go"), "\t// Unordered output:\n")
	program = strings.NewReplacer("package routing_test", "package main", "func Example()", "func main()", "testdata/shop.yaml", "shop.yaml").Replace(program) + "}\n"
	if !strings.Contains(docs, "```go\n"+program+"```\n") {
		t.Errorf("docs/routing.md does not show example_test.go as it is. Put this into a Go block:\n\n%s", program)
	}
	output = regexp.MustCompile(`(?m)^\t// `).ReplaceAllString(strings.TrimSuffix(output, "}\n"), "")
	if !strings.Contains(docs, "```console\n$ go run .\n"+output+"```\n") {
		t.Errorf("docs/routing.md does not show what the example prints:\n\n%s", output)
	}
}

func TestDocsShowTheEventLog(t *testing.T) {
	t.Parallel()
	_, code, _ := strings.Cut(read(t, "exampleeventlog_test.go"), "\t// docs: begin\n")
	code, _, found := strings.Cut(code, "\t// docs: end\n")
	if !found {
		t.Fatal("the example does not say which part of it the docs show")
	}
	code = regexp.MustCompile(`(?m)^\t`).ReplaceAllString(code, "")
	for _, page := range []string{"routing.md", "eventlog.md"} {
		if !strings.Contains(read(t, "../../docs/"+page), "```go\n"+code+"```\n") {
			t.Errorf("docs/%s does not show the example as it is. Put this into a Go block:\n\n%s", page, code)
		}
	}
}

// The events and lookups that docs/routing.md shows for diff have the difference that it shows.
func TestDocsDiff(t *testing.T) {
	t.Parallel()
	docs := read(t, "../../docs/routing.md")
	shown := func(file string) string {
		t.Helper()
		text := regexp.MustCompile(`(?m)^\$ cat ` + regexp.QuoteMeta(file) + "\n((?:[^$`].*\n)+)").FindStringSubmatch(docs)
		if text == nil {
			t.Fatalf("docs/routing.md does not show %s", file)
		}
		return text[1]
	}
	looked, err := routing.ParseLookups([]byte(shown("looked.json")))
	if err != nil {
		t.Fatal(err)
	}
	file := read(t, "testdata/shop.yaml")
	changed := replaceOnce(t, file, "payload.total >= 1000\n", "payload.total >= 500\n")
	changed = replaceOnce(t, changed, "      - when: payload.reason != \"customer\"\n        do: write\n", "      - do: write\n")
	d := routing.NewDiffer(table(t, file), table(t, changed), looked)
	for line := range strings.Lines(shown("events.ndjson")) {
		e, err := eventing.DecodeEnvelope([]byte(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		d.Event(context.Background(), e)
	}
	report := d.Report()
	if report.Events != 3 || len(report.Changes) != 2 || len(report.Uncompared) > 0 {
		t.Fatalf("%d events, %+v", report.Events, report)
	}
	for _, c := range report.Changes {
		for _, a := range c.Examples[0].New.Actions {
			if !strings.Contains(docs, "\n"+c.EventType+" "+c.Examples[0].EventID+": "+c.Consumer+"\n  - ") || !strings.Contains(docs, "\n  + "+a.String()+"\n") {
				t.Errorf("docs/routing.md does not show the change of %s: %s", c.Examples[0].EventID, a)
			}
		}
	}
}
