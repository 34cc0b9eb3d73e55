package routing_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/router/routing"
)

// The document that the example was made of leaves out 15 event types, and what to do in ten cells.
func TestLintDocument(t *testing.T) {
	t.Parallel()
	found, err := routing.LintFile("../../examples/casework/testdata/document.yaml")
	if err != nil {
		t.Fatal(err)
	}
	types, cells, others := 0, map[string]int{}, map[string]int{}
	for _, f := range found {
		switch f.Code {
		case "type-not-in-matrix":
			types++
		case "cell-without-action":
			_, after, _ := strings.Cut(f.Message, " to ")
			consumer, _, _ := strings.Cut(after, ",")
			cells[consumer]++
		default:
			others[f.Code]++
			if f.Code != "conditional-only" || f.Level != routing.LevelInfo {
				t.Errorf("unexpected: %s", f)
			}
		}
	}
	if types != 15 {
		t.Errorf("%d event types are not in the matrix, want 15", types)
	}
	if want := map[string]int{"notification_engine": 4, "workflow_engine": 5, "fraud_engine": 1}; !maps.Equal(cells, want) {
		t.Errorf("cells without an action: %v, want %v", cells, want)
	}
	if want := map[string]int{"conditional-only": 3}; !maps.Equal(others, want) {
		t.Errorf("besides: %v, want %v", others, want)
	}
	if t.Failed() {
		for _, f := range found {
			t.Log(f)
		}
	}
}

// The example decides on all of that.
func TestLintCasework(t *testing.T) {
	t.Parallel()
	found, err := routing.LintFile("../../examples/casework/routes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.DeleteFunc(found, func(f routing.Finding) bool { return f.Level == routing.LevelInfo }) {
		t.Error(f)
	}
}
