package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
	"github.com/waybill-go/waybill/router"
)

// documented returns the table of docs/metrics.md, but for those of the gateway alone: name → type and labels.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	ours, _, _ := strings.Cut(string(text), "### The gateway's own")
	names := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| ([^|]*)\\|").FindAllStringSubmatch(ours, -1) {
		labels := strings.FieldsFunc(row[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		slices.Sort(labels)
		names[row[1]] = row[2] + " " + strings.Join(labels, ",")
	}
	return names
}

// series are the values of a registry: name and labels → value, of a histogram the count.
func series(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			values[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value(m)
		}
	}
	return values
}

func value(m *dto.Metric) float64 {
	if h := m.GetHistogram(); h != nil {
		return float64(h.GetSampleCount())
	}
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

// shape is what docs/metrics.md says of a family.
func shape(f *dto.MetricFamily) string {
	var labels []string
	for _, l := range f.GetMetric()[0].GetLabel() {
		labels = append(labels, l.GetName())
	}
	return strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",")
}

// brittle is a store that can be cut off from who looks at it.
type brittle struct {
	*memstore.Store

	cut atomic.Bool
}

func (b *brittle) Backlog(ctx context.Context, now time.Time) (eventing.Backlog, error) {
	if b.cut.Load() {
		return eventing.Backlog{}, errors.New("the database is out of reach")
	}
	return b.Store.Backlog(ctx, now)
}

// measured is a dispatcher and a router with a broker between them, and their metrics.
type measured struct {
	t        *testing.T
	store    *brittle
	registry *prometheus.Registry
	outbox   *eventing.Outbox[*memstore.Tx]
	seen     map[string]bool // metrics that have moved
	run      func()
	stop     func()
}

var errSick = errors.New("sick")

// endOf is how the handler of these tests ends, by the beginning of the event's ID.
func endOf(e eventing.Event[note]) error {
	switch {
	case strings.HasPrefix(e.ID, "dies"):
		return eventing.Permanent(errSick)
	case strings.HasPrefix(e.ID, "snoozes") && time.Since(e.OccurredAt) < time.Minute:
		return eventing.RetryAfter(time.Hour, errSick)
	case strings.HasPrefix(e.ID, "fails") && time.Since(e.OccurredAt) < 2*time.Minute:
		return errSick
	}
	return nil
}

type note struct{ Text string }

func (note) EventType() string { return "order.noted" }

func newMeasured(t *testing.T) *measured {
	t.Helper()
	m := &measured{t: t, store: &brittle{Store: memstore.New()}, registry: prometheus.NewPedanticRegistry(), seen: map[string]bool{}}
	m.outbox = eventing.NewOutbox(m.store.Store, eventing.OutboxConfig{})
	logger, broker := slog.New(slog.DiscardHandler), inproc.New(inproc.Config{})
	metrics, err := middleware.NewMetrics(m.registry, middleware.MetricsConfig{})
	if err != nil {
		t.Fatal(err)
	}
	collector, err := middleware.NewStoreCollector(m.store, middleware.StoreCollectorConfig{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	m.registry.MustRegister(collector)
	r, err := router.New(router.Config{
		Store: m.store.Store, Subscriber: broker, Observer: metrics.Observer(), Logger: logger, Random: func() float64 { return 0 }, Holder: "here",
	})
	if err != nil {
		t.Fatal(err)
	}
	slow := eventing.RetryPolicy{MaxAttempts: 3, Base: 10 * time.Minute}
	for name, p := range map[string]eventing.Policy{
		"billing": {Retry: slow, OnExhausted: []string{eventing.ActionDeadLetter, eventing.ActionAlert}},
		"ledger":  {Retry: slow, Ordered: true},
		"fragile": {Retry: slow, Breaker: eventing.BreakerPolicy{Failures: 1, OpenFor: time.Minute}},
	} {
		if err := errors.Join(r.AddConsumer(router.Consumer{Name: name, Policy: p}), router.Handle(r, name,
			func(_ context.Context, e eventing.Event[note]) error {
				if e.AggregateType != name {
					return nil
				}
				return endOf(e)
			})); err != nil {
			t.Fatal(err)
		}
	}
	d, err := eventing.NewDispatcher(m.store.Store, broker, r, eventing.DispatcherConfig{Logger: logger, Observer: metrics.Observer(), Holder: "here"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	m.run = func() {
		running.Go(func() { _ = d.Run(ctx) }) // logs its errors
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	m.stop = func() {
		cancel()
		running.Wait()
		_ = broker.Close() // always nil
	}
	return m
}

func (m *measured) append(aggregate, key string, ids ...string) {
	m.t.Helper()
	ctx := context.Background()
	if err := m.outbox.InTx(ctx, func(tx *memstore.Tx) error {
		for _, id := range ids {
			e := eventing.New(aggregate, key, note{"hello"})
			e.ID = id
			if err := m.outbox.Append(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
}

// moves checks that a cause gives these series these values, or with -1 any above 0.
func (m *measured) moves(cause string, want map[string]float64, do func()) {
	m.t.Helper()
	before := series(m.t, m.registry)
	do()
	<-time.After(30 * time.Second) // of the bubble: longer than what the store said is kept
	synctest.Wait()
	after := series(m.t, m.registry)
	for s, v := range want {
		if got := after[s]; got != v && (v != -1 || got <= 0) || got == before[s] {
			m.t.Errorf("%s: %s is %v, was %v, want %v (-1: any)", cause, s, got, before[s], v)
		}
		name, _, _ := strings.Cut(s, "{")
		m.seen[name] = true
	}
	families, err := m.registry.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	table := documented(m.t)
	for _, f := range families {
		if got := shape(f); got != table[f.GetName()] {
			m.t.Errorf("%s is %q, documented as %q", f.GetName(), got, table[f.GetName()])
		}
	}
}

// Each metric of docs/metrics.md moves when its cause happens, and there is none beside.
func TestMetricsMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMeasured(t)
		defer m.stop()
		ctx, letters := context.Background(), eventing.NewDeadLetters(m.store.Store)
		m.moves("nobody dispatches", map[string]float64{
			"waybill_outbox_due_events{}": 1, "waybill_outbox_lag_seconds{}": 30, "waybill_outbox_oldest_pending_age_seconds{}": 30,
		}, func() { m.append("billing", "a", "e1") })
		m.moves("a process starts", map[string]float64{
			"events_published_total{event_type=order.noted}":                                     1,
			"events_processed_total{event_type=order.noted,status=processed,subscriber=billing}": 1,
			"event_processing_duration_ms{event_type=order.noted,subscriber=billing}":            1,
			"waybill_lease_changes_total{change=won,scope=dispatch}":                             eventing.Partitions,
			"waybill_leases_held{scope=dispatch}":                                                eventing.Partitions,
			"waybill_outbox_oldest_sent_age_seconds{}":                                           -1,
			"waybill_outbox_due_events{}":                                                        0,
			"waybill_outbox_lag_seconds{}":                                                       0,
		}, m.run)
		m.moves("an event comes twice", map[string]float64{"waybill_duplicates_total{subscriber=billing}": 1}, func() {
			if _, err := eventing.Requeue(ctx, m.store.Store, eventing.RequeueFilter{EventIDs: []string{"e1"}}, false); err != nil {
				t.Error(err)
			}
		})
		m.moves("an event fails, others follow it", map[string]float64{
			"events_processed_total{event_type=order.noted,status=retrying,subscriber=ledger}": 1,
			"waybill_retrying_deliveries{subscriber=ledger}":                                   1,
			"waybill_parked_total{subscriber=ledger}":                                          2,
			"waybill_parked_deliveries{subscriber=ledger}":                                     2,
			"waybill_parked_keys{subscriber=ledger}":                                           1,
		}, func() { m.append("ledger", "k", "fails-1", "e2", "e3") })
		m.moves("it is tried again", map[string]float64{
			"event_retry_count{event_type=order.noted,subscriber=ledger}": 1,
			"waybill_retrying_deliveries{subscriber=ledger}":              0,
			"waybill_parked_deliveries{subscriber=ledger}":                0,
			"waybill_parked_keys{subscriber=ledger}":                      0,
		}, func() { <-time.After(11 * time.Minute) })
		m.moves("events die", map[string]float64{
			"events_processed_total{event_type=order.noted,status=dead,subscriber=billing}": 2,
			"dlq_size{subscriber=billing}":                       2,
			"waybill_exhausted_alerts_total{subscriber=billing}": 2,
		}, func() { m.append("billing", "a", "dies-1", "dies-2") })
		m.moves("they are discarded", map[string]float64{"dlq_size{subscriber=billing}": 0}, func() {
			for _, id := range []string{"dies-1", "dies-2"} {
				if err := letters.Discard(ctx, eventing.Target{EventID: id, Consumer: "billing"}, "ann", "obsolete"); err != nil {
					t.Error(err)
				}
			}
		})
		m.moves("an event is put off", map[string]float64{
			"events_processed_total{event_type=order.noted,status=snoozed,subscriber=billing}": 1,
		}, func() { m.append("billing", "a", "snoozes-1") })
		m.moves("nothing succeeds any more", map[string]float64{"waybill_breaker_state{state=open,subscriber=fragile}": 1},
			func() { m.append("fragile", "a", "fails-2") })
		m.moves("until something does", map[string]float64{
			"waybill_breaker_state{state=open,subscriber=fragile}":   0,
			"waybill_breaker_state{state=closed,subscriber=fragile}": 1,
		}, func() { <-time.After(11 * time.Minute) })
		m.moves("the process stops", map[string]float64{
			"waybill_lease_changes_total{change=lost,scope=dispatch}": eventing.Partitions,
			"waybill_leases_held{scope=dispatch}":                     0,
		}, m.stop)
		m.moves("the database is away", map[string]float64{"waybill_store_scrape_errors_total{}": 1}, func() { m.store.cut.Store(true) })
		if got, want := slices.Sorted(maps.Keys(m.seen)), slices.Sorted(maps.Keys(documented(t))); !slices.Equal(got, want) {
			t.Errorf("metrics that moved: %q\ndocumented: %q", got, want)
		}
	})
}

// The statuses that the engine of the test above does not come to.
func TestMetricsStatuses(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m, err := middleware.NewMetrics(r, middleware.MetricsConfig{})
	if err != nil {
		t.Fatal(err)
	}
	m.Observer().Concluded(eventing.Conclusion{Consumer: "c", Envelope: eventing.Envelope{Header: eventing.Header{Type: "T"}}, Attempts: 1, Err: errSick}, time.Second)
	if got := series(t, r)["events_processed_total{event_type=T,status=exhausted,subscriber=c}"]; got != 1 {
		t.Errorf("an event that is processed although its handler failed is exhausted: %v", series(t, r))
	}
	if _, err := middleware.NewMetrics(r, middleware.MetricsConfig{}); !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("a registry takes the metrics once: %v", err)
	}
	if _, err := middleware.NewMetrics(prometheus.NewRegistry(), middleware.MetricsConfig{MaxPairs: -1}); err == nil || !strings.Contains(err.Error(), "MaxPairs") {
		t.Errorf("a negative bound is refused by name: %v", err)
	}
}

func TestMetricsMiddleware(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m, err := middleware.NewMetrics(r, middleware.MetricsConfig{})
	if err != nil {
		t.Fatal(err)
	}
	typed := message.Metadata{"event_type": "T"}
	if produced, err := call(m.Middleware, typed, produce("m2")); err != nil || len(produced) != 1 {
		t.Errorf("what the handler produces goes on: %v, %v", produced, err)
	}
	if _, err := call(m.Middleware, typed, func(*message.Message) ([]*message.Message, error) { return nil, errBusy }); !errors.Is(err, errBusy) {
		t.Errorf("the error goes on: %v", err)
	}
	func() {
		defer func() {
			if recover() != "ouch" {
				t.Error("a panic goes on")
			}
		}()
		_, _ = call(m.Middleware, typed, func(*message.Message) ([]*message.Message, error) { panic("ouch") })
	}()
	got := series(t, r)
	for s, want := range map[string]float64{
		"events_processed_total{event_type=T,status=processed,subscriber=}": 1, "events_processed_total{event_type=T,status=failed,subscriber=}": 2,
		"event_processing_duration_ms{event_type=T,subscriber=}": 3,
	} {
		if got[s] != want {
			t.Errorf("%s is %v, want %v: %v", s, got[s], want, got)
		}
	}
}
