package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
)

// An event has its courier's name for as long as outbox, retries or dead letters have its envelope.
func TestNames(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		now := time.Now()
		list := entries(now, "trace ", 1, 2)
		if _, err := l.Receiver().Receive(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		id := list[0].Envelope.ID
		want := ledger.Name{EventID: "evt_0001", Source: list[0].Event.Source, ShipmentID: list[0].ShipmentID}
		check := func(what string, known bool, envelopes ...string) {
			t.Helper()
			names, err := l.Names(t.Context(), envelopes)
			if got, ok := names[id]; err != nil || ok != known || known && got != want {
				t.Errorf("%s: %+v, %v; want %+v: %v", what, names, err, want, known)
			}
		}
		check("pending", true, id)
		check("none", false)
		check("another's", false, list[1].Envelope.ID)
		many := []string{id, id, "", "no id"}
		for n := range 1200 {
			many = append(many, fmt.Sprint("unknown ", n))
		}
		check("among many", true, many...)
		exec(t, s, `UPDATE event_outbox SET status = 'sent', sent_at = $1`, s.Time(now))
		check("sent", true, id)
		exec(t, s, `INSERT INTO event_deliveries (consumer_name, event_id, event_type, partition, state, payload) SELECT 'c', event_id, event_type, 0, 'retrying', payload FROM event_outbox`)
		exec(t, s, `DELETE FROM event_outbox`)
		check("retrying", true, id)
		exec(t, s, `INSERT INTO dead_letter_events (event_id, event_type, payload, error) SELECT event_id, event_type, payload, '' FROM event_deliveries`)
		exec(t, s, `DELETE FROM event_deliveries`)
		check("dead", true, id)
		exec(t, s, `UPDATE courier_ledger SET envelope_id = 'of another body' WHERE event_id = 'evt_0001'`)
		check("a key that stands for another event", false, id)
		exec(t, s, `UPDATE courier_ledger SET envelope_id = $1 WHERE event_id = 'evt_0001'`, id)
		exec(t, s, `UPDATE dead_letter_events SET payload = 'not an envelope' WHERE event_id = $1`, id)
		check("what nobody can read", false, id)
	})
}
