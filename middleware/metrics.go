package middleware

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-go/waybill/eventing"
)

// MetricsConfig bounds the metrics of a process. Event types come from outside: what is beyond
// a bound counts as "other", and what is known stays known until the process ends.
type MetricsConfig struct {
	// MaxEventTypes is how many event types have series of their own. Default: 100.
	MaxEventTypes int
	// MaxConsumers is how many consumers have. Default: 50.
	MaxConsumers int
	// MaxPairs is how many event types at consumers have; each is some 16 series. Default: 350,
	// with which a scrape of names of usual length stays under 1 MB.
	MaxPairs int
}

func (c MetricsConfig) withDefaults() (MetricsConfig, error) {
	for _, bound := range []struct {
		name  string
		value *int
		usual int
	}{{"MaxEventTypes", &c.MaxEventTypes, 100}, {"MaxConsumers", &c.MaxConsumers, 50}, {"MaxPairs", &c.MaxPairs, 350}} {
		if *bound.value < 0 {
			return c, fmt.Errorf("metrics: %s is %d; it must be positive, or 0 for the default", bound.name, *bound.value)
		}
		if *bound.value == 0 {
			*bound.value = bound.usual
		}
	}
	return c, nil
}

// The statuses of events_processed_total.
const (
	statusProcessed = "processed"
	statusRetrying  = "retrying" // failed, will be tried again
	statusSnoozed   = "snoozed"  // put off by the handler, which is no failure
	statusDead      = "dead"     // failed for good: a dead letter
	statusExhausted = "exhausted"
	statusFailed    = "failed" // without [Consume], nothing more is known
)

// durationBuckets are milliseconds.
var durationBuckets = []float64{1, 5, 10, 25, 50, 100, 250, 1000, 5000, 30_000}

// Metrics counts what dispatchers and consumers do, for Prometheus. It is safe for concurrent use.
type Metrics struct {
	labels    *labels
	published *prometheus.CounterVec
	processed *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	retries   *prometheus.CounterVec

	duplicates *prometheus.CounterVec
	parked     *prometheus.CounterVec
	alerts     *prometheus.CounterVec
	breaker    *prometheus.GaugeVec
	changes    *prometheus.CounterVec
	held       *prometheus.GaugeVec

	mu     sync.Mutex
	leases map[heldLease]struct{}
}

type heldLease struct {
	scope     string
	partition int
}

// NewMetrics registers the metrics. Its errors are those of the registerer, such as for a second
// one in the same registry, and of bounds that are negative.
func NewMetrics(r prometheus.Registerer, cfg MetricsConfig) (*Metrics, error) {
	if r == nil {
		return nil, errors.New("metrics: a registerer is needed")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		labels: &labels{
			types: newBoundedSet[string](cfg.MaxEventTypes), consumers: newBoundedSet[string](cfg.MaxConsumers),
			scopes: newBoundedSet[string](cfg.MaxConsumers + 1), // one of the dispatchers
			pairs:  newBoundedSet[pair](cfg.MaxPairs),
		},
		published: counter("events_published_total", "Events that were handed to the broker and settled.", "event_type"),
		processed: counter("events_processed_total", "Attempts of handlers, by how they ended.", "event_type", "subscriber", "status"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "event_processing_duration_ms", Help: "Milliseconds of an attempt of a handler, its commit included.", Buckets: durationBuckets,
		}, []string{"event_type", "subscriber"}),
		retries:    counter("event_retry_count", "Attempts that were not an event's first.", "event_type", "subscriber"),
		duplicates: counter("waybill_duplicates_total", "Events that arrived although their consumer has them already.", "subscriber"),
		parked:     counter("waybill_parked_total", "Events that arrived behind an earlier one of their ordering key that is in trouble.", "subscriber"),
		alerts:     counter("waybill_exhausted_alerts_total", "Exhausted events whose policy names the action alert.", "subscriber"),
		breaker:    gauge("waybill_breaker_state", "1 for the state that a consumer's circuit breaker is in, else 0.", "subscriber", "state"),
		changes:    counter("waybill_lease_changes_total", "Partitions won and lost.", "scope", "change"),
		held:       gauge("waybill_leases_held", "Partitions that this process holds.", "scope"),
		leases:     map[heldLease]struct{}{},
	}
	for _, c := range []prometheus.Collector{
		m.published, m.processed, m.duration, m.retries, m.duplicates, m.parked, m.alerts, m.breaker, m.changes, m.held,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

// Observer returns what feeds the metrics: for [eventing.DispatcherConfig],
// [eventing.ConsumerConfig] and the router's Config. One is enough for all of a process.
func (m *Metrics) Observer() *eventing.Observer {
	return &eventing.Observer{
		Published: func(eventType string, events int) {
			m.published.WithLabelValues(m.labels.eventType(eventType)).Add(float64(events))
		},
		Concluded: m.concluded,
		Duplicate: func(consumer, _ string) { m.duplicates.WithLabelValues(m.labels.consumer(consumer)).Inc() },
		Parked:    func(consumer, _ string) { m.parked.WithLabelValues(m.labels.consumer(consumer)).Inc() },
		Alert:     func(c eventing.Conclusion) { m.alerts.WithLabelValues(m.labels.consumer(c.Consumer)).Inc() },
		Breaker:   m.breakerChanged,
		Lease:     m.leaseChanged,
	}
}

// Middleware counts runs of what is inside of it that end as processed or failed; a panic has failed,
// and goes on. Directly inside [Retry] these are attempts; outside of it messages, with the waits; outside of
// [DeadLetter] none fails for an event that has died. It is for handlers without [Consume] and [ConsumeStoreless], of which the
// [Metrics.Observer] knows more: with both, each attempt would be counted twice. The subscriber is the
// name of the handler in its router, the event type that of the message's metadata.
func (m *Metrics) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		eventType, consumer := msg.Metadata.Get("event_type"), message.HandlerNameFromCtx(msg.Context())
		began, status := time.Now(), statusFailed
		defer func() { m.count(eventType, consumer, status, time.Since(began)) }()
		if produced, err = h(msg); err == nil {
			status = statusProcessed
		}
		return produced, err
	}
}

func (m *Metrics) concluded(c eventing.Conclusion, took time.Duration) {
	m.count(c.Envelope.Type, c.Consumer, statusOf(c), took)
	if c.Attempts > 1 && !c.Snoozed {
		m.retries.WithLabelValues(m.labels.of(c.Envelope.Type, c.Consumer)).Inc()
	}
}

func (m *Metrics) count(eventType, consumer, status string, took time.Duration) {
	eventType, consumer = m.labels.of(eventType, consumer)
	m.processed.WithLabelValues(eventType, consumer, status).Inc()
	m.duration.WithLabelValues(eventType, consumer).Observe(float64(took) / float64(time.Millisecond))
}

func statusOf(c eventing.Conclusion) string {
	switch {
	case c.Snoozed:
		return statusSnoozed
	case c.State == eventing.StateRetrying:
		return statusRetrying
	case c.State == eventing.StateDead:
		return statusDead
	case c.Err != nil:
		return statusExhausted
	}
	return statusProcessed
}

func (m *Metrics) breakerChanged(consumer string, state eventing.BreakerState) {
	consumer = m.labels.consumer(consumer)
	for _, s := range []eventing.BreakerState{eventing.BreakerClosed, eventing.BreakerOpen, eventing.BreakerHalfOpen} {
		value := 0.0
		if s == state {
			value = 1
		}
		m.breaker.WithLabelValues(consumer, string(s)).Set(value)
	}
}

// leaseChanged is told of a partition also when it was won anew without having been lost in between.
func (m *Metrics) leaseChanged(scope string, partition int, won bool) {
	label, change := m.labels.scope(scope), "lost"
	if won {
		change = "won"
	}
	m.changes.WithLabelValues(label, change).Inc()
	l := heldLease{scope, partition}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := m.leases[l]
	switch gauge := m.held.WithLabelValues(label); {
	case won && !held:
		m.leases[l] = struct{}{}
		gauge.Inc()
	case held && !won:
		delete(m.leases, l)
		gauge.Dec()
	}
}
