package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// load is how events are appended: evenly spaced, whether or not the last ones
// have been committed.
type load struct {
	Name     string
	Events   int
	Interval time.Duration
}

// latency is from the commit, when InTx returned, to the broker's confirmation, in
// milliseconds; 0 where the broker was faster.
type latency struct {
	Name   string  `json:"name"`
	Events int     `json:"events"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

// idleness is what a dispatcher costs that has nothing to do.
type idleness struct {
	Seconds    float64 `json:"seconds"`
	CPU        float64 `json:"cpu_percent"` // of one CPU, of the dispatcher's process
	Statements float64 `json:"statements_per_s"`
}

type wakeReport struct {
	Latencies []latency `json:"latencies"`
	Idle      idleness  `json:"idle"`
}

func runWake(ctx context.Context, args []string, out io.Writer, progress *log.Logger) error {
	flags, jsonFile := newFlags("wake", progress)
	rate := flags.Int("rate", 1000, "events a second of the steady load")
	steady := flags.Duration("steady", 20*time.Second, "how long the steady load lasts")
	pause := flags.Duration("pause", 2*time.Second, "time between events of the sparse load")
	sparse := flags.Duration("sparse", time.Minute, "how long the sparse load lasts")
	idle := flags.Duration("idle", 30*time.Second, "how long the idle dispatcher is watched")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := positive(flags, "rate"); err != nil {
		return err
	}
	if min(*steady, *pause, *sparse, *idle) <= 0 {
		return errors.New("all durations must be positive")
	}
	loads := []load{
		{fmt.Sprintf("%d events/s", *rate), max(1, int(steady.Seconds()*float64(*rate))), time.Second / time.Duration(*rate)},
		{fmt.Sprintf("an event every %v", *pause), max(1, int(*sparse / *pause)), *pause},
	}
	report, err := measureWake(ctx, loads, *idle, progress)
	if err != nil {
		return err
	}
	return writeReport(out, *jsonFile, report, report.write)
}

func measureWake(ctx context.Context, loads []load, idle time.Duration, progress *log.Logger) (report wakeReport, err error) {
	s, err := startServers(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, p := range []wakePlan{
		{from: "the same process", run: (*wakeBench).here, loads: loads},
		{from: "another process", run: (*wakeBench).elsewhere, loads: loads, idle: idle},
	} {
		if err := report.add(ctx, s, p, progress); err != nil {
			return report, err
		}
	}
	return report, nil
}

// wakePlan is what is measured with one dispatcher.
type wakePlan struct {
	from  string // where the events are appended
	run   func(*wakeBench) appender
	loads []load
	idle  time.Duration // 0: the idle dispatcher is not watched
}

func (r *wakeReport) add(ctx context.Context, s *servers, p wakePlan, progress *log.Logger) (err error) {
	w, err := s.startWake(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, l := range p.loads {
		progress.Printf("appending from %s, %s, for %v", p.from, l.Name, time.Duration(l.Events)*l.Interval)
		measured, err := w.measure(ctx, l, p.run(w))
		if err != nil {
			return fmt.Errorf("appending from %s, %s: %w", p.from, l.Name, err)
		}
		measured.Name = p.from + ", " + l.Name
		r.Latencies = append(r.Latencies, measured)
	}
	if p.idle == 0 {
		return nil
	}
	progress.Printf("watching the idle dispatcher for %v", p.idle)
	r.Idle, err = w.idle(ctx, p.idle)
	return err
}

// wakeBench is a dispatcher in this process, and what it has published.
type wakeBench struct {
	*arena
	store      *pgstore.Store
	stamped    stamps
	statements *statementCount
	stop       func()
}

func (s *servers) startWake(ctx context.Context) (_ *wakeBench, err error) {
	w := &wakeBench{statements: &statementCount{}}
	w.arena, err = s.open(ctx, nil, func(c *pgxpool.Config) { c.ConnConfig.Tracer = w.statements })
	if err != nil {
		return nil, err
	}
	w.published.each = w.stamped.see
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err = pgstore.Migrate(ctx, w.pool); err != nil {
		return nil, err
	}
	w.store = pgstore.New(w.pool)
	d, err := w.newDispatcher(w.store, eventing.DispatcherConfig{})
	if err != nil {
		return nil, err
	}
	w.stop = runDispatcher(ctx, d)
	// What only the first event has to wait for is not measured.
	_, err = w.measure(ctx, load{Events: 1, Interval: time.Millisecond}, w.here())
	return w, err
}

func (w *wakeBench) close() error {
	if w.stop != nil {
		w.stop()
	}
	return w.arena.close()
}

// wakeTimeout is after the last commit.
const wakeTimeout = 30 * time.Second

func (w *wakeBench) measure(ctx context.Context, l load, run appender) (latency, error) {
	full := w.published.expect(l.Events)
	committed, err := run(ctx, l)
	if err != nil {
		return latency{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wakeTimeout, errors.New("the dispatcher takes too long"))
	defer cancel()
	if err := wait(ctx, full); err != nil {
		return latency{}, err
	}
	var waits []float64
	for id, at := range committed {
		published, ok := w.stamped.get(id)
		if !ok {
			return latency{}, fmt.Errorf("event %s was not published", id)
		}
		waits = append(waits, max(0, published.Sub(at).Seconds()*1000))
	}
	slices.Sort(waits)
	return latency{Events: len(waits), P50: quantile(waits, 0.5), P99: quantile(waits, 0.99), Max: quantile(waits, 1)}, nil
}

func (w *wakeBench) idle(ctx context.Context, d time.Duration) (idleness, error) {
	before, err := cpuTime()
	if err != nil {
		return idleness{}, err
	}
	statements, start := w.statements.Load(), time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return idleness{}, context.Cause(ctx)
	}
	after, err := cpuTime()
	took := time.Since(start).Seconds()
	return idleness{
		Seconds:    took,
		CPU:        (after - before).Seconds() / took * 100,
		Statements: float64(w.statements.Load()-statements) / took,
	}, err
}

func (r wakeReport) write(w io.Writer) error {
	var t strings.Builder
	t.WriteString("\nFrom commit to broker, milliseconds\np50\tp99\tmax\tevents\t  appended by\n")
	for _, l := range r.Latencies {
		fmt.Fprintf(&t, "%.1f\t%.1f\t%.1f\t%d\t  %s\n", l.P50, l.P99, l.Max, l.Events, l.Name)
	}
	fmt.Fprintf(&t, "\nIdle for %.0f s: %.2f %% of a CPU, %.1f statements/s\n", r.Idle.Seconds, r.Idle.CPU, r.Idle.Statements)
	return writeAligned(w, t.String())
}
