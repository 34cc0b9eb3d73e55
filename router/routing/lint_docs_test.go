package routing_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/router/routing"
)

// The routing files of docs/routing.md compile, and have no findings that matter; neither has what is put together step by step.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/routing.md")
	if err != nil {
		t.Fatal(err)
	}
	var whole, parts []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], "routing: 1\n") {
			whole = append(whole, block[1])
		} else {
			parts = append(parts, block[1])
		}
	}
	if len(whole) < 2 || len(parts) < 3 {
		t.Fatalf("docs/routing.md has %d files and %d parts", len(whole), len(parts))
	}
	for _, file := range whole {
		for _, f := range lint(t, file) {
			if f.Level != routing.LevelInfo {
				t.Errorf("%s\nhas %s", file, f)
			}
		}
	}
	before, _, found := strings.Cut(whole[0], "    mail:\n")
	if !found {
		t.Fatalf("the first file has no actions of mail:\n%s", whole[0])
	}
	if found := lint(t, before+strings.Join(parts[:3], "")); len(found) > 0 {
		t.Errorf("put together, it has %v", found)
	}

	misspelt := strings.Replace(before+parts[0], "payload.total", "payload.totla", 1)
	_, err = routing.Parse("shop.yaml", []byte(misspelt), nil)
	if err == nil {
		t.Fatal("a misspelt field compiles")
	}
	_, message, _ := strings.Cut(err.Error(), ": payload has ")
	if !regexp.MustCompile(`(?m)^shop\.yaml:25:\d+: payload has `+regexp.QuoteMeta(message)+`$`).Match(text) || !strings.Contains(err.Error(), "shop.yaml:25:") {
		t.Errorf("docs/routing.md does not show what Parse says of payload.totla:\n%v", err)
	}
}
