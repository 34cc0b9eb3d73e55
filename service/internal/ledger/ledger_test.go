package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit)) }

const retention = 30 * 24 * time.Hour

func open(t *testing.T) (*store.Store, *ledger.Ledger) {
	t.Helper()
	return openAt(t, "sqlite:"+filepath.Join(t.TempDir(), "waybill.db"))
}

func openAt(t testing.TB, address string) (*store.Store, *ledger.Ledger) {
	t.Helper()
	s := storetest.Migrated(t, address)
	return s, ledger.New(s, retention)
}

func event(now time.Time, trace string) courier.Event {
	return courier.Event{
		EventID: "evt_1", EventType: "parcel.scan", Source: "courier-x", IdempotencyKey: "courier-x:evt_1",
		TraceID: trace, OccurredAt: now, ReceivedAt: now,
	}
}

// receive returns the receipt of an event.
func receive(t *testing.T, l *ledger.Ledger, e courier.Event, hash string) intake.Receipt {
	t.Helper()
	receipts, err := l.Receiver().Receive(t.Context(), []*intake.Entry{entry(e, hash)})
	if err != nil {
		t.Fatal(err)
	}
	return receipts[0]
}

func entry(e courier.Event, hash string) *intake.Entry {
	header := eventing.Header{ID: courier.EventID(e.Source, e.IdempotencyKey), Type: e.EventType, IdempotencyKey: e.IdempotencyKey}
	envelope := eventing.Envelope{Header: header, Payload: []byte(`{}`)}
	row, err := eventing.OutboxConfig{}.Row(context.Background(), envelope)
	if err != nil {
		panic(err)
	}
	return &intake.Entry{Event: e, ShipmentID: "shp_1", BodyHash: hash, Envelope: envelope, Row: row}
}

func exec(t *testing.T, s *store.Store, statement string, args ...any) {
	t.Helper()
	if err := s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), statement, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A row goes only when nothing remembers its event any more: were it forgotten earlier,
// the same key would be accepted as new, and then dropped.
func TestSweepKeepsWhatIsRemembered(t *testing.T) {
	t.Parallel()
	s, l := open(t)
	now := time.Now()
	e := event(now, "trace")
	receive(t, l, e, "body")
	id := courier.EventID(e.Source, e.IdempotencyKey)
	if err := s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := l.Conclude(t.Context(), sqlstore.SQLConn{C: tx}, eventing.Conclusion{Envelope: eventing.Envelope{Header: eventing.Header{ID: id, IdempotencyKey: e.IdempotencyKey}}, State: eventing.StateDead, Attempts: 1}, now)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	at := now
	sweep := func(what string, want int64) {
		t.Helper()
		if n, err := l.Sweep(t.Context(), at, 10); err != nil || n != want {
			t.Errorf("%s: %d rows went, %v, want %d", what, n, err, want)
		}
		at = at.Add(time.Hour)
	}
	sweep("before its time", 0)
	at = at.Add(retention)
	exec(t, s, `INSERT INTO dead_letter_events (event_id, event_type, payload, error) VALUES ($1, '', '', '')`, id)
	exec(t, s, `INSERT INTO dead_letter_consumers (event_id, consumer_name, stage, reason_code, reason_message, attempt_count, attempt_history, status, resolution)
		VALUES ($1, 'c', 'handle', 'R', '', 1, '[]', 'closed', 'discarded')`, id)
	sweep("while its dead letter is kept, closed or not", 0)
	exec(t, s, `DELETE FROM dead_letter_consumers`)
	exec(t, s, `INSERT INTO processed_events (event_id, consumer_name) VALUES ($1, 'c')`, id)
	sweep("while the inbox remembers it", 0)
	exec(t, s, `DELETE FROM processed_events`)
	sweep("while it has yet to be sent", 0)
	exec(t, s, `UPDATE event_outbox SET status = 'sent'`)
	sweep("when nothing does", 1)
}

// On Postgres, sweeps go through the ledger from the oldest row on, several processes together. What they had to leave they see again
// at once if it has just come of age, and else after an hour or when the clock was set back.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	s, l := openAt(t, testserver.PostgresURL(t))
	now := time.Now()
	insert := func(key string, age time.Duration) {
		t.Helper()
		exec(t, s, `INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at, trace_id, body_hash,
			status, first_seen_at, updated_at, expires_at) VALUES ($1, $1, 'e', 't', 's', 'shp', $2, $2, '', '', 'processed', $2, $2, $3)`,
			key, s.Time(now.Add(-age)), s.Time(now.Add(-time.Minute)))
		exec(t, s, `INSERT INTO processed_events (event_id, consumer_name) VALUES ($1, 'c')`, key) // it stays
	}
	forget := func(keys ...any) {
		t.Helper()
		for _, key := range keys {
			exec(t, s, `DELETE FROM processed_events WHERE event_id = $1`, key)
		}
	}
	sweep := func(what string, at time.Time, want int64) {
		t.Helper()
		if n, err := l.Sweep(t.Context(), at, 2); err != nil || n != want {
			t.Errorf("%s: %d rows went, %v, want %d", what, n, err, want)
		}
	}
	for n := range 5 {
		insert(fmt.Sprint("old ", n), retention+10*time.Minute+time.Duration(n))
	}
	insert("young", retention)
	forget("old 1", "old 3", "old 4")
	sweep("as many as are asked for", now, 2)
	sweep("the rest", now.Add(time.Second), 1)
	forget("young", "old 0")
	sweep("of what has come of age", now.Add(time.Minute), 1)
	sweep("soon after", now.Add(59*time.Minute), 0)
	sweep("an hour after", now.Add(time.Hour), 1)
	forget("old 2")
	sweep("with the clock set back", now, 1)

	insert("locked", retention+time.Hour)
	insert("free", retention+time.Hour)
	forget("locked", "free")
	if err := s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM courier_ledger WHERE idempotency_key = 'locked' FOR UPDATE`); err != nil {
			return err
		}
		sweep("while another is at it", now.Add(2*time.Hour), 1)
		return nil
	}); err != nil {
		t.Error(err)
	}
}
