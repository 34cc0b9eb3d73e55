package eventlog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

// fill makes n rows over the eight years before noon: cases of 20 events each, most of which are closed. By now, about four
// in ten of the rows are due.
func (b base) fill(tb testing.TB, n int) {
	tb.Helper()
	const (
		postgres = `INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload, metadata, created_at, processed_at, status)
SELECT CASE WHEN i % 20 = 0 THEN 'case_created' WHEN i % 20 = 19 AND i % 200 <> 19 THEN 'case_closed' WHEN i % 20 < 10 THEN 'note_added' WHEN i % 20 < 14 THEN 'login'
		WHEN i % 20 < 16 THEN 'paid' WHEN i % 20 < 18 THEN 'notified' ELSE 'synced' END,
	CAST(md5(CAST(i AS text)) AS uuid), 'case', CAST(md5(CAST(i / 20 AS text)) AS uuid), '{"note": "some text of some length"}', '{"correlation_id": "request-1"}',
	CAST($1 AS timestamptz) + CAST($2 AS float8) * i / $3 * interval '1 second', now(), 'processed'
FROM generate_series(0, $3 - 1) i`
		sqlite = `WITH RECURSIVE s (i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM s WHERE i + 1 < $3)
INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload, metadata, created_at, processed_at, status)
SELECT CASE WHEN i % 20 = 0 THEN 'case_created' WHEN i % 20 = 19 AND i % 200 <> 19 THEN 'case_closed' WHEN i % 20 < 10 THEN 'note_added' WHEN i % 20 < 14 THEN 'login'
		WHEN i % 20 < 16 THEN 'paid' WHEN i % 20 < 18 THEN 'notified' ELSE 'synced' END,
	printf('%08x-0000-4000-8000-%012x', i * 7919 % 100003, i), 'case', printf('%08x-0000-4000-8000-%012x', i / 20 * 7919 % 100003, i / 20),
	'{"note": "some text of some length"}', '{"correlation_id": "request-1"}',
	strftime('%Y-%m-%dT%H:%M:%f000Z', $1, CAST($2 * i / $3 AS TEXT) || ' seconds'), '2026-01-01T00:00:00.000000Z', 'processed'
FROM s`
	)
	begin := noon.AddDate(-8, 0, 0)
	if b.dialect == eventlog.Postgres {
		b.exec(fatal{tb}, postgres, begin, noon.Sub(begin).Seconds(), n)
		b.exec(fatal{tb}, `ANALYZE events`)
		return
	}
	b.exec(fatal{tb}, sqlite, begin.Format("2006-01-02 15:04:05"), noon.Sub(begin).Seconds(), n)
}

type fatal struct{ testing.TB }

// Whether there is something due or not, neither the pruner nor a reader goes through the whole table. (Postgres does
// if most of a table is what it looks for, and is right.)
func TestPlans(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		b.fill(t, 20_000)
		later := noon.AddDate(0, 0, -30)
		b.prune(t, l, later, 1000)
		if b.dialect == eventlog.Postgres {
			b.exec(t, `VACUUM ANALYZE events`)
		}
		due := l.DueStatements(noon, 1000)
		if len(due) != 6 {
			t.Fatalf("there are %d statements", len(due))
		}
		for _, s := range due {
			b.planWithout(t, s, "Seq Scan on events", "SCAN ", "BitmapAnd", "idx_events_created", "SEARCH m USING INDEX events_retention")
		}
		at := b.entries(t, l, eventlog.Filter{Limit: 5000})[4999]
		cursor := any(at.OccurredAt)
		if b.dialect == eventlog.SQLite {
			cursor = at.OccurredAt.Format("2006-01-02T15:04:05.000000Z")
		}
		for _, f := range []eventlog.Filter{
			{}, {AggregateType: "case", AggregateID: at.AggregateID}, {Since: noon.AddDate(0, -1, 0), Types: []string{"synced"}},
		} {
			b.planWithout(t, l.PageStatement(f, cursor, at.ID), "Seq Scan on events", "SCAN ")
		}
	})
}

func (b base) planWithout(t *testing.T, s eventlog.Statement, parts ...string) {
	t.Helper()
	plan := b.plan(t, s)
	for _, part := range parts {
		if strings.Contains(plan, part) {
			t.Errorf("%q is in the plan of\n%s\n%s", part, s.Text, plan)
		}
	}
}

func (b base) plan(t *testing.T, s eventlog.Statement) string {
	t.Helper()
	if b.dialect == eventlog.Postgres {
		return strings.Join(strs(t, b.db, "EXPLAIN "+s.Text, s.Args...), "\n")
	}
	rows, err := b.db.QueryContext(ctx, "EXPLAIN QUERY PLAN "+s.Text, s.Args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// benchmarks: 100,000 rows.
func benchOn(b *testing.B, bench func(b *testing.B, on base)) {
	b.Run("sqlite", func(b *testing.B) { bench(b, sqliteBase(b)) })
	b.Run("postgres", func(b *testing.B) { bench(b, postgresBase(b)) })
}

// One event, in a transaction of 100.
func BenchmarkRecord(b *testing.B) {
	benchOn(b, func(b *testing.B, on base) {
		l := on.log(b)
		for i := 0; b.Loop(); i++ {
			events := make([]eventing.Envelope, 100)
			for j := range events {
				events[j] = event(eventing.NewID(), "case_created", noon)
			}
			on.record(fatal{b}, l, events...)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/event")
	})
}

// All 100,000 entries, in pages.
func BenchmarkEach(b *testing.B) {
	benchOn(b, func(b *testing.B, on base) {
		l := on.log(b)
		on.fill(b, 100_000)
		for b.Loop() {
			n := 0
			for _, err := range l.Each(ctx, on.db, eventlog.Filter{}) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != 100_000 {
				b.Fatalf("read %d entries", n)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/entry")
	})
}

// A round that finds nothing due, which most are, among 100,000 rows less what was due; and that first work.
func BenchmarkPrune(b *testing.B) {
	benchOn(b, func(b *testing.B, on base) {
		l := on.log(b, framework()...)
		on.fill(b, 100_000)
		began, removed := time.Now(), 0
		for n := 1; n > 0; removed += n {
			var err error
			if n, err = l.Prune(ctx, on.db, noon, 1000); err != nil {
				b.Fatal(err)
			}
		}
		b.Logf("removed %d of 100,000 rows in %v", removed, time.Since(began).Round(time.Millisecond))
		if on.dialect == eventlog.Postgres {
			on.exec(fatal{b}, `VACUUM ANALYZE events`)
		}
		for b.Loop() {
			if n, err := l.Prune(ctx, on.db, noon, 1000); err != nil || n > 0 {
				b.Fatal(n, err)
			}
		}
	})
}
