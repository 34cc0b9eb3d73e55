package main

import (
	"database/sql"
	"errors"
	"maps"
	"slices"
	"testing"
)

// The audit sees each way in which the tables can be wrong.
func TestAuditFindsFaults(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address, testConfig())
		w.setTariff("aurora", "s1", 20)
		w.setTariff("boreal", "s1", 20)
		for _, tenant := range []string{"aurora", "aurora", "boreal"} {
			w.closes(t.Context(), tenant, "s1")
		}
		w.waitUntilQuiet()
		if err := w.audit().err(); err != nil {
			t.Fatalf("nothing is wrong yet: %v", err)
		}
		const one = `(SELECT min(window_id) FROM windows)`
		for _, c := range []struct {
			name  string
			do    []string
			found []string
		}{
			{"settled twice", []string{`INSERT INTO settlements SELECT * FROM settlements WHERE window_id = ` + one}, []string{badBills, doubled}},
			{"settled never", []string{`DELETE FROM settlements WHERE window_id = ` + one}, []string{badBills, lost}},
			{
				"settled and billed never", []string{`DELETE FROM settlements WHERE tenant_id = 'boreal'`, `DELETE FROM bills WHERE tenant_id = 'boreal'`},
				[]string{lost},
			},
			{"window gone", []string{`DELETE FROM windows WHERE window_id = ` + one}, []string{foreign}},
			{"statistic twice", []string{`INSERT INTO statistics SELECT * FROM statistics WHERE window_id = ` + one}, []string{badStats}},
			{"statistic gone", []string{`DELETE FROM statistics WHERE window_id = ` + one}, []string{badStats}},
			{"billed twice", []string{`UPDATE bills SET windows = windows + 1, cents = cents + cents WHERE tenant_id = 'boreal'`}, []string{badBills}},
			{"billed too much", []string{`UPDATE bills SET cents = cents + 1 WHERE tenant_id = 'boreal'`}, []string{badBills}},
			{"inbox row gone", []string{`DELETE FROM processed_events WHERE consumer_name = 'billing-report'`}, []string{unnoted}},
			{
				"two consumers", []string{`INSERT INTO processed_events (event_id, consumer_name) SELECT event_id, 'other' FROM event_outbox`},
				[]string{unnoted},
			},
			{"pending", []string{`UPDATE event_outbox SET status = 'pending'`}, []string{underWay}},
			{
				"retrying", []string{`INSERT INTO event_deliveries (consumer_name, event_id, event_type, partition, state, payload)
					VALUES ('settlement', 'e', 't', 0, 'retrying', '{}')`},
				[]string{underWay},
			},
			{
				"dead", []string{
					`INSERT INTO dead_letter_events (event_id, event_type, payload, error) VALUES ('e', 't', '{}', '')`,
					`INSERT INTO dead_letter_consumers (event_id, consumer_name, stage, reason_code, reason_message, attempt_count, attempt_history, status)
						VALUES ('e', 'settlement', 'handle', 'REJECTED', '', 1, '[]', 'pending')`,
				},
				[]string{inTrouble},
			},
		} {
			if err := w.db.events.InTx(t.Context(), func(tx *sql.Tx) error {
				for _, statement := range c.do {
					if _, err := tx.ExecContext(t.Context(), statement); err != nil {
						return err
					}
				}
				f, err := audit(t.Context(), tx)
				if got := slices.Sorted(maps.Keys(f)); err == nil && (!slices.Equal(got, c.found) || f.err() == nil) {
					t.Errorf("%s: the audit objects to %q, want %q", c.name, got, c.found)
				}
				return errors.Join(err, errUndo)
			}); err.Error() != errUndo.Error() {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
	})
}

var errUndo = errors.New("undo it all")
