package worker

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// enter has the ledger get the events that the intake has published without it, and returns those that are to be
// processed. A repeat, which the inbox does not know as one if it came in another envelope, is left out: it is
// done when the first is.
func (w *Worker[Tx]) enter(ctx context.Context, tx Tx, events []eventing.Event[courier.Event], arrivals []courier.Arrival) ([]eventing.Event[courier.Event], []courier.Arrival, error) {
	var direct []courier.Arrival
	for i := range arrivals {
		if a := &arrivals[i]; a.Event.Direct(a.EnvelopeID) {
			direct = append(direct, *a)
		}
	}
	if len(direct) == 0 {
		return events, arrivals, nil
	}
	standings, err := w.Ledger.Enter(ctx, tx, direct)
	if err != nil {
		return nil, nil, reasoned(fmt.Errorf("enter %s into the ledger: %w", named(direct), err))
	}
	repeats := map[string]bool{}
	for i, standing := range standings {
		switch e := &direct[i].Event; standing {
		case courier.StandingConflict:
			return nil, nil, eventing.PermanentWithReason(ReasonIdempotencyConflict,
				fmt.Errorf("event %s: its idempotency key %q is known with another body", e.EventID, e.IdempotencyKey))
		case courier.StandingRepeat:
			repeats[direct[i].EnvelopeID] = true
		case courier.StandingFirst:
		}
	}
	if len(repeats) == 0 {
		return events, arrivals, nil
	}
	var first []eventing.Event[courier.Event]
	var kept []courier.Arrival
	for i := range arrivals {
		if !repeats[arrivals[i].EnvelopeID] {
			first, kept = append(first, events[i]), append(kept, arrivals[i])
		}
	}
	return first, kept, nil
}
