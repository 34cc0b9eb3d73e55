package ledger_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
)

// direct is an event as the intake publishes it that does not enter it.
func direct(key, hash string) courier.Arrival {
	e := event(time.Now().UTC(), "trace of "+hash)
	e.IdempotencyKey, e.BodyHash, e.Payload = key, hash, []byte(`{"shipmentId":"shp_1"}`)
	return courier.Arrival{EnvelopeID: courier.DirectID(e.Source, key, hash), Attempt: 1, Event: e, Payload: courier.Payload{ShipmentID: "shp_1"}}
}

func inTx(t *testing.T, s *store.Store, fn func(tx *sql.Tx) error) {
	t.Helper()
	if err := s.Events.InTx(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// A key stands for the event that enters it first, by whichever way, and if that commits.
func TestEnter(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		enter := func(want []courier.Standing, arrivals ...courier.Arrival) func(tx *sql.Tx) error {
			return func(tx *sql.Tx) error {
				if got, err := l.Enter(t.Context(), sqlstore.SQLConn{C: tx}, arrivals); err != nil || !slices.Equal(got, want) {
					t.Errorf("the standings are %v, %v, want %v", got, err, want)
				}
				return nil
			}
		}
		const first, repeat, conflict = courier.StandingFirst, courier.StandingRepeat, courier.StandingConflict
		received := event(time.Now(), "trace")
		receive(t, l, received, "hash")
		inTx(t, s, enter([]courier.Standing{first, first, conflict, repeat, conflict},
			direct("b", "hash"), direct("a", "hash"), direct("b", "another"), direct(received.IdempotencyKey, "hash"), direct(received.IdempotencyKey, "another")))
		inTx(t, s, enter([]courier.Standing{first, conflict}, direct("a", "hash"), direct("a", "another")))
		given := errors.New("given up")
		if err := s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
			return errors.Join(enter([]courier.Standing{first}, direct("c", "hash"))(tx), given)
		}); !errors.Is(err, given) {
			t.Fatal(err)
		}
		inTx(t, s, enter([]courier.Standing{first}, direct("c", "another")))
	})
}

// What fails before it is entered is entered then, unless its key stands for another event, which stays
// as it is.
func TestConcludeDirect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		fails := func(a courier.Arrival, state eventing.State) {
			t.Helper()
			inTx(t, s, func(tx *sql.Tx) error {
				allowed, err := l.Conclude(t.Context(), sqlstore.SQLConn{C: tx}, eventing.Conclusion{
					Envelope: eventing.Envelope{Header: eventing.Header{ID: a.EnvelopeID}, Payload: a.Event.AppendJSON(nil)},
					State:    state, Attempts: 1, Err: errors.New("it failed"),
				}, time.Now())
				if !allowed {
					t.Errorf("%s is not concluded", a.EnvelopeID)
				}
				return err
			})
		}
		is := func(want courier.Status) {
			t.Helper()
			events, envelopes, err := l.Events(t.Context(), "evt_1", "")
			if err != nil || len(events) != 1 || events[0].Status != want || envelopes[0] != direct("a", "hash").EnvelopeID {
				t.Errorf("the ledger has %+v of %v, %v; want it %s", events, envelopes, err, want)
			}
		}
		fails(direct("a", "hash"), eventing.StateRetrying)
		is(courier.StatusFailed)
		fails(direct("a", "another"), eventing.StateDead)
		is(courier.StatusFailed)
		fails(direct("a", "hash"), eventing.StateDead)
		is(courier.StatusDeadLettered)

		// So is what came through the intake, and was sent again without its header.
		e := event(time.Now(), "trace")
		e.EventID, e.IdempotencyKey, e.Payload = "evt_2", "b", json.RawMessage(`{}`)
		receive(t, l, e, "hash")
		fails(courier.Arrival{EnvelopeID: courier.EventID(e.Source, e.IdempotencyKey), Event: e}, eventing.StateDead)
		if events, _, err := l.Events(t.Context(), "evt_2", ""); err != nil || len(events) != 1 || events[0].Status != courier.StatusDeadLettered {
			t.Errorf("the ledger has %+v, %v", events, err)
		}
	})
}
