package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// logged writes a record per request. The path is not part of it, only the
// route: paths hold what clients make up.
func (a *api) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			level := slog.LevelDebug
			switch status := ww.Status(); {
			case status >= http.StatusInternalServerError:
				level = slog.LevelError
			case status >= http.StatusBadRequest:
				level = slog.LevelInfo
			}
			if !a.Logger.Enabled(r.Context(), level) {
				return
			}
			a.Logger.LogAttrs(r.Context(), level, "request",
				slog.String("method", r.Method),
				slog.String("route", route(r)),
				slog.Int("status", ww.Status()),
				slog.Int("bytes", ww.BytesWritten()),
				slog.Duration("duration", time.Since(start)),
				slog.String("remote", r.RemoteAddr),
				slog.String("traceId", traceID(r.Context())))
		}()
		next.ServeHTTP(ww, r)
	})
}

// route is the pattern of a request's path. What did not come through the router is the intake's.
func route(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil {
		return c.RoutePattern()
	}
	return intakePath
}

// recovered answers 500 where a handler panics: one request is lost, not the
// server.
func (a *api) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this
				panic(v)
			}
			a.Logger.ErrorContext(r.Context(), "a handler panicked",
				"panic", fmt.Sprint(v), "stack", string(debug.Stack()), "traceId", traceID(r.Context()))
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler) // half an answer must not look like a whole one
			}
			a.refuse(w, r, problemInternal.with("the gateway failed on this request; its log has the trace id"))
		}()
		next.ServeHTTP(w, r)
	})
}
