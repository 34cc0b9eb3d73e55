package shipments

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit)) }

// receivedOnly is a ledger of which the statistics say that nothing is processed, as they do before a backlog is worked off.
const receivedOnly = `
INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at, trace_id, body_hash, status, first_seen_at, updated_at)
SELECT 'k' || n, md5(CAST(n AS text)), 'e' || n, 't', 's', 'shp', now(), now(), '', '', 'received', now(), now() FROM generate_series(1, 20000) AS n;
ANALYZE courier_ledger`

// No statement reads more of the ledger than the rows of its events, whatever the statistics say.
func TestPlansOfTheLedger(t *testing.T) {
	t.Parallel()
	address := testserver.PostgresURL(t)
	s := storetest.Migrated(t, address)
	if err := s.Postgres.InTx(t.Context(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), receivedOnly+`; SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
			return err
		}
		for name, statement := range map[string]string{"one": postgresOne, "lock": lockAll, "write": writeAll} {
			if _, err := tx.Exec(t.Context(), `PREPARE `+name+` AS `+statement); err != nil {
				return err
			}
			rows, err := tx.Query(t.Context(), `EXPLAIN EXECUTE `+name+`(`+strings.Repeat("NULL, ", parameters(statement)-1)+`NULL)`)
			if err != nil {
				return err
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			for _, line := range plan {
				if strings.Contains(line, " on courier_ledger") && strings.Contains(line, "Scan") && !strings.Contains(line, "courier_ledger_pkey") {
					t.Errorf("%s:\n%s", name, strings.Join(plan, "\n"))
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// parameters returns how many parameters a statement has.
func parameters(statement string) int {
	seen := regexp.MustCompile(`\$\d+`).FindAllString(statement, -1)
	slices.Sort(seen)
	return len(slices.Compact(seen))
}
