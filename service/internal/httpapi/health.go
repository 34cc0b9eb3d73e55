package httpapi

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
)

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

// readyz says whether all that the gateway needs is there, and else what is
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
