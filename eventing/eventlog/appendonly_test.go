package eventlog_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/eventing/eventlog"
)

func TestAppendOnly(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		b.record(t, l, event(aUUID, "case_created", noon))
		before := b.row(t, aUUID)
		refused := []string{
			`UPDATE events SET status = 'pending'`, `UPDATE events SET payload = '{"a": 1}' WHERE event_type = 'case_created'`, `DELETE FROM events`,
			`INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload) VALUES ('other', '` + aUUID + `', '', '` + aUUID + `', '{}')
				ON CONFLICT (event_id) DO UPDATE SET event_type = 'other'`,
		}
		if b.dialect == eventlog.Postgres {
			refused = append(refused, `TRUNCATE events`, `SET waybill.prune_events = 'off'; DELETE FROM events`)
		}
		for _, statement := range refused {
			_, err := b.db.ExecContext(ctx, statement)
			if err == nil && strings.HasPrefix(statement, "INSERT") && b.dialect == eventlog.SQLite {
				continue // ignored before it becomes an update
			}
			if err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s: %v", statement, err)
			}
		}
		if after := b.row(t, aUUID); after["status"] != before["status"] || after["payload"] != before["payload"] || after["event_type"] != before["event_type"] {
			t.Errorf("the row was changed to %v", after)
		}
		b.empty(t)
		if n := len(b.entries(t, l, eventlog.Filter{})); n != 0 {
			t.Errorf("who says so deletes; %d entries are left", n)
		}
		b.record(t, l, event(aUUID, "case_created", noon), event("old", "synced", noon.AddDate(-1, 0, 0)))
		refuses := func(when string) {
			t.Helper()
			if _, err := b.db.ExecContext(ctx, `DELETE FROM events`); err == nil {
				t.Errorf("%s, leave to delete has ended with its transaction", when)
			}
		}
		b.db.SetMaxOpenConns(1)
		refuses("by hand")
		if n := b.prune(t, b.log(t, framework()...), noon, 10); n != 1 {
			t.Errorf("removed %d events", n)
		}
		refuses("after the pruner")
	})
}

// Leave to delete is none to change.
func TestNoUpdateByLeave(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		b.record(t, b.log(t), event(aUUID, "case_created", noon))
		leave := `SET LOCAL waybill.prune_events = 'on'`
		if b.dialect == eventlog.SQLite {
			leave = `INSERT INTO events_prune VALUES (1)`
		}
		err := b.inTx(func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, leave); err != nil {
				t.Error(err)
			}
			_, err := tx.ExecContext(ctx, `UPDATE events SET status = 'pending'`)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("got %v", err)
		}
	})
}

// SQLite's REPLACE would delete the old row without asking a trigger.
func TestNoReplace(t *testing.T) {
	t.Parallel()
	b := sqliteBase(t)
	l := b.log(t)
	b.record(t, l, event(aUUID, "case_created", noon))
	insert := `INSERT OR REPLACE INTO events (id, event_type, event_id, aggregate_type, aggregate_id, payload) VALUES ($1, 'other', $2, '', $2, '{}')`
	b.exec(t, insert, eventlog.UUID("row"), aUUID)
	row := b.entries(t, l, eventlog.Filter{})[0].RowID
	if _, err := b.db.ExecContext(ctx, insert, row, eventlog.UUID("another")); err == nil || !strings.Contains(err.Error(), "append-only") {
		t.Errorf("another event in the place of a row: %v", err)
	}
	if entries := b.entries(t, l, eventlog.Filter{}); len(entries) != 1 || entries[0].Type != "case_created" {
		t.Errorf("the log has %+v", entries)
	}
}
