package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/waybill-go/waybill/service/internal/courier"
)

type shipmentInput struct {
	ShipmentID string `path:"shipmentId" doc:"The courier's shipment id." example:"shp_456"`
}

type shipmentOutput struct {
	Body courier.Shipment
}

func (a *api) shipment(ctx context.Context, in *shipmentInput) (*shipmentOutput, error) {
	if len(in.ShipmentID) > courier.MaxIDLength {
		return nil, a.readProblem(ctx, ErrNotFound)
	}
	shipment, err := a.Reader.Shipment(ctx, in.ShipmentID)
	if err != nil {
		return nil, a.readProblem(ctx, err)
	}
	return &shipmentOutput{Body: shipment}, nil
}

type eventsInput struct {
	EventID string `path:"eventId" doc:"The courier's event id." example:"evt_123"`
	Source  string `query:"source" doc:"Only the event of this source: two couriers may use one event id."`
}

type eventList struct {
	Events []courier.EventStatus `json:"events"`
}

type eventsOutput struct {
	Body eventList
}

func (a *api) events(ctx context.Context, in *eventsInput) (*eventsOutput, error) {
	if len(in.EventID) > courier.MaxIDLength || len(in.Source) > courier.MaxIDLength {
		return nil, a.readProblem(ctx, ErrNotFound)
	}
	events, err := a.Reader.Events(ctx, in.EventID, in.Source)
	if err == nil && len(events) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, a.readProblem(ctx, err)
	}
	return &eventsOutput{Body: eventList{Events: events}}, nil
}

func (a *api) readProblem(ctx context.Context, err error) error {
	p := problemNotFound.with("nothing is known under this id; an event that was just accepted may take a moment")
	if !errors.Is(err, ErrNotFound) {
		a.Logger.ErrorContext(ctx, "read", "error", err, "traceId", traceID(ctx))
		p = problemUnavailable.with("the store did not answer; ask again")
	}
	p.TraceID = traceID(ctx)
	return p
}

// bearer lets only those pass who show the admin token, and nobody while there
// is none. Hashing first makes the comparison's time independent of the length.
func (a *api) bearer(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(a.AdminToken))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(token)))
		if a.AdminToken == "" || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			a.refuse(w, r, problemToken.with("send the header \"Authorization: Bearer TOKEN\" with the gateway's ADMIN_TOKEN",
				courier.FieldError{Field: "Authorization", Message: "is missing or wrong"}))
			return
		}
		next.ServeHTTP(w, r)
	})
}
