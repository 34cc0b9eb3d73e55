package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// intaker takes signed events over HTTP, in a process of its own.
type intaker struct {
	name     string
	postgres bool // else on a SQLite file
	// start starts the process on a database.
	start func(ctx context.Context, g *gatewayBench, storeURL string) (*served, error)
}

func intakers() []intaker {
	return []intaker{
		{"bare handler, postgres", true, startBare},
		{"bare handler with a ledger, postgres", true, startBareWithLedger},
		{"gateway api, postgres", true, startGateway("api")},
		{"gateway api, sqlite", false, startGateway("api")},
		{"gateway run, sqlite", false, startGateway("run")},
	}
}

// gatewayBench is how the intakers are measured.
type gatewayBench struct {
	binary      string
	connections int
	warmUp      time.Duration
	duration    time.Duration
	progress    *log.Logger
}

func runGateway(ctx context.Context, args []string, out io.Writer, progress *log.Logger) error {
	flags, jsonFile := newFlags("gateway", progress)
	rounds := flags.Int("rounds", 3, "how often each contestant runs")
	only := flags.String("only", "", "run only those with this `text` in the name")
	g := gatewayBench{progress: progress}
	flags.StringVar(&g.binary, "gateway", filepath.Join("..", "..", "bin", "gateway"), "the gateway's `binary`")
	flags.IntVar(&g.connections, "connections", 64, "connections of the client, one request at a time on each")
	flags.DurationVar(&g.duration, "duration", 8*time.Second, "how long each run is measured")
	flags.DurationVar(&g.warmUp, "warm-up", time.Second, "how long it runs before that")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := positive(flags, "rounds", "connections"); err != nil {
		return err
	}
	if g.duration <= 0 || g.warmUp < 0 {
		return errors.New("-duration must be positive, -warm-up not negative")
	}
	var list []intaker
	for _, c := range intakers() {
		if strings.Contains(c.name, *only) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("-only: %q is in no name", *only)
	}
	report, err := g.compare(ctx, list, *rounds)
	if err != nil {
		return err
	}
	return writeReport(out, *jsonFile, report, func(w io.Writer) error { return writeIntakes(w, report) })
}

// compare interleaves the contestants, in another order in each round.
func (g *gatewayBench) compare(ctx context.Context, list []intaker, rounds int) (report []intakeResult, err error) {
	s, err := startServers(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	runs := make([][]intakeRun, len(list))
	for round := range rounds {
		for _, i := range shuffled(len(list), func(int) string { return "" }) {
			run, err := g.runOnce(ctx, s, list[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list[i].name, err)
			}
			runs[i] = append(runs[i], run)
			g.progress.Printf("round %d of %d: %s: %.0f events/s, p99 %.1f ms, CPU %.0f+%.0f+%.0f µs an event", round+1, rounds, list[i].name,
				run.Rate, run.P99, run.ClientCPU, run.ServerCPU, run.PostgresCPU)
		}
	}
	for i, c := range list {
		report = append(report, resultOf(c.name, runs[i]))
	}
	compareIntakes(report)
	return report, nil
}

// runOnce measures one on an empty database.
func (g *gatewayBench) runOnce(ctx context.Context, s *servers, c intaker) (run intakeRun, err error) {
	storeURL, drop, err := c.database(ctx, s)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if err := s.exec(ctx, "CHECKPOINT"); err != nil {
		return run, err
	}
	server, err := c.start(ctx, g, storeURL)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	postmaster, err := s.postmaster(ctx)
	if err != nil {
		return run, err
	}
	usage := func() (u usages, err error) {
		u.at = time.Now()
		if u.server, err = cpuOf(server.pid); err != nil {
			return u, err
		}
		if u.busy, err = cpuOfMachine(); err != nil {
			return u, err
		}
		if c.postgres {
			u.postgres, err = cpuOfFamily(postmaster)
		}
		return u, err
	}
	loaded, before, after, err := g.load(ctx, server.url, usage)
	if err != nil {
		return run, fmt.Errorf("%w\n%s", err, server.said())
	}
	return runOf(loaded, before, after), nil
}

func (c intaker) database(ctx context.Context, s *servers) (storeURL string, drop func() error, err error) {
	if c.postgres {
		return s.database(ctx)
	}
	dir, err := os.MkdirTemp("", "benchpeers-")
	if err != nil {
		return "", nil, err
	}
	return "sqlite:" + filepath.Join(dir, "waybill.db"), func() error { return os.RemoveAll(dir) }, nil
}

// usages are CPU times until a point in time.
type usages struct {
	at                     time.Time
	server, postgres, busy time.Duration
}

// runOf takes the parts for what the load has counted between two looks.
func runOf(l loadReport, before, after usages) intakeRun {
	wall := after.at.Sub(before.at)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(max(1, l.Events)) }
	capacity := wall * time.Duration(runtime.NumCPU())
	ours := l.CPU + after.server - before.server + after.postgres - before.postgres
	return intakeRun{
		Rate: float64(l.Events) / l.Seconds, P50: l.P50, P99: l.P99, Max: l.Max,
		ClientCPU: each(l.CPU), ServerCPU: each(after.server - before.server), PostgresCPU: each(after.postgres - before.postgres),
		Ours: float64(ours) / float64(capacity), Busy: float64(after.busy-before.busy) / float64(capacity),
	}
}
