package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing/eventingtest"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/internal/sqltest"
	"github.com/waybill-go/waybill/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	b := backend
	if !testkit.Long() {
		b.CrashesPerPoint = 2
	}
	eventingtest.TestStore(t, b)
}

func BenchmarkStore(b *testing.B) { eventingtest.BenchmarkStore(b, backend) }

var backend = eventingtest.Backend[*sql.Tx]{
	Open:         func(tb testing.TB) eventingtest.Database[*sql.Tx] { return open(tb) },
	Capabilities: eventingtest.Capabilities{BinaryPayload: true},
}

func open(tb testing.TB) sqltest.Database[*sql.Tx] {
	tb.Helper()
	s, err := sqlitestore.Open(context.Background(), filepath.Join(tb.TempDir(), "waybill.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	if _, err := s.DB().ExecContext(context.Background(), sqltest.EffectTable); err != nil {
		tb.Fatal(err)
	}
	return sqltest.Database[*sql.Tx]{
		Store: s, DB: s.DB(), Order: "rowid",
		InsertIn: func(ctx context.Context, tx *sql.Tx, consumer, eventID string) error {
			_, err := tx.ExecContext(ctx, sqltest.InsertEffect, consumer, eventID)
			return err
		},
	}
}

func TestOpenWhereThereIsNoFolder(t *testing.T) {
	t.Parallel()
	_, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "missing", "x.db"))
	if err == nil || !strings.Contains(err.Error(), "is the folder there") {
		t.Errorf("the error says what to look at, not %v", err)
	}
}

// Appends do not enter rows into the index of event ids, so each look by one has one of these conditions.
func TestLooksByEventID(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, which := range []string{"status <> 'pending'", "(status <> 'pending' OR id <> event_id)", "id <> event_id AND status = 'pending'"} {
		var id, parent, unused int
		var plan string
		if err := d.DB.QueryRowContext(t.Context(), "EXPLAIN QUERY PLAN SELECT payload FROM event_outbox WHERE event_id = $1 AND "+which, "e-1").Scan(&id, &parent, &unused, &plan); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, "event_outbox_event (event_id=?)") {
			t.Errorf("%s: %s", which, plan)
		}
	}
}

// What may go is found by indexes, however much is kept: a look holds up all who write.
func TestPruningReadsNoTable(t *testing.T) {
	t.Parallel()
	d := open(t)
	for table, condition := range map[string]string{
		"event_outbox": sqlstore.OldOutbox, "processed_events": sqlstore.OldInbox, "dead_letter_consumers": sqlstore.OldDeadLetters,
	} {
		t.Run(table, func(t *testing.T) {
			rows, err := d.DB.QueryContext(t.Context(), "EXPLAIN QUERY PLAN SELECT rowid FROM "+table+" t WHERE "+condition, "2026-01-01")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var id, parent, unused int
				var plan string
				if err := rows.Scan(&id, &parent, &unused, &plan); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(plan, "SCAN ") {
					t.Error(plan)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// All of the outbox is read for an expired dead letter only if it holds its key up there. Here that fails.
func TestExpiryReadsNoOutbox(t *testing.T) {
	t.Parallel()
	d := open(t)
	exec := func(statement string) {
		t.Helper()
		if _, err := d.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	expired := func() (count int, err error) {
		err = d.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM (`+sqlstore.ExpiredDeadLetters+`)`, "2026-01-01", 10).Scan(&count)
		return count, err
	}
	exec(`ALTER TABLE event_outbox RENAME TO other`)
	exec(`CREATE VIEW event_outbox AS SELECT abs(-9223372036854775807 - 1) AS ordering_key, 'pending' AS status, '' AS event_id`)
	exec(`INSERT INTO dead_letter_events (event_id, event_type, payload, error) VALUES ('e', 't', '{}', '')`)
	exec(`INSERT INTO dead_letter_consumers (event_id, consumer_name, stage, reason_code, reason_message, attempt_count, attempt_history, status, ordering_key, expires_at)
		VALUES ('e', 'c', 'handle', 'R', '', 1, '[]', 'pending', 'k', '2020-01-01')`)
	if count, err := expired(); err != nil || count != 1 {
		t.Errorf("%d expired, %v", count, err)
	}
	exec(`UPDATE dead_letter_consumers SET holds_key = 'k'`)
	if _, err := expired(); err == nil || !strings.Contains(err.Error(), "integer overflow") {
		t.Errorf("the outbox is not read: %v", err)
	}
}
