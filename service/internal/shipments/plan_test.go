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

const received = `
INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at, trace_id, body_hash, status, first_seen_at, updated_at)
SELECT 'k' || n, md5(CAST(n AS text)), 'e' || n, 't', 's', 'shp', now(), now(), '', '', 'received', now(), now() FROM generate_series(1, `

// contents are what the tables have in them when the statements are planned.
var contents = map[string]string{
	"nothing": ``,
	"a few": received + `9) AS n;
INSERT INTO active_shipments (shipment_id, last_event_id, last_event_type, last_event_at, last_event_key, created_at, updated_at)
SELECT 'shp' || n, '', '', now(), '', now(), now() FROM generate_series(1, 9) AS n;
ANALYZE courier_ledger, active_shipments`,
	"a few processed": received + `9) AS n;
UPDATE courier_ledger SET status = 'processed';
ANALYZE courier_ledger, active_shipments`,
	// As before a backlog is worked off: the statistics say that nothing is processed.
	"received only": received + `20000) AS n;
ANALYZE courier_ledger`,
}

// No statement reads more than the rows of its events and shipments, whatever was there when it was planned.
func TestPlans(t *testing.T) {
	t.Parallel()
	for name, rows := range contents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.Migrated(t, testserver.PostgresURL(t))
			if err := s.Postgres.InTx(t.Context(), func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), rows+`; SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
					return err
				}
				for name, statement := range map[string]string{"one": postgresOne, "lock": lockAll, "read": selectAll, "write": writeAll} {
					if _, err := tx.Exec(t.Context(), `PREPARE `+name+` AS `+statement); err != nil {
						return err
					}
					found, err := tx.Query(t.Context(), `EXPLAIN EXECUTE `+name+`(`+strings.Repeat("NULL, ", parameters(statement)-1)+`NULL)`)
					if err != nil {
						return err
					}
					plan, err := pgx.CollectRows(found, pgx.RowTo[string])
					if err != nil {
						return err
					}
					for i, line := range plan {
						if readsTable.MatchString(line) && !byKey.MatchString(plan[i+1]) {
							t.Errorf("%s:\n%s", name, strings.Join(plan, "\n"))
						}
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A plan that reads a table, and the next line of one that reads it by its key.
var (
	readsTable = regexp.MustCompile(`(Seq|Index|Index Only|Bitmap Heap) Scan (using \w+ )?on (courier_ledger|active_shipments)\b`)
	byKey      = regexp.MustCompile(`(Index|Recheck) Cond: .*(idempotency_key|shipment_id)`)
)

// parameters returns how many parameters a statement has.
func parameters(statement string) int {
	seen := regexp.MustCompile(`\$\d+`).FindAllString(statement, -1)
	slices.Sort(seen)
	return len(slices.Compact(seen))
}
