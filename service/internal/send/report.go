package send

import (
	"encoding/json"
	"errors"
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
	// Events is how many were tried to the end, Accepted how many of them got a 2xx.
	Events   int
	Accepted int
	// NotSent is how many were never tried, or not to a final answer, because the
	// gateway did not answer or the context ended.
	NotSent int
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
	gateway  string

	start     time.Time
	drawn     time.Time
	summary   Summary
	latencies []time.Duration
	first     *result // the first that was refused
	spent     *result // the first that used up its attempts
	answered  int
}

func newReport(cfg Config, gateway string) *report {
	return &report{
		out: cfg.Out, json: cfg.JSON, total: cfg.Count, gateway: gateway,
		bar:   cfg.Progress && !cfg.JSON && cfg.Count > few,
		start: time.Now(), summary: Summary{Statuses: map[int]int{}},
	}
}

func (r *report) add(res result) {
	r.summary.Retries += res.attempts - 1
	if res.cut {
		return
	}
	r.summary.Events++
	r.summary.Statuses[res.status]++
	r.latencies = append(r.latencies, res.latency)
	if !res.spent {
		r.answered++
	}
	switch {
	case res.accepted():
		r.summary.Accepted++
	case res.spent && r.spent == nil:
		r.spent = &res
	case !res.spent && r.first == nil:
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
// accepted; stopped is the context's, if it has ended.
func (r *report) finish(stopped error) (Summary, error) {
	s := &r.summary
	s.NotSent = r.total - r.answered
	s.Elapsed = time.Since(r.start)
	slices.Sort(r.latencies)
	s.P50, s.P99 = percentile(r.latencies, 50), percentile(r.latencies, 99)
	if r.json {
		r.encode(map[string]any{"summary": map[string]any{
			"events": s.Events, "accepted": s.Accepted, "notSent": s.NotSent, "statuses": s.Statuses, "retries": s.Retries,
			"elapsedMs": milliseconds(s.Elapsed), "p50Ms": milliseconds(s.P50), "p99Ms": milliseconds(s.P99),
		}})
	} else {
		r.clear()
		r.printf("%s\n", s)
	}
	return *s, r.failure(stopped)
}

func (r *report) failure(stopped error) error {
	s := &r.summary
	var errs []error
	switch {
	case stopped != nil && s.NotSent > 0:
		errs = append(errs, &interrupted{sent: r.answered, notSent: s.NotSent, cause: stopped})
	case r.spent != nil:
		errs = append(errs, fmt.Errorf("send: %s after %d attempts; %d of %d events were not sent. "+
			"See that the gateway runs and that this is its address, then send again: what it has is not doubled",
			r.spent.trouble(r.gateway), r.spent.attempts, s.NotSent, r.total))
	}
	if r.first != nil {
		errs = append(errs, fmt.Errorf("send: %d of %d events were not accepted; the first, %s (%s): %d %s",
			r.answered-s.Accepted, r.answered, printable(r.first.id), printable(r.first.where), r.first.status, printable(r.first.problem)))
	}
	if len(errs) == 0 && r.writeErr != nil {
		errs = append(errs, fmt.Errorf("send: the events were sent, but the report could not be written: %w", r.writeErr))
	}
	return errors.Join(errs...)
}

// interrupted says how far the sending came before its context ended.
type interrupted struct {
	sent, notSent int
	cause         error
}

func (e *interrupted) Error() string {
	return fmt.Sprintf("interrupted: %d sent, %d not sent; send again to go on: what the gateway has is not doubled", e.sent, e.notSent)
}

func (e *interrupted) Unwrap() error { return e.cause }

// String is the summary in a line.
func (s Summary) String() string {
	var b strings.Builder
	events := "events"
	if s.Events == 1 {
		events = "event"
	}
	fmt.Fprintf(&b, "%d %s in %s (%.0f/s): %d accepted", s.Events, events, s.Elapsed.Round(time.Millisecond),
		float64(s.Events)/max(s.Elapsed.Seconds(), 0.001), s.Accepted)
	for _, status := range slices.Sorted(maps.Keys(s.Statuses)) {
		switch {
		case status == 0:
			fmt.Fprintf(&b, ", %d without an answer", s.Statuses[status])
		case status/100 != 2:
			fmt.Fprintf(&b, ", %d × %d %s", s.Statuses[status], status, http.StatusText(status))
		}
	}
	if s.NotSent > 0 {
		fmt.Fprintf(&b, "; %d not sent", s.NotSent)
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
