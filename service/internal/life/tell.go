package life

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

const (
	// MaxEvents is how many events of one id are told.
	MaxEvents   = 100
	traceLength = 32
	hashShown   = 12
)

// accepted tells that the intake has accepted the event.
func (e *Event) accepted(at time.Time, bodyHash string) {
	e.add(Step{At: at, What: Accepted, BodyHash: bodyHash[:min(len(bodyHash), hashShown)]})
}

// repository is that of the shipments.
type repository interface {
	// Get returns a shipment; [sql.ErrNoRows] if it is not known.
	Get(ctx context.Context, shipmentID string) (courier.Shipment, error)
}

func addShipments(ctx context.Context, of repository, events []Event) error {
	for i := range events {
		s, err := of.Get(ctx, events[i].ShipmentID)
		switch {
		case err == nil:
			events[i].Shipment = &Shipment{s.CurrentState, s.OrderID, s.LastEventID, s.LastEventAt, s.UpdatedAt}
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	return nil
}

// row tells of an outbox row: of has its place, its consumer, its replay, and its attempts and message for when it was settled. What is aside
// was settled, but sent nothing.
func (s *standing) row(of Step, failed, aside bool, created, settled, due time.Time) {
	attempts, message := of.Attempt, of.Message
	of.What, of.At, of.Attempt, of.Message = Appended, created, 0, ""
	s.event.add(of)
	if settled.IsZero() {
		s.pending = true
		s.goesOn(due)
		return
	}
	of.At, of.Attempt, of.Message = settled, attempts, message
	switch {
	case failed:
		of.What = Failed
	case aside:
		of.What = Aside
	default:
		of.What = Sent
		if of.At.After(s.sent.At) {
			s.sent = of
		}
	}
	s.event.add(of)
}

// delivery tells of a delivery in trouble.
func (s *standing) delivery(consumer, state string, due time.Time, history []eventing.Attempt) {
	if s.state = eventing.State(state); s.state == eventing.StateRetrying {
		s.goesOn(due)
	}
	s.event.attempts(consumer, history)
}

// letter tells of a dead letter, and of what was done about it.
func (s *standing) letter(d eventing.DeadLetter) {
	s.goesOn(d.ScheduledAt)
	s.letters = append(s.letters, d)
	s.event.add(Step{At: d.CreatedAt, What: Died, Consumer: d.Consumer, Attempt: d.AttemptCount, Code: string(d.Reason), Message: d.Message})
	for _, a := range d.Acts {
		s.event.add(Step{At: a.At, What: a.Act, Consumer: d.Consumer, By: a.By, Message: a.Note, Plan: a.Plan, DueAt: a.DueAt})
	}
	s.event.attempts(d.Consumer, d.History)
}

// processed tells that the inbox has the event.
func (s *standing) processed(consumer string, at time.Time) {
	s.event.add(Step{At: at, What: Processed, Consumer: consumer})
	s.inbox = true
}

// attempts adds those of a history.
func (e *Event) attempts(consumer string, history []eventing.Attempt) {
	for _, a := range history {
		e.add(Step{At: a.At, What: Attempt, Consumer: consumer, Attempt: a.Attempt, Code: string(a.ErrorCode), Message: a.ErrorMessage})
		e.Attempts = max(e.Attempts, a.Attempt)
	}
}

// keep takes the payload out of an encoded envelope: of a courier's event, what the courier has sent.
func (e *Event) keep(encoded []byte) {
	envelope, err := eventing.DecodeEnvelope(encoded)
	if err != nil {
		return
	}
	e.Payload = envelope.Payload
	var sent courier.Event
	if json.Unmarshal(envelope.Payload, &sent) == nil && sent.EventID != "" {
		e.Payload = sent.Payload
	}
}
