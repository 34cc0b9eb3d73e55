package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// What the audit may find.
const (
	lost      = "windows without a settlement"
	doubled   = "windows with more than one settlement"
	foreign   = "settlements of no window"
	badStats  = "windows without exactly one statistic"
	badBills  = "tenants whose bill is not the sum of their settlements"
	underWay  = "events still on their way"
	unnoted   = "events not processed by exactly one consumer"
	inTrouble = "open dead letters"
)

// checks are queries for what should not be there. They count rows of tables in which
// nothing is unique.
var checks = []struct{ what, query string }{
	{lost, `SELECT w.window_id FROM windows w LEFT JOIN settlements s ON s.window_id = w.window_id WHERE s.window_id IS NULL`},
	{doubled, `SELECT window_id FROM settlements GROUP BY window_id HAVING count(*) > 1`},
	{foreign, `SELECT s.window_id FROM settlements s LEFT JOIN windows w ON w.window_id = s.window_id WHERE w.window_id IS NULL`},
	{badStats, `SELECT w.window_id FROM windows w LEFT JOIN statistics s ON s.window_id = w.window_id
		GROUP BY w.window_id HAVING count(s.window_id) <> 1`},
	{badBills, `SELECT tenant_id FROM (SELECT tenant_id, windows, cents FROM bills
		UNION ALL SELECT tenant_id, -count(*), -sum(cents) FROM settlements GROUP BY tenant_id) t
		GROUP BY tenant_id HAVING sum(windows) <> 0 OR sum(cents) <> 0`},
	{underWay, `SELECT event_id FROM event_outbox WHERE status = 'pending' UNION SELECT event_id FROM event_deliveries WHERE state <> 'dead'`},
	{unnoted, `SELECT o.event_id FROM (SELECT DISTINCT event_id FROM event_outbox) o
		LEFT JOIN processed_events p ON p.event_id = o.event_id GROUP BY o.event_id HAVING count(p.event_id) <> 1`},
	{inTrouble, `SELECT event_id FROM dead_letter_consumers WHERE status <> 'closed'`},
}

// findings are the IDs that each check objects to.
type findings map[string][]string

// querier is a database, or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// audit reads the whole database.
func audit(ctx context.Context, db querier) (findings, error) {
	f := findings{}
	for _, check := range checks {
		ids, err := texts(ctx, db, check.query)
		if err != nil {
			return nil, fmt.Errorf("audit: %s: %w", check.what, err)
		}
		if len(ids) > 0 {
			f[check.what] = ids
		}
	}
	return f, nil
}

// err is nil if each window led to exactly one settlement, and nothing is left over.
func (f findings) err() error {
	var errs []error
	for _, check := range checks {
		if ids := f[check.what]; len(ids) > 0 {
			errs = append(errs, fmt.Errorf("%d %s, such as %s", len(ids), check.what, ids[0]))
		}
	}
	return errors.Join(errs...)
}

// texts returns the only column of a query.
func texts(ctx context.Context, db querier, query string, args ...any) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		all = append(all, "")
		if err := rows.Scan(&all[len(all)-1]); err != nil {
			return nil, err
		}
	}
	return all, rows.Err()
}
