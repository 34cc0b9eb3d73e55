package middleware_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

func newMetrics(t *testing.T, cfg middleware.MetricsConfig) (*eventing.Observer, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	m, err := middleware.NewMetrics(r, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m.Observer(), r
}

func concluded(eventType, consumer string, state eventing.State, attempts int) eventing.Conclusion {
	return eventing.Conclusion{Consumer: consumer, Envelope: eventing.Envelope{Header: eventing.Header{Type: eventType}}, State: state, Attempts: attempts}
}

// Who sends 1,000 event types through 10 consumers fills no Prometheus: a scrape stays under
// 1 MB, and what has no series of its own is in "other".
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	const types, consumers = 1000, 10
	o, r := newMetrics(t, middleware.MetricsConfig{})
	var senders sync.WaitGroup
	for c := range consumers {
		consumer := fmt.Sprintf("notification-service-%02d", c)
		senders.Go(func() {
			for i := range types {
				eventType := fmt.Sprintf("shipment.status.updated.%04d", i)
				o.Published(eventType, 1)
				o.Concluded(concluded(eventType, consumer, eventing.StateRetrying, 1), 3*time.Millisecond)
				o.Concluded(concluded(eventType, consumer, eventing.StateRetrying, 2), 3*time.Millisecond)
				o.Concluded(concluded(eventType, consumer, eventing.StateDead, 3), 3*time.Millisecond)
				o.Concluded(concluded(eventType, consumer, eventing.StateNone, 4), 3*time.Millisecond)
			}
		})
	}
	senders.Wait()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if size := w.Body.Len(); w.Code != http.StatusOK || size >= 1_000_000 || size < 100_000 {
		t.Errorf("status %d, a scrape of %d bytes", w.Code, size)
	} else {
		t.Logf("a scrape of %d types at %d consumers: %d bytes, %d lines", types, consumers, size, bytes.Count(w.Body.Bytes(), []byte("\n")))
	}
	sums, others := map[string]float64{}, map[string]float64{}
	for s, v := range series(t, r) {
		name, labels, _ := strings.Cut(s, "{")
		sums[name] += v
		if strings.Contains(labels, "event_type=other") {
			others[name] += v
		}
	}
	for name, want := range map[string]float64{
		"events_published_total": types * consumers, "events_processed_total": 4 * types * consumers,
		"event_processing_duration_ms": 4 * types * consumers, "event_retry_count": 3 * types * consumers,
	} {
		if sums[name] != want {
			t.Errorf("%s counts %v, want all %v", name, sums[name], want)
		}
	}
	if want := float64(4 * (types*consumers - 350)); others["events_processed_total"] != want {
		t.Errorf("other has %v attempts, want those of all pairs but 350: %v", others["events_processed_total"], want)
	}
	if want := float64(consumers * (types - 100)); others["events_published_total"] != want {
		t.Errorf("other has %v events published, want those of all types but 100: %v", others["events_published_total"], want)
	}
}

func TestMetricsBoundConsumersAndScopes(t *testing.T) {
	t.Parallel()
	o, r := newMetrics(t, middleware.MetricsConfig{MaxConsumers: 2, MaxPairs: 3, MaxEventTypes: 2})
	for _, consumer := range []string{"a", "b", "c", "d"} {
		for _, eventType := range []string{"S", "T", "U"} {
			o.Concluded(concluded(eventType, consumer, eventing.StateNone, 1), time.Millisecond)
		}
		o.Duplicate(consumer, "S")
		for _, partition := range []int{0, 1, 0} { // 0 is won anew
			o.Lease("consumer/"+consumer, partition, true)
		}
		o.Lease("consumer/"+consumer, 1, false)
		o.Lease("consumer/"+consumer, 1, false)
	}
	got := series(t, r)
	for s, want := range map[string]float64{
		"events_processed_total{event_type=T,status=processed,subscriber=a}":         1,
		"events_processed_total{event_type=other,status=processed,subscriber=a}":     1,
		"events_processed_total{event_type=S,status=processed,subscriber=b}":         1,
		"events_processed_total{event_type=other,status=processed,subscriber=b}":     2,
		"events_processed_total{event_type=other,status=processed,subscriber=other}": 6,
		"waybill_duplicates_total{subscriber=other}":                                 2,
		"waybill_leases_held{scope=consumer/a}":                                      1,
		"waybill_leases_held{scope=consumer/c}":                                      1,
		"waybill_leases_held{scope=other}":                                           1,
		"waybill_lease_changes_total{change=won,scope=other}":                        3,
	} {
		if got[s] != want {
			t.Errorf("%s is %v, want %v", s, got[s], want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// Whatever bytes a type has, the scrape can be read.
func TestMetricsLabelsAreText(t *testing.T) {
	t.Parallel()
	o, r := newMetrics(t, middleware.MetricsConfig{})
	long := strings.Repeat("x", 99) + "é"
	for _, eventType := range []string{"\xff\xfe", "line\nbreak", `quo"te\`, "", long, long + "and more"} {
		o.Published(eventType, 1)
	}
	got := series(t, r)
	for _, want := range []string{"?", "line\nbreak", `quo"te\`, "", strings.Repeat("x", 99) + "?"} {
		if got["events_published_total{event_type="+want+"}"] == 0 {
			t.Errorf("there is no event type %q: %v", want, got)
		}
	}
	for s := range got {
		if label := strings.TrimSuffix(strings.TrimPrefix(s, "events_published_total{event_type="), "}"); len(label) > 100 || !utf8.ValidString(label) {
			t.Errorf("a label of %d bytes: %q", len(label), label)
		}
	}
}
