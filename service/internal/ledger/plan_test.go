package ledger_test

import (
	"database/sql"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
)

// manyRows are a ledger most of which is received or processed.
const manyRows = `
INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at, trace_id, body_hash, status, first_seen_at, updated_at, expires_at)
WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 20000)
SELECT 'k' || n, 'i' || n, 'e' || n, 't', 's', 'shp', $1, $1, '', '', CASE n % 2 WHEN 0 THEN 'received' ELSE 'processed' END, $1, $1, CASE n % 2 WHEN 0 THEN NULL ELSE $2 END
FROM number`

// A sweep reads what has expired, and what is stuck, and not all of the ledger.
func TestPlanOfTheSweep(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, _ *ledger.Ledger) {
		now := time.Now()
		rows, statement, args := manyRows, ledger.SweepSQLite, []any{s.Time(now), 100, s.Time(now.Add(-time.Hour))}
		indexes := []string{"courier_ledger_expiry", "courier_ledger_status"}
		if !s.Embedded {
			indexes, statement, args = []string{"courier_ledger_seen", "Tid Scan on courier_ledger"}, ledger.SweepPostgres, append(args, nil)
			rows = strings.NewReplacer("$1", "$1::timestamptz", "$2", "$2::timestamptz").Replace(rows)
		}
		exec(t, s, rows, s.Time(now), s.Time(now.Add(retention)))
		exec(t, s, `ANALYZE`)
		text := planOf(t, s, statement, args...)
		for _, index := range indexes {
			if !strings.Contains(text, index) {
				t.Errorf("without %s:\n%s", index, text)
			}
		}
		if strings.Contains(text, "SCAN l") || strings.Contains(text, "TEMP B-TREE") || strings.Contains(text, "Seq Scan on courier_ledger") {
			t.Errorf("plan:\n%s", text)
		}
	})
}

// scanOf is how SQLite says that it reads a table or all of an index: of a list, or of a query's rows, that is well.
var scanOf = regexp.MustCompile(`SCAN (l|courier_ledger|event_outbox|event_deliveries|dead_letter_events)\b`)

// planOf returns what the database does for a statement.
func planOf(t *testing.T, s *store.Store, statement string, args ...any) string {
	t.Helper()
	explain := "EXPLAIN QUERY PLAN "
	if !s.Embedded {
		explain = "EXPLAIN "
	}
	lines, err := s.Read.QueryContext(t.Context(), explain+statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	var plan strings.Builder
	for lines.Next() {
		columns, _ := lines.Columns()
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.RawBytes)
		}
		if err := lines.Scan(values...); err != nil {
			t.Fatal(err)
		}
		plan.Write(append(*values[len(values)-1].(*sql.RawBytes), '\n'))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

// manySent are an outbox most of which is sent.
const manySent = `
INSERT INTO event_outbox (id, event_id, event_type, payload, status, sent_at)
WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 20000)
SELECT 'i' || n, 'i' || n, 't', '{}', CASE n % 20 WHEN 0 THEN 'pending' ELSE 'sent' END, $1 FROM number`

// Names and events are found by indexes, however much there is.
func TestPlanOfLookUps(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		all := []string{manyRows, manySent}
		if !s.Embedded {
			for i := range all {
				all[i] = strings.NewReplacer("$1", "$1::timestamptz", "$2", "$2::timestamptz").Replace(all[i])
			}
		}
		now := s.Time(time.Now())
		exec(t, s, all[0], now, now)
		exec(t, s, all[1], now)
		exec(t, s, `ANALYZE`)
		for statement, args := range l.LookUps([]string{"i1", "i2", "i3"}) {
			if text := planOf(t, s, statement, args...); strings.Contains(text, "Seq Scan on event_outbox") || strings.Contains(text, "Seq Scan on courier_ledger") ||
				scanOf.MatchString(text) {
				t.Errorf("%s: the plan is\n%s", statement, text)
			}
		}
	})
}
