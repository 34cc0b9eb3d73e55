package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-go/waybill/service/internal/store"
)

const (
	// pressureEvery is how often it is measured what waits, if that takes at most a twentieth of it: else more seldom, but
	// at least every pressureAtLeast.
	pressureEvery   = time.Second
	pressureAtLeast = 30 * time.Second
	pressureShare   = 20
	pressureTimeout = 10 * time.Second
	// relief is how far what waits has to fall below a limit before events are taken in again: else the intake would
	// open and close with each measurement.
	relief = 0.8
	// sendAgainIn is what couriers are told.
	sendAgainIn = 10 * time.Second
)

// pressure has the intake refuse events while more wait in the outbox than the settings allow. It measures beside the
// requests. A measurement that fails counts as none too many: then the store's own errors decide.
type pressure struct {
	maxPending int64         // 0: no limit
	maxLag     time.Duration // 0: no limit
	pending    func(ctx context.Context, limit int64) (int64, error)
	oldest     func(context.Context) (time.Time, error) // of what is due; zero: nothing is
	now        func() time.Time
	logger     *slog.Logger

	reason atomic.Pointer[string] // why nothing is taken in; nil: it is

	refused               prometheus.Counter
	overloaded, pendingIs prometheus.Gauge
}

func newPressure(cfg Config, s *store.Store) *pressure {
	return &pressure{
		maxPending: int64(cfg.BackpressureMaxPending), maxLag: cfg.BackpressureMaxLag, pending: s.Pending, now: time.Now, logger: cfg.Logger,
		oldest: func(ctx context.Context) (time.Time, error) {
			b, err := s.Events.Backlog(ctx, time.Now())
			return b.OldestDue, err
		},
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gateway_intake_refused_total", Help: "Requests that the intake refused because too much waited in the outbox.",
		}),
		overloaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_intake_overloaded", Help: "1 while the intake refuses events because too much waits in the outbox, else 0.",
		}),
		pendingIs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_outbox_pending_events", Help: "Pending outbox rows, counted up to BACKPRESSURE_MAX_PENDING.",
		}),
	}
}

// limits reports whether there is anything to measure.
func (p *pressure) limits() bool { return p.maxPending > 0 || p.maxLag > 0 }

// Overloaded tells the API whether to refuse events, why, and when to send again.
func (p *pressure) Overloaded() (retryAfter time.Duration, reason string, yes bool) {
	why := p.reason.Load()
	if why == nil {
		return 0, "", false
	}
	p.refused.Inc()
	return sendAgainIn, *why, true
}

// watch measures until ctx ends.
func (p *pressure) watch(ctx context.Context) {
	if !p.limits() {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		start := time.Now()
		p.measure(ctx)
		timer.Reset(min(max(pressureEvery, pressureShare*time.Since(start)), pressureAtLeast))
	}
}

func (p *pressure) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pressureTimeout)
	defer cancel()
	reason, err := p.tooMuch(ctx)
	if ctx.Err() != nil && err == nil {
		err = ctx.Err()
	}
	before := p.reason.Load()
	switch {
	case err != nil:
		p.reason.Store(nil)
		p.logger.Warn("gateway: what waits in the outbox could not be measured; events are taken in", "error", err)
	case reason == "":
		p.reason.Store(nil)
	default:
		p.reason.Store(&reason)
	}
	after := p.reason.Load()
	switch {
	case before == nil && after != nil:
		p.overloaded.Set(1)
		p.logger.Warn("gateway: events are refused", "reason", reason)
	case before != nil && after == nil:
		p.overloaded.Set(0)
		p.logger.Info("gateway: events are taken in again")
	}
}

// tooMuch returns which limit is exceeded; of one that was, whether it still is by too much.
func (p *pressure) tooMuch(ctx context.Context) (reason string, err error) {
	share := 1.0
	if p.reason.Load() != nil {
		share = relief
	}
	if p.maxPending > 0 {
		n, err := p.pending(ctx, p.maxPending+1)
		if err != nil {
			return "", err
		}
		p.pendingIs.Set(float64(min(n, p.maxPending)))
		if float64(n) > share*float64(p.maxPending) {
			return fmt.Sprintf("more than %d accepted events wait to be sent", p.maxPending), nil
		}
	}
	if p.maxLag > 0 {
		oldest, err := p.oldest(ctx)
		if err != nil {
			return "", err
		}
		if !oldest.IsZero() && p.now().Sub(oldest) > time.Duration(share*float64(p.maxLag)) {
			return fmt.Sprintf("an accepted event has waited to be sent for more than %v", p.maxLag), nil
		}
	}
	return "", nil
}
