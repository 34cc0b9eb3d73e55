package ledger

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// Of the 25 pairs of states a run can make just those that the documented steps lead to; all others leave the
// row as it was, and say so.
func TestTransitions(t *testing.T) {
	t.Parallel()
	states := []courier.Status{courier.StatusReceived, courier.StatusProcessing, courier.StatusProcessed, courier.StatusFailed, courier.StatusDeadLettered}
	ends := map[courier.Status]bool{courier.StatusProcessed: true, courier.StatusFailed: true, courier.StatusDeadLettered: true}
	onEach(t, func(t *testing.T, s *store.Store, l *Ledger) {
		for _, from := range states {
			for _, to := range states {
				want := from != courier.StatusProcessed && ends[to]
				if got := Concludes(from, to); got != want {
					t.Errorf("the steps lead from %s to %s: %t, want %t", from, to, got, want)
				}
				if err := s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
					id := string(from) + " to " + string(to)
					if _, err := tx.ExecContext(t.Context(), `INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id,
						occurred_at, received_at, trace_id, body_hash, status, first_seen_at, updated_at) VALUES ($1, $1, '', '', '', '', $2, $2, '', '', $3, $2, $2)`,
						id, s.Time(time.Now()), string(from)); err != nil {
						return err
					}
					allowed, err := l.move(t.Context(), sqlstore.SQLConn{C: tx}, &eventing.Header{ID: id, IdempotencyKey: id}, to, 1, "CODE", "message", s.Time(time.Now()), nil)
					if err != nil {
						return err
					}
					var now courier.Status
					if err := tx.QueryRowContext(t.Context(), `SELECT status FROM courier_ledger WHERE envelope_id = $1`, id).Scan(&now); err != nil {
						return err
					}
					if allowed != want || want && now != to || !want && now != from {
						t.Errorf("%s: allowed %t, and it is %s", id, allowed, now)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
			allowed, err := l.move(t.Context(), sqlstore.SQLConn{C: tx}, &eventing.Header{ID: "not of the intake"}, courier.StatusFailed, 1, nil, nil, s.Time(time.Now()), nil)
			if err == nil && !allowed {
				t.Error("what has no row is refused")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// onEach runs a test on an empty store of each kind.
func onEach(t *testing.T, test func(t *testing.T, s *store.Store, l *Ledger)) {
	run := func(address func(*testing.T) string) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			s := storetest.Migrated(t, address(t))
			test(t, s, New(s, time.Hour))
		}
	}
	t.Run("sqlite", run(func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "waybill.db") }))
	t.Run("postgres", run(func(t *testing.T) string { return testserver.PostgresURL(t) }))
}
