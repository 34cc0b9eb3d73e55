package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// NewHealth returns the handler of a process that has no other endpoints: /healthz,
// /readyz and /metrics, as [New]'s are.
func NewHealth(checks []Check, metrics http.Handler, logger *slog.Logger) http.Handler {
	a := &api{Config: Config{Checks: checks, Metrics: metrics, Logger: logger}, router: chi.NewRouter()}
	a.router.Use(withTrace, a.logged, a.recovered, hardened, middleware.GetHead)
	a.router.Get("/healthz", a.healthz)
	a.router.Get("/readyz", a.readyz)
	a.metrics()
	return a.router
}

// metrics serves what Prometheus scrapes, if there is something.
func (a *api) metrics() {
	if a.Metrics != nil {
		a.router.Method(http.MethodGet, "/metrics", a.Metrics)
	}
}

// readyTimeout bounds a readiness check: what answers slower is not ready.
const readyTimeout = 2 * time.Second

type health struct {
	Status string `json:"status" enum:"ok,ready"`
}

// healthz says that the process serves. It depends on nothing else, so that a
// broken database restarts nobody.
func (a *api) healthz(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, http.StatusOK, contentTypeJSON, health{Status: "ok"})
}

// readyz says whether all that the process needs is there, and else what is
// missing. Why it is missing is for the log: this endpoint is open.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	errs := make([]error, len(a.Checks))
	var running sync.WaitGroup
	for i, check := range a.Checks {
		running.Go(func() { errs[i] = check.Ready(ctx) })
	}
	running.Wait()
	var names []string
	var faults []courier.FieldError
	for i, err := range errs {
		if err != nil {
			name := a.Checks[i].Name
			a.Logger.WarnContext(ctx, "not ready", "dependency", name, "error", err)
			names = append(names, name)
			faults = append(faults, courier.FieldError{Field: name, Message: "is not available"})
		}
	}
	if len(faults) > 0 {
		a.refuse(w, r, problemUnavailable.with("not available: "+strings.Join(names, ", "), faults...))
		return
	}
	a.answer(w, r, http.StatusOK, contentTypeJSON, health{Status: "ready"})
}
