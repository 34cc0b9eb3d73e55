package eventlog_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/internal/testserver"
)

// specified is the table as the routing framework specifies it.
const specified = `CREATE TABLE events (
  id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  event_type TEXT NOT NULL,
  event_id UUID UNIQUE NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id UUID NOT NULL,
  payload JSONB NOT NULL,
  metadata JSONB DEFAULT '{}',
  created_at TIMESTAMPTZ DEFAULT now(),
  processed_at TIMESTAMPTZ,
  retry_count INTEGER DEFAULT 0,
  status TEXT DEFAULT 'pending'
);

CREATE INDEX idx_events_type ON events(event_type);
CREATE INDEX idx_events_aggregate ON events(aggregate_type, aggregate_id);
CREATE INDEX idx_events_status ON events(status);
CREATE INDEX idx_events_created ON events(created_at);`

// strs returns the first column.
func strs(t *testing.T, db *sql.DB, query string, args ...any) (list []string) {
	t.Helper()
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

const ourIndex = "events_retention" // beside those that are specified

func TestPostgresTableIsAsSpecified(t *testing.T) {
	t.Parallel()
	b := postgresBase(t)
	b.exec(t, "CREATE SCHEMA spec; SET search_path = spec; "+specified+" SET search_path = DEFAULT")
	columns := func(schema string) []string {
		return strs(t, b.db, `SELECT concat_ws(' ', column_name, data_type, column_default, is_nullable)
			FROM information_schema.columns WHERE table_name = 'events' AND table_schema = $1 ORDER BY ordinal_position`, schema)
	}
	if got, want := columns("public"), columns("spec"); !slices.Equal(got, want) || len(want) != 11 {
		t.Errorf("the columns are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	indexes := func(schema string) []string {
		return strs(t, b.db, `SELECT replace(indexdef, schemaname || '.', '') FROM pg_indexes
			WHERE tablename = 'events' AND schemaname = $1 AND indexname <> $2 ORDER BY 1`, schema, ourIndex)
	}
	if got, want := indexes("public"), indexes("spec"); !slices.Equal(got, want) || len(want) != 6 {
		t.Errorf("the indexes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSQLiteTableIsLikeTheSpecified(t *testing.T) {
	t.Parallel()
	b := sqliteBase(t)
	columns := strs(t, b.db, `SELECT name || ' ' || type || ' ' || "notnull" FROM pragma_table_info('events')`)
	want := []string{"id TEXT 1", "event_type TEXT 1", "event_id TEXT 1", "aggregate_type TEXT 1", "aggregate_id TEXT 1", "payload TEXT 1",
		"metadata TEXT 0", "created_at TEXT 0", "processed_at TEXT 0", "retry_count INTEGER 0", "status TEXT 0"}
	if !slices.Equal(columns, want) {
		t.Errorf("the columns are %v, want %v", columns, want)
	}
	indexes := strs(t, b.db, `SELECT l.name || ' ' || group_concat(i.name) FROM pragma_index_list('events') l, pragma_index_info(l.name) i
		WHERE l.origin = 'c' AND l.name <> $1 GROUP BY l.name ORDER BY l.name`, ourIndex)
	want = []string{"idx_events_aggregate aggregate_type,aggregate_id", "idx_events_created created_at", "idx_events_status status", "idx_events_type event_type"}
	if !slices.Equal(indexes, want) {
		t.Errorf("the indexes are %v, want %v", indexes, want)
	}
	// A row by hand gets an id of its own, like that of gen_random_uuid.
	for i := range 20 {
		b.exec(t, `INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload) VALUES ('T', $1, '', '', '{}')`, fmt.Sprint(i))
	}
	for _, id := range strs(t, b.db, `SELECT DISTINCT id FROM events`) {
		if eventlog.UUID(id) != id || id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Errorf("the default id %s is no UUID of version 4", id)
		}
	}
}

// The steps are recorded apart from the library's, which the tests' databases have too, and applied once.
func TestMigrations(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		recorded := func(table string) string {
			return strs(t, b.db, `SELECT count(*) FROM `+table+` WHERE version_id > 0`)[0]
		}
		m, ofTheLibrary := eventlog.Migrations(b.dialect), recorded("waybill_schema_version")
		applied, err := m.Up(ctx, b.db)
		if err != nil || len(applied) > 0 {
			t.Errorf("applied again: %v, %v", applied, err)
		}
		steps, err := m.Status(ctx, b.db)
		if err != nil || len(steps) != 1 || steps[0].AppliedAt.IsZero() {
			t.Errorf("the status is %+v, %v", steps, err)
		}
		if got := recorded("waybill_eventlog_version"); got != "1" || ofTheLibrary == "0" || recorded("waybill_schema_version") != ofTheLibrary {
			t.Errorf("%s steps are recorded, want 1; of the library's %s, then %s", got, ofTheLibrary, recorded("waybill_schema_version"))
		}
	})
}

func TestMigrationsByHand(t *testing.T) {
	t.Parallel()
	for dialect, open := range map[eventlog.Dialect]func(t *testing.T) *sql.DB{
		eventlog.Postgres: func(t *testing.T) *sql.DB { return postgres(t, testserver.PostgresURL(t)) },
		eventlog.SQLite: func(t *testing.T) *sql.DB {
			s, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "by-hand.db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s.DB()
		},
	} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			b := base{dialect: dialect, db: open(t)}
			text, err := eventlog.Migrations(dialect).SQL()
			if err != nil {
				t.Fatal(err)
			}
			b.exec(t, text)
			l := b.log(t)
			b.record(t, l, event("e1", "case_created", noon))
			if n := len(b.entries(t, l, eventlog.Filter{})); n != 1 {
				t.Errorf("there are %d entries, want 1", n)
			}
		})
	}
}

// Processes that start together both find the table.
func TestMigrationsAtOnce(t *testing.T) {
	t.Parallel()
	url := testserver.PostgresURL(t)
	var all sync.WaitGroup
	for range 4 {
		db := postgres(t, url)
		all.Go(func() {
			if _, err := eventlog.Migrations(eventlog.Postgres).Up(ctx, db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestUnknownDialect(t *testing.T) {
	t.Parallel()
	if _, err := eventlog.New(eventlog.Config{Dialect: "oracle"}); err == nil || !strings.Contains(err.Error(), `"oracle"`) {
		t.Errorf("an unknown dialect: %v", err)
	}
	if _, err := eventlog.Migrations("oracle").Up(ctx, sqliteBase(t).db); err == nil {
		t.Error("there are no steps for an unknown dialect")
	}
}
