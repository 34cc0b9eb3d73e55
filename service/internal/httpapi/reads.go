package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/credentials"
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

// bearer lets only those pass whose token has the scope.
func (a *api) bearer(scope credentials.Scope) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, refusal := a.admit(r, scope); refusal != nil {
				a.refuse(w, r, refusal)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// admit returns the request's token, or why it may not do this. A token without the scope is returned, too.
func (a *api) admit(r *http.Request, scope credentials.Scope) (credentials.Token, *problem) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token, ok := a.Tokens.Find(strings.TrimSpace(text))
	switch {
	case !ok || !strings.EqualFold(scheme, "Bearer"):
		return credentials.Token{}, problemToken.with("send the header \"Authorization: Bearer TOKEN\" with the gateway's ADMIN_TOKEN, or a token of its ADMIN_TOKENS_FILE",
			courier.FieldError{Field: "Authorization", Message: "is missing or wrong"})
	case !token.May(scope):
		return token, problemScope.with("the token lacks the scope " + string(scope))
	}
	return token, nil
}
