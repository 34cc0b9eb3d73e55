package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// serve runs a gateway in this process until the test ends, and returns its URL.
func serve(t testing.TB, cfg Config) (url string) {
	t.Helper()
	url, _ = serveUntil(t, cfg)
	return url
}

const (
	repeats = 100
	soon    = 20 * time.Second
)

// An event that arrives 100 times at once, and 100 times more when it has been
// processed, is accepted each time with one trace id, and applied once. Its key
// with another body is a conflict, and changes nothing.
func TestRepeats(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, storeURL string) {
		s := newSender(serve(t, testConfig(storeURL, "secret")), "secret", repeats)
		defer s.close()
		db := storetest.Open(t, storeURL).Read
		body, key := event(1, 1, time.Now())

		traces := atOnce(t, s, body)
		appliedOnce := func() error {
			f, err := audit(t.Context(), db, []string{key})
			if err != nil {
				t.Fatal(err)
			}
			return f.err()
		}
		testkit.Eventually(t, soon, appliedOnce)

		traces = append(traces, atOnce(t, s, body)...)
		spaced := strings.ReplaceAll(string(body), ",", " ,\n") // the same JSON value
		a, err := s.post(t.Context(), []byte(spaced))
		if err != nil || a.status != http.StatusAccepted {
			t.Errorf("the same event in another layout: %+v, %v, want 202", a, err)
		}
		traces = append(traces, a.traceID)
		slices.Sort(traces)
		if distinct := slices.Compact(traces); len(distinct) != 1 {
			t.Errorf("%d trace ids, want one: %q", len(distinct), distinct)
		}

		a, err = s.post(t.Context(), []byte(strings.ReplaceAll(string(body), "out_for_delivery", "delivered")))
		if err != nil || a.status != http.StatusConflict || !strings.Contains(a.body, "idempotency key") {
			t.Errorf("its key with another body: %+v, %v, want 409", a, err)
		}
		// What came last is through: another event that is processed after it shows
		// that nothing of it was waiting.
		other, otherKey := event(2, 1, time.Now())
		if a, err := s.post(t.Context(), other); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v, want 202", a, err)
		}
		testkit.Eventually(t, soon, func() error {
			f, err := audit(t.Context(), db, []string{key, otherKey})
			if err != nil {
				t.Fatal(err)
			}
			return f.err()
		})
	})
}

// Different bodies that race for one key: one of them is accepted, all others are
// conflicts.
func TestRacingBodies(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, storeURL string) {
		s := newSender(serve(t, testConfig(storeURL, "secret")), "secret", repeats)
		defer s.close()
		body, key := event(1, 1, time.Now())
		answers := make([]answer, repeats)
		together(func(i int) (err error) {
			answers[i], err = s.post(t.Context(), []byte(strings.Replace(string(body), "ord_789", fmt.Sprint("ord_", i), 1)))
			return err
		}, t)
		count := map[int]int{}
		for _, a := range answers {
			count[a.status]++
		}
		if count[http.StatusAccepted] != 1 || count[http.StatusConflict] != repeats-1 {
			t.Errorf("answers by status: %v, want one 202 and %d 409s", count, repeats-1)
		}
		if f := auditEventually(t, storetest.Open(t, storeURL).Read, []string{key}, soon); f.err() != nil {
			t.Error(f.err())
		}
	})
}

// atOnce posts a body many times at once and returns the trace ids.
func atOnce(t *testing.T, s *sender, body []byte) []string {
	t.Helper()
	traces := make([]string, repeats)
	together(func(i int) error {
		a, err := s.post(t.Context(), body)
		if err == nil && a.status != http.StatusAccepted {
			err = fmt.Errorf("answered %d: %s", a.status, a.body)
		}
		traces[i] = a.traceID
		return err
	}, t)
	return traces
}

// together calls f for each of the repeats at the same time.
func together(f func(i int) error, t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range repeats {
		all.Go(func() {
			<-begin
			if err := f(i); err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	all.Wait()
}
