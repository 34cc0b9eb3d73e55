package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestGateway(t *testing.T) {
	t.Parallel()
	needServers(t)
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "gateway"), "./service/cmd/gateway")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the gateway: %v\n%s", err, out)
	}
	file := filepath.Join(dir, "gateway.json")
	var table strings.Builder
	if err := run(t.Context(), []string{
		"gateway", "-gateway", filepath.Join(dir, "gateway"), "-rounds", "1", "-duration", "500ms", "-warm-up", "100ms", "-json", file,
	}, &table, quiet); err != nil {
		t.Fatal(err)
	}
	var report []intakeResult
	readJSON(t, file, &report)
	if len(report) != len(intakers()) {
		t.Fatalf("%d results of %d contestants", len(report), len(intakers()))
	}
	for i, r := range report {
		c := intakers()[i]
		if r.Name != c.name || !strings.Contains(table.String(), r.Name) {
			t.Errorf("result %d is of %q, want %q, and in the table", i, r.Name, c.name)
		}
		if r.Accepted.Median <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.Max < r.P99 || r.Limit == "" || c.postgres != (r.Ratio > 0) {
			t.Errorf("%+v", r)
		}
	}
}

// Each request is whole, and another event.
func TestMakeRequests(t *testing.T) {
	t.Parallel()
	r := makeRequests("127.0.0.1:1", 100, time.Now())
	if r.count() != 100 {
		t.Fatalf("%d requests", r.count())
	}
	known := map[string]bool{}
	for i := range r.count() {
		head, body, _ := strings.Cut(string(r.at(i)), "\r\n\r\n")
		if known[body] || !strings.HasSuffix(body, "}}") {
			t.Fatalf("request %d: %s", i, body)
		}
		known[body] = true
		if got, want := answerEnd(r.at(i)), r.size; got != want || !strings.HasPrefix(head, "POST ") {
			t.Fatalf("request %d is %d bytes long, of %d", i, got, want)
		}
	}
}
