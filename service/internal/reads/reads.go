// Package reads answers what became of shipments and events.
package reads

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/httpapi"
)

// Shipments are the projection.
type Shipments interface {
	// Get returns a shipment; sql.ErrNoRows if it is not known.
	Get(ctx context.Context, shipmentID string) (courier.Shipment, error)
}

// Ledger knows what became of events.
type Ledger interface {
	// Events returns what became of the events that couriers, or one source, call so, with the ids of their envelopes.
	Events(ctx context.Context, eventID, source string) (events []courier.EventStatus, envelopes []string, err error)
}

// Reads implements [httpapi.Reader].
type Reads struct {
	Shipments   Shipments
	Ledger      Ledger
	DeadLetters *eventing.DeadLetters
	// Worker is the consumer whose dead letters are told of, beside those of events that have come to none.
	Worker string
}

var _ httpapi.Reader = (*Reads)(nil)

// Shipment implements [httpapi.Reader].
func (r *Reads) Shipment(ctx context.Context, shipmentID string) (courier.Shipment, error) {
	s, err := r.Shipments.Get(ctx, shipmentID)
	if errors.Is(err, sql.ErrNoRows) {
		return s, httpapi.ErrNotFound
	}
	return s, err
}

// Events implements [httpapi.Reader].
func (r *Reads) Events(ctx context.Context, eventID, source string) ([]courier.EventStatus, error) {
	events, envelopes, err := r.Ledger.Events(ctx, eventID, source)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, httpapi.ErrNotFound
	}
	for i := range events {
		letters, err := r.DeadLetters.List(ctx, eventing.DeadLetterFilter{EventID: envelopes[i]})
		if err != nil {
			return nil, err
		}
		for _, d := range letters {
			atDispatch := d.Consumer == "" // it has not come to the worker
			if d.Consumer != r.Worker && (!atDispatch || events[i].DeadLetter != nil) {
				continue
			}
			events[i].DeadLetter = deadLetter(d)
			// What the worker's ledger knows nothing of: an operator's act, or that it will not come.
			if d.Resolution == eventing.Discarded || atDispatch && (d.Status == eventing.StatusPending || d.Status == eventing.StatusReviewed) {
				events[i].Status = courier.StatusDeadLettered
			}
		}
	}
	return events, nil
}

func deadLetter(d eventing.DeadLetter) *courier.DeadLetter {
	out := &courier.DeadLetter{
		ReasonCode: string(d.Reason), ReasonMessage: d.Message, ReviewStatus: string(d.Status), Resolution: string(d.Resolution),
		AttemptHistory: []courier.Attempt{},
	}
	for _, a := range d.History {
		out.AttemptHistory = append(out.AttemptHistory, courier.Attempt{
			Attempt: a.Attempt, Outcome: a.Outcome, ErrorCode: string(a.ErrorCode), ErrorMessage: a.ErrorMessage, At: a.At,
		})
	}
	return out
}
