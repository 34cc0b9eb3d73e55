package store_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// A plan that is made while a table has a few rows is one for a table of millions, too.
func TestPlansOfSmallTables(t *testing.T) {
	t.Parallel()
	s := storetest.Migrated(t, testserver.PostgresURL(t))
	if _, err := s.Read.ExecContext(t.Context(), `
INSERT INTO processed_events (event_id, consumer_name) SELECT 'e' || n, 'c' FROM generate_series(1, 50) AS n;
ANALYZE processed_events`); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]*pgstore.Store{"intake": s.Intake, "others": s.Postgres} {
		for _, statement := range []string{
			`SELECT 1 FROM processed_events WHERE event_id = 'e1' AND consumer_name = 'c'`,
			`SELECT 1 FROM processed_events WHERE event_id = ANY(ARRAY['e1', 'e2', 'e3', 'e4', 'e5', 'e6', 'e7', 'e8', 'e9'])`,
		} {
			if err := of.InTx(t.Context(), func(tx pgx.Tx) error {
				rows, err := tx.Query(t.Context(), `EXPLAIN `+statement)
				if err != nil {
					return err
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "Index Cond") {
					t.Errorf("%s:\n%s", name, plan)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
