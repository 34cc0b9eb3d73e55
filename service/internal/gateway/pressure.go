package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-go/waybill/service/internal/backend"
)

const (
	// pressureEvery is how often it is measured what waits. Counting takes seconds where a million rows wait, and is done
	// where a bound does not decide, for at most one part in countShare of the time.
	pressureEvery   = time.Second
	pressureTimeout = 30 * time.Second
	countShare      = 10
	// relief is how far what waits has to fall below a limit before events are taken in again: else the intake would
	// open and close with each measurement.
	relief = 0.8
	// sendAgainIn is what couriers are told.
	sendAgainIn = 10 * time.Second
)

// pressure has the intake refuse events while more wait in the outbox than the settings allow. It measures beside the
// requests. A measurement that fails counts as none too many: then the store's own errors decide.
type pressure struct {
	maxPending int64                                // 0: no limit
	maxLag     time.Duration                        // 0: no limit
	atMost     func(context.Context) (int64, error) // how many wait: a bound, cheap
	pending    func(ctx context.Context, limit int64) (int64, error)
	oldest     func(context.Context) (time.Time, error) // of what is due; zero: nothing is
	now        func() time.Time
	logger     *slog.Logger

	reason    atomic.Pointer[string] // why nothing is taken in; nil: it is
	nextCount time.Time

	refused               prometheus.Counter
	overloaded, pendingIs prometheus.Gauge
}

func newPressure(cfg Config, b *backend.Backend) *pressure {
	if cfg.direct() { // what is accepted does not wait in the outbox
		cfg.BackpressureMaxPending, cfg.BackpressureMaxLag = 0, 0
	}
	return &pressure{
		maxPending: int64(cfg.BackpressureMaxPending), maxLag: cfg.BackpressureMaxLag, atMost: b.PendingAtMost, pending: b.Pending, now: time.Now, logger: cfg.Logger,
		oldest: func(ctx context.Context) (time.Time, error) {
			backlog, err := b.Events.Backlog(ctx, time.Now())
			return backlog.OldestDue, err
		},
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gateway_intake_refused_total", Help: "Requests that the intake refused because too much waited in the outbox.",
		}),
		overloaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_intake_overloaded", Help: "1 while the intake refuses events because too much waits in the outbox, else 0.",
		}),
		pendingIs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gateway_outbox_pending_events", Help: "Pending outbox rows at most: all since the oldest; counted, up to the limit, where that exceeds it.",
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
	tick := time.NewTicker(pressureEvery)
	defer tick.Stop()
	for {
		p.measure(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *pressure) measure(background context.Context) {
	ctx, cancel := context.WithTimeout(background, pressureTimeout)
	defer cancel()
	reason, err := p.tooMuch(ctx)
	if background.Err() != nil {
		return
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
		if yes, err := p.tooMany(ctx, int64(share*float64(p.maxPending))); err != nil || yes {
			return fmt.Sprintf("more than %d accepted events wait to be sent", p.maxPending), err
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

// tooMany reports whether more than limit events wait; while it is too early to count them again, what it was before.
func (p *pressure) tooMany(ctx context.Context, limit int64) (bool, error) {
	n, err := p.atMost(ctx)
	if err != nil {
		return false, err
	}
	if n > limit {
		start := p.now()
		if start.Before(p.nextCount) {
			return p.reason.Load() != nil, nil
		}
		if n, err = p.pending(ctx, limit+1); err != nil {
			return false, err
		}
		n = min(n, limit+1)
		end := p.now()
		p.nextCount = end.Add(countShare * end.Sub(start))
	}
	p.pendingIs.Set(float64(n))
	return n > limit, nil
}
