package middleware_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/internal/testserver"
)

// The rules are what promtool's own tests say, and know only metrics that there are.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "waybill.rules.yml"}, {"test", "rules", "waybill.rules_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), testserver.Tool(t, "promtool"), args...)
		cmd.Dir = "../docs/alerts"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// Whatever a rule asks for is in the table of docs/metrics.md; each rule is there, and tested.
func TestAlertsAreDocumented(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rules, tests, page, metrics := read("alerts/waybill.rules.yml"), read("alerts/waybill.rules_test.yml"), read("metrics.md"), documented(t)
	runbook := read("operations.md")
	used := regexp.MustCompile(`\b(?:waybill_|events?_|dlq_)[a-z_]+\b`)
	for _, name := range used.FindAllString(rules+tests, -1) {
		if metrics[name] == "" && name != "event_type" {
			t.Errorf("the rules know %s, which docs/metrics.md does not", name)
		}
	}
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	for _, alert := range alerts {
		fires := regexp.MustCompile(`ALERTS\{alertname="` + alert[1] + `", alertstate="firing"`)
		if !regexp.MustCompile("(?m)^\\| `"+alert[1]+"` ").MatchString(page) || !fires.MatchString(tests) {
			t.Errorf("%s is to be in docs/metrics.md, and seen to fire in the rules' tests", alert[1])
		}
	}
	for _, alert := range alerts {
		if !strings.Contains(runbook, "\n### "+alert[1]+"\n\n") {
			t.Errorf("docs/operations.md does not say what to do at %s", alert[1])
		}
	}
	if len(alerts) < 4 {
		t.Errorf("there are %d alerts", len(alerts))
	}
}
