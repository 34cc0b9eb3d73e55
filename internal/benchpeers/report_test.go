package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{3, 1}, spread{2, 1, 3}},
		{[]float64{9, 1, 5}, spread{5, 1, 9}},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 4}},
	} {
		values := append([]float64{}, c.values...)
		if got := spreadOf(values); got != c.want {
			t.Errorf("spread of %v is %+v, want %+v", c.values, got, c.want)
		}
		for i := range values {
			if values[i] != c.values[i] {
				t.Errorf("%v were reordered to %v", c.values, values)
			}
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	sorted := []float64{0, 10, 20, 30, 40}
	for q, want := range map[float64]float64{0: 0, 0.25: 10, 0.5: 20, 0.9: 36, 0.99: 39.6, 1: 40} {
		if got := quantile(sorted, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %v", got)
	}
}

func TestRatios(t *testing.T) {
	t.Parallel()
	faster, slower := group{name: "dispatch"}, group{name: "append", byTime: true}
	var r rates
	for _, g := range []group{faster, slower} {
		r.declare(g.name, "bare")
		r.declare(g.name, "ours")
		for _, took := range []time.Duration{4 * time.Second, time.Second, 2 * time.Second} {
			r.add(g.name, "bare", 1000, took)
		}
		if rate := r.add(g.name, "ours", 1000, 4*time.Second); rate != 250 {
			t.Errorf("1000 events in 4 s are %v a second", rate)
		}
	}
	got := r.results([]group{faster, slower}, map[string]string{"dispatch": "bare", "append": "bare"})
	want := []result{
		{"dispatch", "bare", spread{500, 250, 1000}, 1, "rate"},
		{"dispatch", "ours", spread{250, 250, 250}, 0.5, "rate"},
		{"append", "bare", spread{500, 250, 1000}, 1, "time"},
		{"append", "ours", spread{250, 250, 250}, 2, "time"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d results, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("result %d is %+v, want %+v", i, got[i], want[i])
		}
	}

	var table strings.Builder
	if err := writeTable(&table, []group{faster, slower}, got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"more is better", "less is better", "0.50  ours", "2.00  ours"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in the table:\n%s", want, table.String())
		}
	}
}

func TestRatioToNothing(t *testing.T) {
	t.Parallel()
	for _, g := range []group{{}, {byTime: true}} {
		if got := g.ratio(0, 0); got != 0 {
			t.Errorf("ratio of nothing to nothing is %v", got)
		}
	}
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{999: "999", 1000: "1k", 1001: "1001", 100_000: "100k", 10_000_000: "10M", 1_500_000: "1500k"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
