package mongorepo

import (
	"slices"
	"testing"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// direct is what the worker gets of an accepted event that the intake has not entered.
func direct(n int, hash string) courier.Arrival {
	a := arrival(accepted(n, hash), "delivered")
	a.Event.BodyHash = hash
	a.EnvelopeID = courier.DirectID(a.Event.Source, a.Event.IdempotencyKey, hash)
	return a
}

// A key stands for the event that enters it first, by whichever way; one that comes again, as its worker has died,
// finds itself.
func TestEnter(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.receiveAll(t, accepted(1, "a"))
	const first, repeat, conflict = courier.StandingFirst, courier.StandingRepeat, courier.StandingConflict
	for range 2 {
		got, err := r.Enter(t.Context(), nil, []courier.Arrival{direct(2, "a"), direct(1, "a"), direct(2, "b"), direct(1, "b")})
		if want := []courier.Standing{first, repeat, conflict, conflict}; err != nil || !slices.Equal(got, want) {
			t.Errorf("the standings are %v, %v, want %v", got, err, want)
		}
	}
	a := direct(2, "a")
	if err := r.run(t, a, func(effect courier.Effect) error {
		if effect.Outcome != courier.OutcomeApplied {
			t.Errorf("the effect is %+v", effect)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	events, envelopes, err := r.Events(t.Context(), "evt_2", "")
	if err != nil || len(events) != 1 || events[0].Status != courier.StatusProcessed || envelopes[0] != a.EnvelopeID {
		t.Errorf("the ledger has %+v of %v, %v", events, envelopes, err)
	}
	if rows := r.outbox(t); len(rows) != 1 {
		t.Errorf("the outbox has %v, want what was received", rows)
	}
}
