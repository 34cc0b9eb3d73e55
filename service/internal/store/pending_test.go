package store_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// What is pending is counted from its index, up to the limit, with and without a partition.
func TestPending(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "waybill.db"), "postgres": testserver.PostgresURL(t)} {
		t.Run(name, func(t *testing.T) {
			s := storetest.Migrated(t, address)
			insert := func(tx *sql.Tx, id int, status, partition string) error {
				_, err := tx.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO event_outbox (id, event_id, event_type, payload, status, partition) VALUES ('%[1]d', '%[1]d', 't', '{}', '%[2]s', %[3]s)`, id, status, partition))
				return err
			}
			if err := s.Events.InTx(t.Context(), func(tx *sql.Tx) error {
				for i := range 100 {
					status, partition := "sent", "7"
					switch {
					case i < 3:
						status, partition = "pending", "NULL"
					case i < 10:
						status = "pending"
					}
					if err := insert(tx, i, status, partition); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for limit, want := range map[int64]int64{1000: 10, 10: 10} {
				if n, err := s.Pending(t.Context(), limit); err != nil || n != want {
					t.Errorf("up to %d: %d, %v; want %d", limit, n, err, want)
				}
			}
			if n, err := s.Pending(t.Context(), 5); err != nil || n < 5 || n > 8 {
				t.Errorf("up to 5: %d, %v", n, err)
			}
			// All since the first, for those in the middle are sent.
			if n, err := s.PendingAtMost(t.Context()); err != nil || n != 100 {
				t.Errorf("at most %d, %v; want 100", n, err)
			}
			for _, plan := range store.PendingPlans(t, s) {
				if strings.Contains(plan, "event_outbox") && !strings.Contains(plan, "event_outbox_pending") && !strings.Contains(plan, "event_outbox_unadopted") &&
					!strings.Contains(plan, "event_outbox_pkey") && plan != "SEARCH event_outbox" {
					t.Errorf("the plan: %s", plan)
				}
			}
		})
	}
}
