package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// problem is an answer by RFC 9457. It is an error that huma knows how to send.
type problem struct {
	Type    string               `json:"type" doc:"Names the kind of problem; it does not change between releases." example:"urn:waybill:problem:invalid-event"`
	Title   string               `json:"title" doc:"The kind of problem in words."`
	Status  int                  `json:"status" doc:"The HTTP status."`
	Detail  string               `json:"detail" doc:"What is wrong with this request, and what to do about it."`
	TraceID string               `json:"traceId" doc:"Finds this request in the gateway's log."`
	Errors  []courier.FieldError `json:"errors,omitempty" doc:"The fields, headers or dependencies at fault."`

	headers http.Header
}

func (p *problem) Error() string { return p.Detail }

// GetStatus makes it a huma.StatusError.
func (p *problem) GetStatus() int { return p.Status }

// GetHeaders makes it a huma.HeadersError.
func (p *problem) GetHeaders() http.Header { return p.headers }

// ContentType makes it a huma.ContentTypeFilter.
func (p *problem) ContentType(string) string { return problemContentType }

const problemContentType = "application/problem+json"

// problemKind is what all problems of a type share.
type problemKind struct {
	status      int
	name, title string
	headers     http.Header
}

// The kinds of problems. Their names are part of the interface.
var (
	problemNotFound    = problemKind{http.StatusNotFound, "not-found", "Not found", nil}
	problemMethod      = problemKind{http.StatusMethodNotAllowed, "method-not-allowed", "Method not allowed", nil}
	problemMediaType   = problemKind{http.StatusUnsupportedMediaType, "unsupported-media-type", "Unsupported media type", nil}
	problemTooLarge    = problemKind{http.StatusRequestEntityTooLarge, "body-too-large", "Body too large", nil}
	problemTimeout     = problemKind{http.StatusRequestTimeout, "request-timeout", "The request took too long", nil}
	problemBody        = problemKind{http.StatusBadRequest, "unreadable-body", "The body could not be read", nil}
	problemSignature   = problemKind{http.StatusUnauthorized, "invalid-signature", "The signature does not hold", http.Header{"Www-Authenticate": {`HMAC-SHA256 headers="X-Signature-Timestamp X-Signature"`}}}
	problemInvalid     = problemKind{http.StatusBadRequest, "invalid-event", "The event is not valid", nil}
	problemConflict    = problemKind{http.StatusConflict, "idempotency-conflict", "The idempotency key is taken", nil}
	problemUnavailable = problemKind{http.StatusServiceUnavailable, "unavailable", "Temporarily unavailable", http.Header{"Retry-After": {"1"}}}
	problemOverloaded  = problemKind{http.StatusServiceUnavailable, "overloaded", "Too much waits to be sent", nil}
	problemToken       = problemKind{http.StatusUnauthorized, "invalid-token", "The bearer token is missing or wrong", http.Header{"Www-Authenticate": {`Bearer realm="waybill"`}}}
	problemScope       = problemKind{http.StatusForbidden, "insufficient-scope", "The token may not do this", http.Header{"Www-Authenticate": {`Bearer realm="waybill", error="insufficient_scope"`}}}
	problemRequest     = problemKind{http.StatusBadRequest, "invalid-request", "The request is not valid", nil}
	problemState       = problemKind{http.StatusConflict, "wrong-state", "The dead letter's status does not allow this", nil}
	problemInternal    = problemKind{http.StatusInternalServerError, "internal-error", "Internal error", nil}
)

func (k problemKind) with(detail string, faults ...courier.FieldError) *problem {
	return &problem{
		Type: "urn:waybill:problem:" + k.name, Title: k.title, Status: k.status,
		Detail: detail, Errors: faults, headers: k.headers,
	}
}

// refuse answers the request with the problem.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	p.TraceID = traceID(r.Context())
	for name, values := range p.headers {
		w.Header()[name] = values
	}
	a.answer(w, r, p.Status, problemContentType, p)
}

// answer writes v as JSON. What cannot be written any more is the client's loss,
// and the log's to tell.
func (a *api) answer(w http.ResponseWriter, r *http.Request, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		a.Logger.ErrorContext(r.Context(), "encode the answer", "error", err, "traceId", traceID(r.Context()))
		status, body = http.StatusInternalServerError, []byte(`{}`)
	}
	a.write(w, r, status, []string{contentType}, append(body, '\n'))
}

func (a *api) write(w http.ResponseWriter, r *http.Request, status int, contentType []string, body []byte) {
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		a.Logger.DebugContext(r.Context(), "write the answer", "error", err, "traceId", traceID(r.Context()))
	}
}
