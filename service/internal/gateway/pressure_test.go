package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/backend"
)

// The intake closes at a limit, and opens once a fifth less waits; or when it cannot be known.
func TestPressure(t *testing.T) {
	t.Parallel()
	var n int64
	var oldest time.Time
	var failure error
	bound := func(n int64) int64 { return 2 * n } // as if every other had been sent
	p := newPressure(Config{BackpressureMaxPending: 100, BackpressureMaxLag: time.Minute, Logger: slog.New(slog.DiscardHandler)}, &backend.Backend{})
	now := time.Now()
	p.now = func() time.Time { return now }
	p.atMost = func(context.Context) (int64, error) { return bound(n), failure }
	p.pending = func(_ context.Context, limit int64) (int64, error) { return min(n, limit), failure }
	p.oldest = func(context.Context) (time.Time, error) { return oldest, failure }
	for i, step := range []struct {
		pending int64
		lag     time.Duration
		failure error
		closed  string
	}{
		{pending: 100},
		{pending: 101, closed: "more than 100"},
		{pending: 81, closed: "more than 100"},
		{pending: 80},
		{pending: 100},
		{lag: time.Minute},
		{lag: time.Minute + 1, closed: "more than 1m0s"},
		{lag: 49 * time.Second, closed: "more than 1m0s"},
		{lag: 48 * time.Second},
		{pending: 5000, closed: "more than 100"},
		{pending: 5000, failure: errors.New("the database is away")},
		{pending: 5000, closed: "more than 100"},
		{},
	} {
		n, oldest, failure = step.pending, time.Time{}, step.failure
		if step.lag > 0 {
			oldest = now.Add(-step.lag)
		}
		p.measure(t.Context())
		retryAfter, reason, closed := p.Overloaded()
		if closed != (step.closed != "") || !strings.Contains(reason, step.closed) || closed && retryAfter <= 0 {
			t.Errorf("step %d: %v %q, want %q", i, closed, reason, step.closed)
		}
	}
	// A count that took long is not done again soon; what a bound says counts at once.
	p.nextCount = now.Add(time.Minute)
	n, oldest = 5000, time.Time{}
	if p.measure(t.Context()); p.reason.Load() != nil {
		t.Error("it counted too early")
	}
	p.nextCount = now
	if p.measure(t.Context()); p.reason.Load() == nil {
		t.Error("it did not count")
	}
	p.nextCount = now.Add(time.Minute)
	n = 41
	if p.measure(t.Context()); p.reason.Load() == nil {
		t.Error("opened without knowing")
	}
	n = 40
	if p.measure(t.Context()); p.reason.Load() != nil {
		t.Error("did not open by the bound")
	}
	if none := newPressure(Config{}, &backend.Backend{}); none.limits() {
		t.Error("there are limits without settings")
	}
	if none := newPressure(Config{BackpressureMaxPending: 1, BackpressureMaxLag: 1, Intake: IntakeDirect}, &backend.Backend{}); none.limits() {
		t.Error("there are limits of an outbox in which nothing waits")
	}
}

// While nobody dispatches, the intake takes in what the limit says and no more; once somebody does, it goes on.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "waybill.db") },
		"postgres": func(t *testing.T) string { return testserver.PostgresURL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(address(t), "a secret")
			cfg.Parts, cfg.BackpressureMaxPending = API, 5
			url := serve(t, cfg)
			s := newSender(url, "a secret", 1)
			defer s.close()
			var i int64
			post := func(number int64) (int, error) {
				body, _ := event(number, 1, time.Unix(1772107200, 0))
				a, err := s.post(t.Context(), body)
				if err == nil && a.status == http.StatusServiceUnavailable && !strings.Contains(a.body, "urn:waybill:problem:overloaded") {
					err = errors.New(a.body)
				}
				return a.status, err
			}
			until := func(want int) {
				t.Helper()
				testkit.Eventually(t, soon, func() error {
					i++
					status, err := post(i)
					if err == nil && status != want {
						err = fmt.Errorf("the answer is %d", status)
					}
					return err
				})
			}
			until(http.StatusServiceUnavailable)
			if i <= 5 {
				t.Errorf("refused the event number %d", i)
			}
			if status, err := post(1); err != nil || status != http.StatusServiceUnavailable {
				t.Errorf("a repeat: %d, %v", status, err)
			}
			ready, err := http.Get(url + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			_ = ready.Body.Close()
			if ready.StatusCode != http.StatusOK {
				t.Errorf("/readyz: %s", ready.Status)
			}
			text, err := scrape(t, url)
			if err != nil {
				t.Fatal(err)
			}
			for _, series := range []string{"\ngateway_intake_overloaded 1", "\ngateway_intake_refused_total 2", "\ngateway_outbox_pending_events "} {
				if !strings.Contains(text, series) {
					t.Errorf("the metrics have no %q:\n%s", series, text)
				}
			}

			other := testConfig(cfg.StoreURL, "a secret")
			serve(t, other)
			until(http.StatusAccepted)
		})
	}
}
