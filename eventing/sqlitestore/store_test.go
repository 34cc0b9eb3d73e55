package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
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

// An outbox that is large does not hold up the expiry of each dead letter: before, it was read for each, in 14 s here.
func TestExpiryReadsNoOutbox(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, statement := range []string{
		`INSERT INTO event_outbox (id, event_id, event_type, payload, ordering_key, partition)
			WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 100000) SELECT 'i' || n, 'i' || n, 't', '{}', 'k' || n, 1 FROM number`,
		`INSERT INTO dead_letter_events (event_id, event_type, payload, error)
			WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1000) SELECT 'd' || n, 't', '{}', '' FROM number`,
		`INSERT INTO dead_letter_consumers (event_id, consumer_name, stage, reason_code, reason_message, attempt_count, attempt_history, status, expires_at)
			SELECT event_id, 'c', 'handle', 'R', '', 1, '[]', 'pending', '2020-01-01' FROM dead_letter_events`,
	} {
		if _, err := d.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	n, err := d.Prune(t.Context(), eventing.PruneRequest{Now: began, SentBefore: began, Limit: 1000})
	if took := time.Since(began); err != nil || n.Expired != 1000 || took > 5*time.Second {
		t.Errorf("%d expired, in %v, %v", n.Expired, took, err)
	}
}
