package eventlog_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/waybill-go/waybill/eventing/eventlog"
)

// Each role has the privileges that docs/eventlog.md names, and needs no more.
func TestRoles(t *testing.T) {
	t.Parallel()
	b := postgresBase(t)
	l := b.log(t, framework()...)
	grants := map[string]string{
		"waybill_test_recorder": "GRANT INSERT, SELECT (event_id, metadata) ON events TO waybill_test_recorder",
		"waybill_test_reader":   "GRANT SELECT ON events TO waybill_test_reader",
		"waybill_test_pruner":   "GRANT SELECT, DELETE ON events TO waybill_test_pruner",
	}
	for role, grant := range grants {
		b.exec(t, "DROP ROLE IF EXISTS "+role+"; CREATE ROLE "+role+"; "+grant)
		t.Cleanup(func() { b.exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	}
	as := func(role string, fn func(db *sql.DB) error) {
		t.Helper()
		b.db.SetMaxOpenConns(1)
		b.exec(t, "SET ROLE "+role)
		err := fn(b.db)
		b.exec(t, "RESET ROLE")
		if err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
	as("waybill_test_recorder", func(db *sql.DB) error {
		return errors.Join(l.Record(ctx, db, event("e1", "synced", noon), nil), l.Record(ctx, db, event("e1", "synced", noon), nil),
			l.Record(ctx, db, event("old", "synced", noon.AddDate(-1, 0, 0)), nil))
	})
	as("waybill_test_pruner", func(db *sql.DB) error {
		n, err := l.Prune(ctx, db, noon, 10)
		if err == nil && n != 1 {
			t.Errorf("removed %d events, want 1", n)
		}
		return err
	})
	as("waybill_test_reader", func(db *sql.DB) (err error) {
		n := 0
		for _, readErr := range l.Each(ctx, db, eventlog.Filter{}) {
			err = errors.Join(err, readErr)
			n++
		}
		if n != 1 {
			t.Errorf("read %d entries, want 1", n)
		}
		return err
	})
}
