package send

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
)

const (
	// few events get a line each; of more, only those that are not accepted do,
	// up to maxFaults.
	few       = 100
	maxFaults = 20

	barWidth    = 30
	barInterval = 100 * time.Millisecond
)

// Summary counts what became of the events.
type Summary struct {
	// Events is how many were tried, Accepted how many of them got a 2xx.
	Events   int
	Accepted int
	// Statuses counts the final answers by HTTP status; 0 stands for none.
	Statuses map[int]int
	// Retries is how many requests were made beyond one per event.
	Retries int
	Elapsed time.Duration
	// P50 and P99 are percentiles of the time from an event's first try to its
	// last answer.
	P50, P99 time.Duration
}

// IsTerminal reports whether w is a terminal, where a progress bar makes sense.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// report tells about the results as they come in.
type report struct {
	out      io.Writer
	writeErr error
	json     bool
	bar      bool
	total    int

	start     time.Time
	drawn     time.Time
	summary   Summary
	latencies []time.Duration
	first     *result // the first that was not accepted
}

func newReport(cfg Config) *report {
	return &report{
		out: cfg.Out, json: cfg.JSON, total: cfg.Count,
		bar:   cfg.Progress && !cfg.JSON && cfg.Count > few,
		start: time.Now(), summary: Summary{Statuses: map[int]int{}},
	}
}

func (r *report) add(res result) {
	r.summary.Events++
	r.summary.Statuses[res.status]++
	r.summary.Retries += res.attempts - 1
	r.latencies = append(r.latencies, res.latency)
	if res.accepted() {
		r.summary.Accepted++
	} else if r.first == nil {
		r.first = &res
	}
	switch refused := r.summary.Events - r.summary.Accepted; {
	case r.json:
		r.object(res)
	case r.total <= few, !res.accepted() && refused <= maxFaults:
		r.line(res)
	}
	if r.bar && time.Since(r.drawn) >= barInterval {
		r.draw()
	}
}

// object is the line of an event in JSON.
func (r *report) object(res result) {
	r.encode(struct {
		Status    int     `json:"status"`
		TraceID   string  `json:"traceId,omitempty"`
		EventID   string  `json:"eventId"`
		Problem   string  `json:"problem,omitempty"`
		Where     string  `json:"where"`
		Attempts  int     `json:"attempts"`
		LatencyMS float64 `json:"latencyMs"`
	}{res.status, res.traceID, res.id, res.problem, res.where, res.attempts, milliseconds(res.latency)})
}

func (r *report) line(res result) {
	r.clear()
	status := "---"
	if res.status != 0 {
		status = strconv.Itoa(res.status)
	}
	fields := []string{status, fmt.Sprintf("%-32s", printable(res.traceID)), printable(res.id)}
	if res.problem != "" {
		fields = append(fields, printable(res.problem), "("+printable(res.where)+")")
	}
	r.printf("%s\n", strings.Join(fields, "  "))
}

func (r *report) draw() {
	r.drawn = time.Now()
	done := r.summary.Events
	filled := barWidth * done / r.total
	r.printf("\r[%s%s] %d/%d  %.0f/s  %d not accepted\x1b[K", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled),
		done, r.total, float64(done)/max(time.Since(r.start).Seconds(), 0.001), done-r.summary.Accepted)
}

func (r *report) clear() {
	if r.bar && !r.drawn.IsZero() {
		r.printf("\r\x1b[K")
	}
}

// finish tells the summary, and returns it with an error for what was not
// accepted.
func (r *report) finish() (Summary, error) {
	s := &r.summary
	s.Elapsed = time.Since(r.start)
	slices.Sort(r.latencies)
	s.P50, s.P99 = percentile(r.latencies, 50), percentile(r.latencies, 99)
	if r.json {
		r.encode(map[string]any{"summary": map[string]any{
			"events": s.Events, "accepted": s.Accepted, "statuses": s.Statuses, "retries": s.Retries,
			"elapsedMs": milliseconds(s.Elapsed), "p50Ms": milliseconds(s.P50), "p99Ms": milliseconds(s.P99),
		}})
	} else {
		r.clear()
		r.printf("%s\n", s)
	}
	if r.first != nil {
		return *s, fmt.Errorf("send: %d of %d events were not accepted; the first, %s (%s): %s",
			s.Events-s.Accepted, s.Events, printable(r.first.id), printable(r.first.where), r.first.reason())
	}
	if r.writeErr != nil {
		return *s, fmt.Errorf("send: the events were sent, but the report could not be written: %w", r.writeErr)
	}
	return *s, nil
}

func (r result) reason() string {
	if r.status == 0 {
		return fmt.Sprintf("no answer after %d attempts: %s", r.attempts, printable(r.problem))
	}
	return fmt.Sprintf("%d %s", r.status, printable(r.problem))
}

// String is the summary in a line.
func (s Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d events in %s (%.0f/s): %d accepted", s.Events, s.Elapsed.Round(time.Millisecond),
		float64(s.Events)/max(s.Elapsed.Seconds(), 0.001), s.Accepted)
	for _, status := range slices.Sorted(maps.Keys(s.Statuses)) {
		switch {
		case status == 0:
			fmt.Fprintf(&b, ", %d without an answer", s.Statuses[status])
		case status/100 != 2:
			fmt.Fprintf(&b, ", %d × %d %s", s.Statuses[status], status, http.StatusText(status))
		}
	}
	if s.Retries > 0 {
		fmt.Fprintf(&b, "; %d retries", s.Retries)
	}
	fmt.Fprintf(&b, "; p50 %s, p99 %s", s.P50.Round(time.Microsecond), s.P99.Round(time.Microsecond))
	return b.String()
}

func (r *report) encode(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		r.writeErr = err
		return
	}
	r.printf("%s\n", line)
}

// printf keeps the first error: a reader that is gone must not stop the sending.
func (r *report) printf(format string, args ...any) {
	if r.writeErr == nil {
		_, r.writeErr = fmt.Fprintf(r.out, format, args...)
	}
}

// percentile is by nearest rank; sorted may be empty.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}

// printable keeps control characters, of an input or of an answer, away from a
// terminal.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
