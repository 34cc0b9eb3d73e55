package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// spread is what repeated measurements of one thing gave.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf returns zeros for no values.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return spread{Median: quantile(sorted, 0.5), Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// quantile interpolates between the two nearest of the sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (sorted[i+1]-sorted[i])*(at-float64(i))
}

// group is what is compared with each other: its first contestant is the baseline.
type group struct {
	name string
	what string // the heading of its table
	// byTime: ratios are of the time an event takes, the baseline's being 1, and
	// less is better. Otherwise they are of the rates, and more is better.
	byTime bool
}

func (g group) ratio(rate, baseline float64) float64 {
	if g.byTime {
		rate, baseline = baseline, rate
	}
	if baseline == 0 {
		return 0
	}
	return rate / baseline
}

func (g group) ratioOf() string {
	if g.byTime {
		return "time"
	}
	return "rate"
}

// result is one line of a report.
type result struct {
	Group     string  `json:"group"`
	Name      string  `json:"name"`
	EventsPer spread  `json:"events_per_s"`
	Ratio     float64 `json:"ratio"`    // of the medians, to the group's baseline
	RatioOf   string  `json:"ratio_of"` // "rate" (more is better) or "time" (less is)
}

// rates collects what was measured.
type rates struct {
	order  []rateKey
	values map[rateKey][]float64
}

type rateKey struct{ group, name string }

// declare gives a contestant its place in the tables.
func (r *rates) declare(group, name string) {
	if r.values == nil {
		r.values = map[rateKey][]float64{}
	}
	r.order = append(r.order, rateKey{group, name})
}

func (r *rates) add(group, name string, events int, took time.Duration) float64 {
	key := rateKey{group, name}
	rate := float64(events) / took.Seconds()
	r.values[key] = append(r.values[key], rate)
	return rate
}

// results compares the contestants of each group with the group's baseline.
func (r *rates) results(groups []group, baselines map[string]string) []result {
	var out []result
	for _, g := range groups {
		base := spreadOf(r.values[rateKey{g.name, baselines[g.name]}]).Median
		for _, key := range r.order {
			if key.group == g.name {
				s := spreadOf(r.values[key])
				out = append(out, result{Group: g.name, Name: key.name, EventsPer: s, Ratio: g.ratio(s.Median, base), RatioOf: g.ratioOf()})
			}
		}
	}
	return out
}

// writeTable writes a table for each group.
func writeTable(w io.Writer, groups []group, results []result) error {
	var t strings.Builder
	for _, g := range groups {
		better := "rate, baseline = 1; more is better"
		if g.byTime {
			better = "time per event, baseline = 1; less is better"
		}
		fmt.Fprintf(&t, "\n%s (%s)\n", g.what, better)
		t.WriteString("events/s\tmin\tmax\tratio\t\n")
		for _, r := range results {
			if r.Group == g.name {
				fmt.Fprintf(&t, "%.0f\t%.0f\t%.0f\t%.2f\t  %s\n", r.EventsPer.Median, r.EventsPer.Min, r.EventsPer.Max, r.Ratio, r.Name)
			}
		}
	}
	return writeAligned(w, t.String())
}

// writeAligned aligns the cells of a text, each of which ends in a tab.
func writeAligned(w io.Writer, cells string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, err := io.WriteString(t, cells)
	if err = errors.Join(err, t.Flush()); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// writeReport writes the table, the JSON, or both. file is that of -json.
func writeReport(out io.Writer, file string, results any, table func(io.Writer) error) error {
	if file != "-" {
		if err := table(out); err != nil {
			return err
		}
	}
	if file == "" {
		return nil
	}
	encoded, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	encoded = append(encoded, '\n')
	if file == "-" {
		_, err = out.Write(encoded)
	} else {
		err = os.WriteFile(file, encoded, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
