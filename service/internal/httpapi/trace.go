package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

type traceKey struct{}

// withTrace gives the request its trace id: that of a valid traceparent
// header, else a new one.
func withTrace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := "", false
		if values := r.Header.Values("Traceparent"); len(values) == 1 {
			id, ok = parseTraceparent(values[0])
		}
		if !ok {
			id = newTraceID()
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), traceKey{}, id)))
	})
}

func traceID(ctx context.Context) string {
	id, _ := ctx.Value(traceKey{}).(string)
	return id
}

func newTraceID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

// parseTraceparent returns the trace id of a W3C traceparent
// (https://www.w3.org/TR/trace-context/#traceparent-header). Versions after 00
// may append to it.
func parseTraceparent(s string) (id string, ok bool) {
	const length = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return "", false
	}
	version, id, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	switch {
	case !isLowerHex(version + id + parent + flags), version == "ff":
		return "", false
	case strings.Trim(id, "0") == "", strings.Trim(parent, "0") == "":
		return "", false
	case len(s) > length && (version == "00" || s[length] != '-'):
		return "", false
	}
	return id, true
}

func isLowerHex(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}
