package store

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
)

// GatewaySteps returns a database of which nothing is made yet, and what makes the gateway's own tables in it.
func GatewaySteps(t *testing.T, address string) (*sql.DB, *goose.Provider) {
	t.Helper()
	s, err := OpenSchema(t.Context(), address, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	own := s.steps[1]
	p, err := goose.NewProvider(own.Dialect, s.db, own.FS, goose.WithTableName(own.Table), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	return s.db, p
}

// PendingPlans returns what the database does for [Store.Pending] and [Store.PendingAtMost], where it does it with a table or an index.
func PendingPlans(t *testing.T, s *Store) (plans []string) {
	t.Helper()
	explain, queries := `EXPLAIN QUERY PLAN `, []string{boundSQLite, countSQLite}
	if !s.Embedded {
		explain, queries = `EXPLAIN `, []string{boundPostgres, countPostgres}
	}
	for _, query := range queries {
		plans = append(plans, explained(t, s.Read, explain+strings.ReplaceAll(query, "$1", "1000001"))...)
	}
	return plans
}

func explained(t *testing.T, db *sql.DB, query string) (plans []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		fields := make([]any, len(columns))
		for i := range fields {
			fields[i] = new(any)
		}
		var line string
		fields[len(fields)-1] = &line
		if err := rows.Scan(fields...); err != nil {
			t.Fatal(err)
		}
		plans = append(plans, line)
	}
	if rows.Err() != nil || len(plans) == 0 {
		t.Fatal(plans, rows.Err())
	}
	return plans
}
