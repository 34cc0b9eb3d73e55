package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

// metrics are those of one gateway, in a registry of its own.
type metrics struct {
	observer *eventing.Observer
	handler  http.Handler
	registry *prometheus.Registry
}

func (m *metrics) register(all ...prometheus.Collector) error {
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}

// maxScrapes bounds how many scrapes are answered at once: anybody may ask.
const maxScrapes = 3

func newMetrics(s eventing.BacklogStore, logger *slog.Logger) (*metrics, error) {
	r := prometheus.NewRegistry()
	m, err := middleware.NewMetrics(r, middleware.MetricsConfig{})
	if err != nil {
		return nil, err
	}
	backlog, err := middleware.NewStoreCollector(s, middleware.StoreCollectorConfig{Logger: logger})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.Register(backlog), r.Register(collectors.NewGoCollector()),
		r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return &metrics{
		observer: m.Observer(), registry: r,
		handler: promhttp.HandlerFor(r, promhttp.HandlerOpts{
			ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes,
		}),
	}, nil
}
