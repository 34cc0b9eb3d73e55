package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/internal/strictjson"
	"github.com/waybill-go/waybill/service/internal/courier"
)

const (
	contentTypeJSON = "application/json"
	// drainBytes is how much of a body that is too large is still read: a client
	// that is cut off while it sends seldom gets to see why.
	drainBytes = 8 << 20
	// trustedLength is how much memory a mere Content-Length can reserve.
	trustedLength = 64 << 10
)

type accepted struct {
	TraceID string `json:"traceId" doc:"The trace id under which the event is known; a repeat gets that of the first time."`
}

// intake is POST /v1/events/courier.
func (a *api) intake(w http.ResponseWriter, r *http.Request) {
	if retryAfter, reason, yes := a.Overloaded(); yes {
		a.refuse(w, r, overloaded(retryAfter, reason))
		return
	}
	got, refusal := a.receive(r)
	if refusal != nil {
		a.refuse(w, r, refusal)
		return
	}
	known, err := a.Acceptor.Accept(r.Context(), got.event, got.payload, got.hash)
	switch {
	case errors.Is(err, ErrConflict):
		a.refuse(w, r, problemConflict.with("an event with this idempotency key and another body was accepted before; send changed content under a new key",
			courier.FieldError{Field: "idempotencyKey", Message: "is known with another body"}))
	case errors.Is(err, ErrBusy):
		a.refuse(w, r, problemUnavailable.with("the event was not stored: too many wait already; send it again"))
	case err != nil:
		a.Logger.ErrorContext(r.Context(), "accept an event", "error", err, "traceId", got.event.TraceID)
		a.refuse(w, r, problemUnavailable.with("the event could not be stored; send it again"))
	default:
		a.accept(w, r, known)
	}
}

// overloaded refuses before anything of the body is read.
func overloaded(retryAfter time.Duration, reason string) *problem {
	p := problemOverloaded.with("the event was not stored: " + reason + "; send it again later")
	p.headers = http.Header{"Retry-After": {strconv.Itoa(max(1, int(retryAfter.Seconds())))}}
	return p
}

// accept answers with an [accepted], as [api.answer] would.
func (a *api) accept(w http.ResponseWriter, r *http.Request, traceID string) {
	body := append(make([]byte, 0, 64), `{"traceId":`...)
	body = append(strictjson.AppendString(body, traceID), "}\n"...)
	a.write(w, r, http.StatusAccepted, jsonType, body)
}

// arrival is an event that may be taken over.
type arrival struct {
	event   courier.Event
	payload courier.Payload
	hash    string // of its body
}

// receive reads the request and holds it to the rules, cheapest and most
// suspicious first: nothing is parsed before its signature holds.
func (a *api) receive(r *http.Request) (arrival, *problem) {
	if refusal := checkMediaType(r.Header); refusal != nil {
		return arrival{}, refusal
	}
	raw, refusal := a.readBody(r)
	if refusal != nil {
		return arrival{}, refusal
	}
	now := a.Now().UTC()
	signature, err := signatureOf(r.Header)
	var verified courier.Verified
	if err == nil {
		verified, err = a.Keyring.Verify(signature, raw, now, a.MaxSkew)
	}
	if err != nil {
		return arrival{}, signatureProblem(err)
	}
	ev, payload, faults := courier.Parse(raw)
	if len(faults) > 0 {
		return arrival{}, problemInvalid.with(describe(faults), faults...)
	}
	if !verified.Covers(ev.Source) {
		return arrival{}, problemSignature.with("source: the secret that signed this request may not sign for this source",
			courier.FieldError{Field: "source", Message: "does not belong to the secret of the signature"})
	}
	ev.TraceID = traceID(r.Context())
	ev.SignatureMeta = verified.Meta
	ev.ReceivedAt = now
	ev.Attempt = 1
	return arrival{ev, payload, courier.CanonicalHash(raw)}, nil
}

func checkMediaType(h http.Header) *problem {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return problemMediaType.with("Content-Encoding must be absent: the signature is over the bytes as sent",
			courier.FieldError{Field: "Content-Encoding", Message: "is not supported"})
	}
	value := h.Get("Content-Type")
	if value == contentTypeJSON {
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(value)
	charset, given := params["charset"]
	if err == nil && mediaType == contentTypeJSON && (!given || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return problemMediaType.with("Content-Type must be application/json, in UTF-8",
		courier.FieldError{Field: "Content-Type", Message: "must be application/json"})
}

func (a *api) readBody(r *http.Request) ([]byte, *problem) {
	tooLarge := func() *problem {
		return problemTooLarge.with(fmt.Sprintf("the body must be at most %d bytes long", a.MaxBodyBytes))
	}
	if r.ContentLength > a.MaxBodyBytes && r.Header.Get("Expect") != "" {
		return nil, tooLarge() // the client waits for our word before it sends
	}
	var body bytes.Buffer
	if r.ContentLength > 0 {
		body.Grow(int(min(r.ContentLength, trustedLength)) + bytes.MinRead)
	}
	_, err := body.ReadFrom(io.LimitReader(r.Body, a.MaxBodyBytes+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problemTimeout.with("the body did not arrive in time")
	case err != nil:
		return nil, problemBody.with("the body ended before its announced length, or its encoding is broken")
	case int64(body.Len()) > a.MaxBodyBytes:
		_, _ = io.CopyN(io.Discard, r.Body, drainBytes) // for the client's sake; refused either way
		return nil, tooLarge()
	}
	return body.Bytes(), nil
}

// signatureOf refuses headers that are given twice: which one counts must not
// depend on who reads them.
func signatureOf(h http.Header) (courier.Signature, error) {
	for _, name := range []string{courier.HeaderTimestamp, courier.HeaderSignature, courier.HeaderKeyID} {
		if len(h.Values(name)) > 1 {
			return courier.Signature{}, &courier.SignatureError{Header: name, Problem: "is given more than once"}
		}
	}
	return courier.Signature{
		Timestamp: h.Get(courier.HeaderTimestamp),
		Value:     h.Get(courier.HeaderSignature),
		KeyID:     h.Get(courier.HeaderKeyID),
	}, nil
}

func signatureProblem(err error) *problem {
	var fault *courier.SignatureError
	if !errors.As(err, &fault) {
		return problemSignature.with("the signature could not be verified")
	}
	return problemSignature.with(fault.Error(), courier.FieldError{Field: fault.Header, Message: fault.Problem})
}

// describe names the first fault, and how many more there are.
func describe(faults []courier.FieldError) string {
	field := faults[0].Field
	if field == "" {
		field = "body"
	}
	detail := field + ": " + faults[0].Message
	if more := len(faults) - 1; more > 0 {
		detail += fmt.Sprintf(" (and %d more)", more)
	}
	return detail
}
