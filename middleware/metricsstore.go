package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-go/waybill/eventing"
)

// dispatchSubscriber labels dead letters that no consumer has had. No consumer is likely to have this name.
const dispatchSubscriber = "(dispatch)"

// StoreCollectorConfig configures a [StoreCollector]. The zero value is good.
type StoreCollectorConfig struct {
	// CacheFor is how long an answer of the store, or that there was none, serves all scrapes.
	// Default: 15 s.
	CacheFor time.Duration
	// Timeout is how long a scrape waits for the store. Default: 5 s.
	Timeout time.Duration
	// MaxConsumers is how many consumers have series of their own; the others add up as "other".
	// Default: 50.
	MaxConsumers int
	// Logger gets what goes wrong. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

func (c StoreCollectorConfig) withDefaults() (StoreCollectorConfig, error) {
	if c.CacheFor == 0 {
		c.CacheFor = 15 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.MaxConsumers == 0 {
		c.MaxConsumers = 50
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.CacheFor < 0 || c.Timeout < 0 || c.MaxConsumers < 0 {
		return c, errors.New("store collector: CacheFor, Timeout and MaxConsumers must be positive, or 0 for the default")
	}
	return c, nil
}

// StoreCollector is a [prometheus.Collector] of what waits in a store. It asks when it is
// scraped, not in between. While the store does not answer, its metrics
// are missing rather than old, and waybill_store_scrape_errors_total grows. Every process
// with the same store tells the same: take their maximum, not their sum.
type StoreCollector struct {
	store eventing.BacklogStore
	cfg   StoreCollectorConfig

	errors    prometheus.Counter
	consumers *boundedSet[string]

	mu    sync.Mutex
	last  reading
	asked chan struct{} // closed when the question under way is answered; nil if none is
	// zeros are consumers that were reported once: they go to 0, not away.
	zeros map[string]struct{}
}

// reading is an answer of the store; failed until there is a good one.
type reading struct {
	eventing.Backlog
	at time.Time
	ok bool
}

// NewStoreCollector returns a collector, which the caller registers: once for each registry
// and store.
func NewStoreCollector(store eventing.BacklogStore, cfg StoreCollectorConfig) (*StoreCollector, error) {
	if store == nil {
		return nil, errors.New("store collector: a store is needed")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &StoreCollector{
		store: store, cfg: cfg, consumers: newBoundedSet[string](cfg.MaxConsumers), zeros: map[string]struct{}{},
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waybill_store_scrape_errors_total", Help: "Times that the store did not say what waits in it.",
		}),
	}, nil
}

func storeDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descDLQ     = storeDesc("dlq_size", "Dead letters that are not closed.", "subscriber")
	descKeys    = storeDesc("waybill_parked_keys", "Ordering keys whose events wait for an earlier one.", "subscriber")
	descParked  = storeDesc("waybill_parked_deliveries", "Events that wait for an earlier one of their ordering key.", "subscriber")
	descRetry   = storeDesc("waybill_retrying_deliveries", "Events that will be tried again.", "subscriber")
	descDue     = storeDesc("waybill_outbox_due_events", "Outbox rows that are to be sent now, up to 500 of each partition.")
	descLag     = storeDesc("waybill_outbox_lag_seconds", "How long the oldest of them has been due.")
	descPending = storeDesc("waybill_outbox_oldest_pending_age_seconds", "Age of the oldest pending outbox row, delayed or not.")
	descSent    = storeDesc("waybill_outbox_oldest_sent_age_seconds", "How long ago the oldest sent outbox row that is kept was sent.")
)

// Describe implements [prometheus.Collector].
func (c *StoreCollector) Describe(ch chan<- *prometheus.Desc) {
	c.errors.Describe(ch)
	for _, d := range []*prometheus.Desc{descDLQ, descKeys, descParked, descRetry, descDue, descLag, descPending, descSent} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *StoreCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.reading()
	c.errors.Collect(ch)
	if !r.ok {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := c.cfg.Now()
	age := func(t time.Time) float64 {
		if t.IsZero() {
			return 0
		}
		return max(now.Sub(t), 0).Seconds()
	}
	gauge(descDue, float64(r.Due))
	gauge(descLag, age(r.OldestDue))
	gauge(descPending, age(r.OldestPending))
	gauge(descSent, age(r.OldestSent))
	for consumer, w := range c.bySubscriber(r) {
		gauge(descDLQ, float64(w.dead), consumer)
		gauge(descRetry, float64(w.Retrying), consumer)
		gauge(descParked, float64(w.Parked), consumer)
		gauge(descKeys, float64(w.ParkedKeys), consumer)
	}
}

type waiting struct {
	eventing.WaitingDeliveries
	dead int64
}

// bySubscriber adds up by label, with zeros for those that once had something.
func (c *StoreCollector) bySubscriber(r reading) map[string]waiting {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := make(map[string]waiting, len(c.zeros))
	for consumer := range c.zeros {
		sums[consumer] = waiting{}
	}
	add := func(consumer string, w waiting) {
		label := admitted(c.consumers, consumer)
		sum := sums[label]
		sum.Retrying += w.Retrying
		sum.Parked += w.Parked
		sum.ParkedKeys += w.ParkedKeys
		sum.dead += w.dead
		sums[label] = sum
		c.zeros[label] = struct{}{}
	}
	for consumer, w := range r.Deliveries {
		add(consumer, waiting{WaitingDeliveries: w})
	}
	for consumer, n := range r.DeadLetters {
		if consumer == "" {
			consumer = dispatchSubscriber
		}
		add(consumer, waiting{dead: n})
	}
	return sums
}

// reading returns what the store said last, or asks. It waits no longer than the timeout, whatever the
// store does, and does not ask again while a question is unanswered.
func (c *StoreCollector) reading() reading {
	c.mu.Lock()
	if !c.last.at.IsZero() && c.cfg.Now().Sub(c.last.at) < c.cfg.CacheFor {
		defer c.mu.Unlock()
		return c.last
	}
	answered := c.asked
	if answered == nil {
		answered = make(chan struct{})
		c.asked = answered
		go c.ask(answered)
	}
	c.mu.Unlock()

	late := time.NewTimer(c.cfg.Timeout)
	defer late.Stop()
	select {
	case <-answered:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.last
	case <-late.C:
		return reading{}
	}
}

func (c *StoreCollector) ask(answered chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	b, err := c.backlog(ctx)
	if err != nil {
		c.errors.Inc()
		c.cfg.Logger.Warn("metrics: the store did not say what waits in it", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.asked = reading{b, c.cfg.Now(), err == nil}, nil
	close(answered)
}

// backlog asks the store. A panic of its driver must not end a process because it was looked at.
func (c *StoreCollector) backlog(ctx context.Context) (b eventing.Backlog, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return c.store.Backlog(ctx, c.cfg.Now())
}
