package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{appenderCommand, bareCommand, loaderCommand}, os.Args[1]) { // as wake and gateway run it
		main()
		return
	}
	os.Exit(m.Run())
}

var quiet = log.New(io.Discard, "", 0)

func needServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Postgres and Redis; run without -short")
	}
}

func TestPeers(t *testing.T) {
	t.Parallel()
	needServers(t)
	file := filepath.Join(t.TempDir(), "peers.json")
	var table strings.Builder
	if err := run(t.Context(), []string{"peers", "-rounds", "1", "-events", "2000", "-json", file}, &table, quiet); err != nil {
		t.Fatal(err)
	}
	var results []result
	readJSON(t, file, &results)
	if got, want := len(results), len(contestants()); got != want {
		t.Fatalf("%d results of %d contestants", got, want)
	}
	list := contestants()
	for i, r := range results {
		if r.Group != list[i].group || r.Name != list[i].name {
			t.Errorf("result %d is of %s, %s; want %s, %s", i, r.Group, r.Name, list[i].group, list[i].name)
		}
		if r.EventsPer.Median <= 0 || r.Ratio <= 0 {
			t.Errorf("%s, %s: %+v", r.Group, r.Name, r)
		}
		if baselines(list)[r.Group] == r.Name && r.Ratio != 1 {
			t.Errorf("%s, %s is the baseline and has the ratio %v", r.Group, r.Name, r.Ratio)
		}
		if !strings.Contains(table.String(), r.Name) {
			t.Errorf("%s is not in the table", r.Name)
		}
	}
	for _, g := range peerGroups() {
		if !strings.Contains(table.String(), g.what) {
			t.Errorf("there is no table %q", g.what)
		}
	}
}

func TestBrokers(t *testing.T) {
	t.Parallel()
	needServers(t)
	file := filepath.Join(t.TempDir(), "brokers.json")
	var table strings.Builder
	if err := run(t.Context(), []string{"brokers", "-rounds", "1", "-messages", "2000", "-json", file}, &table, quiet); err != nil {
		t.Fatal(err)
	}
	var results []result
	readJSON(t, file, &results)
	list := brokerContestants()
	if len(results) != len(list) {
		t.Fatalf("%d results of %d contestants", len(results), len(list))
	}
	for i, r := range results {
		if r.Group != list[i].group || r.Name != list[i].name || r.EventsPer.Median <= 0 || r.Ratio <= 0 {
			t.Errorf("result %d is %+v, want one of %s, %s", i, r, list[i].group, list[i].name)
		}
		if !strings.Contains(table.String(), r.Name) {
			t.Errorf("%s is not in the table", r.Name)
		}
	}
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	needServers(t)
	file := filepath.Join(t.TempDir(), "backlog.json")
	var table strings.Builder
	args := []string{"backlog", "-rounds", "1", "-rows", "10000", "-drain", "2000", "-json", file}
	if err := run(t.Context(), args, &table, quiet); err != nil {
		t.Fatal(err)
	}
	var results []result
	readJSON(t, file, &results)
	want := []string{"2k pending, nothing else", "10k pending", "10k pending, an old transaction open", "10k sent and 2k pending"}
	if len(results) != len(want) {
		t.Fatalf("%d results, want %d: %+v", len(results), len(want), results)
	}
	for i, r := range results {
		if r.Name != want[i] || r.EventsPer.Median <= 0 || r.Ratio <= 0 {
			t.Errorf("result %d is %+v, want one of %q", i, r, want[i])
		}
		if !strings.Contains(table.String(), want[i]) {
			t.Errorf("%s is not in the table", want[i])
		}
	}
}

func TestWake(t *testing.T) {
	t.Parallel()
	needServers(t)
	file := filepath.Join(t.TempDir(), "wake.json")
	var table strings.Builder
	args := []string{"wake", "-rate", "500", "-steady", "200ms", "-pause", "50ms", "-sparse", "150ms", "-idle", "1s", "-json", file}
	if err := run(t.Context(), args, &table, quiet); err != nil {
		t.Fatal(err)
	}
	var report wakeReport
	readJSON(t, file, &report)
	want := []latency{
		{Name: "the same process, 500 events/s", Events: 100},
		{Name: "the same process, an event every 50ms", Events: 3},
		{Name: "another process, 500 events/s", Events: 100},
		{Name: "another process, an event every 50ms", Events: 3},
	}
	if len(report.Latencies) != len(want) {
		t.Fatalf("%d latencies, want %d: %+v", len(report.Latencies), len(want), report)
	}
	for i, l := range report.Latencies {
		if l.Name != want[i].Name || l.Events != want[i].Events || l.Max <= 0 || l.P50 > l.P99 || l.P99 > l.Max {
			t.Errorf("latency %d is %+v, want one of %+v", i, l, want[i])
		}
		if !strings.Contains(table.String(), l.Name) {
			t.Errorf("%s is not in the table", l.Name)
		}
	}
	if report.Idle.Seconds < 1 || report.Idle.CPU <= 0 || report.Idle.Statements <= 0 {
		t.Errorf("idle: %+v", report.Idle)
	}
}

// Not parallel: it changes where servers have their folders.
func TestInterruptLeavesNothing(t *testing.T) {
	needServers(t)
	dir, err := os.MkdirTemp("", "benchpeers-") // t.TempDir's parents are closed to the servers' users
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	atFirstLine := log.New(writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	}), "", 0)
	err = run(ctx, []string{"peers", "-events", "2000", "-only", "dispatch-1"}, io.Discard, atFirstLine)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted, it returns %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"no command":         {"river"},
		"-rounds is 0":       {"peers", "-rounds", "0"},
		"-events is -1":      {"peers", "-events", "-1"},
		"in no name":         {"peers", "-only", "nobody"},
		"up to 1000000 rows": {"backlog", "-rows", "999999"},
		"-drain is 0":        {"backlog", "-drain", "0"},
		"GB free":            {"backlog", "-rows", "1000000000000"},
		"-rate is 0":         {"wake", "-rate", "0"},
		"must be positive":   {"wake", "-idle", "0s"},
		"a part of wake":     {appenderCommand},
	} {
		if err := run(t.Context(), args, io.Discard, quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want an error with %q", args, err, want)
		}
	}
}

func readJSON(t *testing.T, file string, v any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
