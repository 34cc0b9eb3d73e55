package ledger_test

import (
	"database/sql"
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
		rows, statement, args := manyRows, "EXPLAIN QUERY PLAN "+ledger.SweepSQLite, []any{s.Time(now), 100, s.Time(now.Add(-time.Hour))}
		indexes := []string{"courier_ledger_expiry", "courier_ledger_status"}
		if !s.Embedded {
			indexes, statement, args = []string{"courier_ledger_seen"}, "EXPLAIN "+ledger.SweepPostgres, append(args, nil)
			rows = strings.NewReplacer("$1", "$1::timestamptz", "$2", "$2::timestamptz").Replace(rows)
		}
		exec(t, s, rows, s.Time(now), s.Time(now.Add(retention)))
		exec(t, s, `ANALYZE`)
		var plan strings.Builder
		lines, err := s.Read.QueryContext(t.Context(), statement, args...)
		if err != nil {
			t.Fatal(err)
		}
		defer lines.Close()
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
		text := plan.String()
		for _, index := range indexes {
			if !strings.Contains(text, index) {
				t.Errorf("without %s:\n%s", index, text)
			}
		}
		if err := lines.Err(); err != nil || strings.Contains(text, "SCAN l") || strings.Contains(text, "TEMP B-TREE") || strings.Contains(text, "Seq Scan on courier_ledger") {
			t.Errorf("%v, plan:\n%s", err, text)
		}
	})
}
