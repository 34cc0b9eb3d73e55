package main

import (
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// The audit sees each way in which the tables can be wrong.
func TestAuditFindsFaults(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		w.underReview()
		l := w.underReview()
		w.clean()
		of := `case_id = '` + l.caseID + `'`
		const one = `(SELECT min(event_id) FROM event_outbox)`
		for _, c := range []struct {
			name  string
			do    string
			found []string
		}{
			{"transition twice", `INSERT INTO case_transitions SELECT * FROM case_transitions WHERE new_status = 'validation' AND ` + of, []string{broken, doubled, unmade}},
			{"engine's transition twice", `INSERT INTO case_transitions SELECT * FROM case_transitions WHERE new_status = 'under_review' AND ` + of, []string{broken, doubled, unsaid}},
			{"last transition gone", `DELETE FROM case_transitions WHERE new_status = 'under_review' AND ` + of, []string{broken, unmade}},
			{"person's transition gone", `DELETE FROM case_transitions WHERE new_status = 'validation' AND ` + of, []string{broken, unmade}},
			{"all transitions gone", `DELETE FROM case_transitions WHERE ` + of, []string{unmade, unstarted}},
			{"out of order", `UPDATE case_transitions SET position = 5 - position WHERE position IN (2, 3) AND ` + of, []string{broken, misplaced}},
			{"impossible", `UPDATE case_transitions SET previous_status = 'closed' WHERE new_status = 'validation' AND ` + of, []string{broken, illegalOne, unmade}},
			{"status changed by hand", `UPDATE cases SET status = 'approved' WHERE ` + of, []string{broken}},
			{"pending", `UPDATE event_outbox SET status = 'pending'`, []string{underWay}},
			{
				"parked", `INSERT INTO event_deliveries (consumer_name, event_id, event_type, partition, state, payload) VALUES ('audit_log', 'e', 't', 0, 'parked', '{}')`,
				[]string{underWay},
			},
			{
				"dead", `INSERT INTO dead_letter_events (event_id, event_type, payload, error) VALUES ('e', 't', '{}', ''); INSERT INTO dead_letter_consumers (event_id, consumer_name, stage, reason_code, reason_message, attempt_count, attempt_history, status)
					VALUES ('e', 'audit_log', 'handle', 'REJECTED', '', 1, '[]', 'pending')`,
				[]string{inTrouble},
			},
			{"never logged", `UPDATE event_outbox SET event_id = 'e' WHERE event_id = ` + one, []string{unlogged}},
			{"letter not sent", `UPDATE notifications SET status = 'failed' WHERE notification_id = (SELECT min(notification_id) FROM notifications)`, []string{unsent}},
			{"score", `UPDATE risk_profiles SET score = 17 WHERE ` + of, []string{misjudged}},
			{"signal gone", `INSERT INTO fraud_signals (signal_id, case_id, signal_type, severity, weight) VALUES ('s', '` + l.caseID + `', 'OTHER', 'LOW', 1)`, []string{misjudged}},
		} {
			f := w.ifDone(c.do)
			if got := slices.Sorted(maps.Keys(f)); !slices.Equal(got, slices.Sorted(slices.Values(c.found))) || f.err() == nil {
				t.Errorf("%s: the audit objects to %q, want %q", c.name, got, c.found)
			}
		}
		w.clean()

		// What consumers know is looked up by the library, outside of this transaction.
		w.exec(`DELETE FROM processed_events WHERE consumer_name = 'fraud_engine' AND event_id = (SELECT min(event_id) FROM processed_events WHERE consumer_name = 'fraud_engine')`)
		w.clock.skip(time.Hour)
		if f := w.found(); len(f) != 1 || len(f[unhandled]) != 1 {
			t.Errorf("not processed: the audit objects to %v", f.err())
		}
	})
}

var errUndo = errors.New("undo it all")

// ifDone returns what the audit finds after a statement, which is undone.
func (w world) ifDone(statement string) (f findings) {
	w.Helper()
	err := w.db.events.InTx(w.Context(), func(tx *sql.Tx) error {
		for one := range strings.SplitSeq(statement, "; ") {
			if _, err := tx.ExecContext(w.Context(), one); err != nil {
				return err
			}
		}
		var err error
		f, err = auditTables(w.Context(), tx, time.Time{})
		return errors.Join(err, errUndo)
	})
	if err.Error() != errUndo.Error() {
		w.Fatalf("%s: %v", statement, err)
	}
	return f
}
