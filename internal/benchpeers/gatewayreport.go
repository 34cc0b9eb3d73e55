package main

import (
	"fmt"
	"io"
	"strings"
)

// intakeRun is one measurement.
type intakeRun struct {
	Rate          float64
	P50, P99, Max float64 // of the time from request to answer, in ms
	// CPU for each accepted event, in µs.
	ClientCPU, ServerCPU, PostgresCPU float64
	// Ours is the share of the machine's processors that client, server and Postgres had;
	// Busy is that of all processes.
	Ours, Busy float64
}

// intakeResult is one line of the report: medians, each of its own.
type intakeResult struct {
	Name        string  `json:"name"`
	Accepted    spread  `json:"accepted_per_s"`
	Ratio       float64 `json:"ratio,omitempty"`     // to the bare handler's rate
	CPURatio    float64 `json:"cpu_ratio,omitempty"` // of the CPU of all three for an event, the bare handler's being 1
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
	Max         float64 `json:"max_ms"` // of all rounds
	ClientCPU   float64 `json:"client_cpu_us"`
	ServerCPU   float64 `json:"server_cpu_us"`
	PostgresCPU float64 `json:"postgres_cpu_us"`
	Ours        float64 `json:"cpu_share"`
	Busy        float64 `json:"cpu_busy"`
	Limit       string  `json:"limit"`
}

func (r intakeResult) cpu() float64 { return r.ClientCPU + r.ServerCPU + r.PostgresCPU }

func resultOf(name string, runs []intakeRun) intakeResult {
	all := func(value func(intakeRun) float64) spread {
		values := make([]float64, len(runs))
		for i, r := range runs {
			values[i] = value(r)
		}
		return spreadOf(values)
	}
	median := func(value func(intakeRun) float64) float64 { return all(value).Median }
	r := intakeResult{
		Name:     name,
		Accepted: all(func(r intakeRun) float64 { return r.Rate }),
		P50:      median(func(r intakeRun) float64 { return r.P50 }), P99: median(func(r intakeRun) float64 { return r.P99 }),
		Max:         all(func(r intakeRun) float64 { return r.Max }).Max,
		ClientCPU:   median(func(r intakeRun) float64 { return r.ClientCPU }),
		ServerCPU:   median(func(r intakeRun) float64 { return r.ServerCPU }),
		PostgresCPU: median(func(r intakeRun) float64 { return r.PostgresCPU }),
		Ours:        median(func(r intakeRun) float64 { return r.Ours }), Busy: median(func(r intakeRun) float64 { return r.Busy }),
	}
	r.Limit = limitOf(r)
	return r
}

// limitOf says what an intaker waits for.
func limitOf(r intakeResult) string {
	const full = 0.85
	switch {
	case r.Busy < full:
		return "syncs of the log: processors were idle"
	case r.Busy-r.Ours > 0.1:
		return "processors, a part of which others had"
	case r.PostgresCPU > max(r.ServerCPU, r.ClientCPU):
		return "processors, Postgres first"
	case r.ClientCPU > r.ServerCPU:
		return "processors, the client first"
	default:
		return "processors, the server first"
	}
}

// compareIntakes fills in the ratios, if the bare handler was measured.
func compareIntakes(report []intakeResult) {
	for i := range report {
		if bare := report[0]; strings.HasPrefix(bare.Name, "bare") && bare.Accepted.Median > 0 && strings.HasSuffix(report[i].Name, "postgres") {
			report[i].Ratio = report[i].Accepted.Median / bare.Accepted.Median
			report[i].CPURatio = report[i].cpu() / bare.cpu()
		}
	}
}

func writeIntakes(w io.Writer, report []intakeResult) error {
	var t strings.Builder
	t.WriteString("\nAccepted events (202 after the commit), distinct and signed\n")
	t.WriteString("events/s\tmin\tmax\tratio\tCPU ratio\tp50 ms\tp99\tmax\tCPU µs: client\tserver\tPostgres\tall\t\n")
	for _, r := range report {
		ratios := "-\t-"
		if r.Ratio > 0 {
			ratios = fmt.Sprintf("%.2f\t%.2f", r.Ratio, r.CPURatio)
		}
		fmt.Fprintf(&t, "%.0f\t%.0f\t%.0f\t%s\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t  %s\n", r.Accepted.Median, r.Accepted.Min, r.Accepted.Max, ratios,
			r.P50, r.P99, r.Max, r.ClientCPU, r.ServerCPU, r.PostgresCPU, r.cpu(), r.Name)
	}
	t.WriteString("\nours\tall\tlimit\t\n")
	for _, r := range report {
		fmt.Fprintf(&t, "%.0f %%\t%.0f %%\t%s\t  %s\n", 100*r.Ours, 100*r.Busy, r.Limit, r.Name)
	}
	return writeAligned(w, t.String())
}
