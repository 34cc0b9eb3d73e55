package router_test

import (
	"os"
	"strings"
	"testing"
)

// The README shows the package's example, so that what it shows compiles and runs.
func TestReadmeShowsTheExample(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, begun := strings.Cut(string(source), "\t// README: begin\n")
	code, _, ended := strings.Cut(code, "\t// README: end\n")
	if !begun || !ended {
		t.Fatal("the example does not say which part of it the README shows")
	}
	var want strings.Builder
	for line := range strings.Lines(code) {
		want.WriteString(strings.TrimPrefix(line, "\t"))
	}
	if !strings.Contains(string(readme), "```go\n"+strings.TrimRight(want.String(), "\n")+"\n```\n") {
		t.Errorf("README.md does not show the example as it is. Put this into its Go block:\n\n%s", &want)
	}
}
