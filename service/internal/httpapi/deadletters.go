package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/credentials"
)

// DeadLetters are looked at and acted on; [eventing.DeadLetters] are such.
type DeadLetters interface {
	List(ctx context.Context, f eventing.DeadLetterFilter) ([]eventing.DeadLetter, error)
	Review(ctx context.Context, t eventing.Target, by, note string) error
	Replay(ctx context.Context, t eventing.Target, by, note string) error
	Discard(ctx context.Context, t eventing.Target, by, note string) error
}

type deadLetterItem struct {
	EventID       string    `json:"eventId" doc:"The envelope's event id, which acts are addressed to."`
	Consumer      string    `json:"consumer" doc:"Where it died. - if it came to no consumer."`
	EventType     string    `json:"eventType"`
	ReasonCode    string    `json:"reasonCode"`
	ReasonMessage string    `json:"reasonMessage"`
	AttemptCount  int       `json:"attemptCount"`
	Status        string    `json:"status" enum:"pending,reviewed,replayed,closed"`
	Resolution    string    `json:"resolution,omitempty"`
	CreatedAt     time.Time `json:"createdAt"`
	UpdatedAt     time.Time `json:"updatedAt"`
	ParkedBehind  int       `json:"parkedBehind" doc:"Deliveries that wait for it."`
}

type deadLetterPage struct {
	DeadLetters []deadLetterItem `json:"deadLetters"`
	Next        string           `json:"next,omitempty" doc:"What to give as after for the next page; absent on the last one."`
}

const (
	defaultPage = 100
	maxPage     = 1000
	maxActBytes = 16 << 10
	// noConsumer stands for the empty name, of events that came to no consumer.
	noConsumer = "-"
)

// listDeadLetters is GET /v1/dead-letters.
func (a *api) listDeadLetters(w http.ResponseWriter, r *http.Request) {
	f, faults := letterFilter(r.URL.Query())
	if len(faults) > 0 {
		a.refuse(w, r, problemRequest.with(describe(faults), faults...))
		return
	}
	limit := f.Limit
	f.Limit++ // one more tells whether there is another page
	found, err := a.DeadLetters.List(r.Context(), f)
	if err != nil {
		a.Logger.ErrorContext(r.Context(), "read", "error", err, "traceId", traceID(r.Context()))
		a.refuse(w, r, problemUnavailable.with("the store did not answer; ask again"))
		return
	}
	page := deadLetterPage{DeadLetters: []deadLetterItem{}}
	if len(found) > limit {
		found = found[:limit]
		page.Next = encodePlace(found[limit-1].Place())
	}
	for _, d := range found {
		item := deadLetterItem{
			d.EventID, d.Consumer, d.EventType, string(d.Reason), d.Message, d.AttemptCount, string(d.Status), string(d.Resolution), d.CreatedAt, d.UpdatedAt, d.ParkedBehind,
		}
		if item.Consumer == "" {
			item.Consumer = noConsumer
		}
		page.DeadLetters = append(page.DeadLetters, item)
	}
	a.answer(w, r, http.StatusOK, contentTypeJSON, page)
}

func letterFilter(query url.Values) (f eventing.DeadLetterFilter, faults []courier.FieldError) {
	f.Limit = defaultPage
	fault := func(name, message string) { faults = append(faults, courier.FieldError{Field: name, Message: message}) }
	for name, values := range query {
		value := values[0]
		switch {
		case len(values) > 1:
			fault(name, "is given more than once")
			continue
		case value == "":
			fault(name, "is empty")
			continue
		}
		switch name {
		case "status":
			switch f.Status = eventing.ReviewStatus(value); f.Status {
			case eventing.StatusPending, eventing.StatusReviewed, eventing.StatusReplayed, eventing.StatusClosed:
			default:
				fault(name, "must be pending, reviewed, replayed or closed")
			}
		case "consumer":
			f.Consumer = value
		case "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxPage {
				fault(name, "must be from 1 to "+strconv.Itoa(maxPage))
			}
			f.Limit = n
		case "after":
			var ok bool
			if f.After, ok = decodePlace(value); !ok {
				fault(name, "must be the next of an earlier answer")
			}
		default:
			fault(name, "is unknown; the parameters are status, consumer, limit and after")
		}
	}
	return f, faults
}

func encodePlace(p eventing.Place) string {
	b, _ := json.Marshal([]string{p.CreatedAt.UTC().Format(time.RFC3339Nano), p.EventID, p.Consumer}) // texts always can be
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodePlace(text string) (p eventing.Place, ok bool) {
	var parts []string
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(b, &parts) != nil || len(parts) != 3 {
		return p, false
	}
	at, err := time.Parse(time.RFC3339Nano, parts[0])
	return eventing.Place{CreatedAt: at, Target: eventing.Target{EventID: parts[1], Consumer: parts[2]}}, err == nil
}

type actBody struct {
	Note string `json:"note,omitempty" maxLength:"4096" doc:"Why; recorded. A discard needs one."`
}

type acted struct {
	EventID  string `json:"eventId"`
	Consumer string `json:"consumer"`
	Act      string `json:"act"`
	By       string `json:"by" doc:"The token's name, which is recorded."`
}

// act handles the POST of an act. Each is in the log, whether it was done or refused: the message is "audit".
func (a *api) act(what string, do func(ctx context.Context, t eventing.Target, by, note string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		target, err := targetOf(r)
		token, refusal := a.admit(r, credentials.ScopeOperate)
		if refusal == nil && err != nil {
			refusal = problemNotFound.with("no dead letter is called so")
		}
		var body actBody
		if refusal == nil {
			body, refusal = readAct(r, what)
		}
		if refusal == nil {
			refusal = a.actProblem(r, do(r.Context(), target, token.Name, body.Note))
		}
		a.audit(r, what, target, token.Name, refusal)
		if refusal != nil {
			a.refuse(w, r, refusal)
			return
		}
		a.answer(w, r, http.StatusOK, contentTypeJSON, acted{target.EventID, chi.URLParam(r, "consumer"), what, token.Name})
	}
}

func targetOf(r *http.Request) (t eventing.Target, err error) {
	for name, to := range map[string]*string{"eventId": &t.EventID, "consumer": &t.Consumer} {
		text := chi.URLParam(r, name)
		if r.URL.RawPath != "" { // then chi matches, and returns, what is still escaped
			if text, err = url.PathUnescape(text); err != nil {
				return t, err
			}
		}
		if len(text) > courier.MaxIDLength || strings.ContainsRune(text, 0) {
			return t, errors.New("no such name")
		}
		*to = text
	}
	if t.Consumer == noConsumer {
		t.Consumer = ""
	}
	return t, nil
}

// readAct reads the body, which may be empty where no note is needed.
func readAct(r *http.Request, what string) (body actBody, refusal *problem) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxActBytes+1))
	switch {
	case err != nil:
		return body, problemBody.with("the body ended before its announced length, or did not arrive in time")
	case len(raw) > maxActBytes:
		return body, problemTooLarge.with("the body must be at most " + strconv.Itoa(maxActBytes) + " bytes long")
	}
	if len(bytes.TrimSpace(raw)) > 0 {
		if refusal := checkMediaType(r.Header); refusal != nil {
			return body, refusal
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil || d.Decode(&struct{}{}) != io.EOF {
			return body, problemRequest.with(`the body must be a JSON object such as {"note": "why"}, and nothing else`, courier.FieldError{Message: "is not such an object"})
		}
	}
	if len(body.Note) > 4096 || what == "discard" && strings.TrimSpace(body.Note) == "" {
		return body, problemRequest.with("note: must say why, in at most 4096 bytes", courier.FieldError{Field: "note", Message: "must say why, in at most 4096 bytes"})
	}
	return body, nil
}

func (a *api) actProblem(r *http.Request, err error) *problem {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, eventing.ErrNotFound):
		return problemNotFound.with("no dead letter is called so; GET /v1/dead-letters has their eventId and consumer")
	case errors.Is(err, eventing.ErrState):
		return problemState.with("the dead letter's status does not allow this; GET /v1/dead-letters has it")
	}
	a.Logger.ErrorContext(r.Context(), "act on a dead letter", "error", err, "traceId", traceID(r.Context()))
	return problemUnavailable.with("the store did not answer; look whether it was done before you try again")
}

func (a *api) audit(r *http.Request, what string, t eventing.Target, by string, refusal *problem) {
	level, outcome, status, reason := slog.LevelInfo, "done", http.StatusOK, ""
	if refusal != nil {
		level, outcome, status, reason = slog.LevelWarn, "refused", refusal.Status, refusal.Type
		if status >= http.StatusInternalServerError {
			outcome = "unknown"
		}
	}
	a.Logger.LogAttrs(r.Context(), level, "audit", slog.String("act", what), slog.String("eventId", t.EventID), slog.String("consumer", t.Consumer),
		slog.String("by", by), slog.String("outcome", outcome), slog.Int("status", status), slog.String("reason", reason),
		slog.String("remote", r.RemoteAddr), slog.String("traceId", traceID(r.Context())))
}
