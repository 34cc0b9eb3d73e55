package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Prune deletes what has been kept long enough at a point in time: at most limit events, in short
// transactions. If it has deleted that many, there may be more. It may be interrupted at any point,
// and called by several processes; what is left goes the next time.
//
// An event of a category goes when Keep has passed since its time, also one that was recorded late.
// Years are those of the calendar, in UTC.
//
// With After, an event goes when Keep has passed since the life of its aggregate ended, however old
// it is itself. A life ends with the last event of the aggregate that is one of After, unless one of
// Unless is later, or of the same time. While an aggregate lives, nothing of it goes.
//
// The event that says that an aggregate lives or does not goes last: neither a crash nor a small
// limit makes a dead aggregate look alive, or one that lives dead. Where it is of another category
// than the events that depend on it, it outlasts these, whatever its own Keep. What is recorded of an
// aggregate of which nothing is left is kept: as far as the log knows, that aggregate lives.
func (l *Log) Prune(ctx context.Context, db *sql.DB, now time.Time, limit int) (removed int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("event log: prune: the limit is %d: it must be positive", limit)
	}
	for _, c := range l.categories {
		before, ok := border(c.Keep, now)
		if !ok || len(c.Types) == 0 {
			continue
		}
		n, err := l.pruneCategory(ctx, db, c, before, limit-removed)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("event log: prune category %s: %w", c.Category, err)
		}
		if removed >= limit {
			break
		}
	}
	return removed, nil
}

// Pruner returns [Log.Prune] on a database, for a pruner of the library:
//
//	eventing.PrunerConfig{Also: map[string]eventing.PruneFunc{"events": log.Pruner(db)}}
func (l *Log) Pruner(db *sql.DB) func(ctx context.Context, now time.Time, limit int) (removed int, err error) {
	return func(ctx context.Context, now time.Time, limit int) (int, error) { return l.Prune(ctx, db, now, limit) }
}

func (l *Log) pruneCategory(ctx context.Context, db *sql.DB, c *category, before time.Time, limit int) (removed int, err error) {
	for _, step := range l.steps(c, before) {
		n, err := l.delete(ctx, db, step(limit-removed))
		removed += n
		if err != nil || removed >= limit {
			return removed, err
		}
	}
	return removed, nil
}

// delete deletes what a statement selects.
func (l *Log) delete(ctx context.Context, db *sql.DB, due *statement) (removed int, err error) {
	var id string
	err = db.QueryRowContext(ctx, due.text(), due.args...).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil // as mostly; and nothing has been locked
	}
	if err != nil {
		return 0, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, l.d.begin); err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, due.deletion(), due.args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	if l.d.end != "" {
		if _, err := tx.ExecContext(ctx, l.d.end); err != nil {
			return 0, err
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return int(n), nil
}

// deletion deletes what the statement selects.
func (s *statement) deletion() string { return "DELETE FROM events WHERE id IN (" + s.text() + ")" }

// step makes a SELECT of the ids of events that go, at most limit. What it finds may depend on the
// steps before having been gone.
//
// Each is about one event type and in the order of time, so that it is read from the index events_retention, and as far as the limit
// only: statistics do not know that of some types nothing old is left, and have Postgres expect it anywhere.
type step func(limit int) *statement

func (l *Log) steps(c *category, before time.Time) (steps []step) {
	if len(c.After) == 0 {
		for _, t := range c.Types {
			steps = append(steps, func(limit int) *statement { return l.oldEvents(c, t, before, limit) })
		}
		return steps
	}
	for _, t := range c.After {
		steps = append(steps, func(limit int) *statement { return l.restOfLives(c, t, before, limit) })
	}
	for _, t := range c.After {
		if slices.Contains(c.Types, t) {
			steps = append(steps, func(limit int) *statement { return l.endsOfLives(c, t, before, limit) })
		}
	}
	return steps
}

// oldEvents is the step of a category without After.
func (l *Log) oldEvents(c *category, eventType string, before time.Time, limit int) *statement {
	s := &statement{d: l.d}
	s.write("SELECT e.id FROM events e WHERE ")
	s.old(eventType, before)
	s.notNeeded("e", c)
	s.inTime(limit)
	return s
}

// restOfLives selects the events of lives that ended before, but for e, the event that says so.
func (l *Log) restOfLives(c *category, eventType string, before time.Time, limit int) *statement {
	s := &statement{d: l.d}
	s.write("SELECT x.id FROM events e CROSS JOIN ", s.d.mates("x", "e"), " WHERE ", sameAggregate("x", "e"), " AND ")
	s.old(eventType, before)
	s.isLast("e", c)
	s.write(" AND x.id <> e.id AND x.event_type IN ", s.list(c.Types))
	s.notNeeded("x", c)
	s.inTime(limit)
	return s
}

// endsOfLives selects the events that ended lives of which nothing else is left.
func (l *Log) endsOfLives(c *category, eventType string, before time.Time, limit int) *statement {
	s := &statement{d: l.d}
	s.write("SELECT e.id FROM events e WHERE ")
	s.old(eventType, before)
	s.isLast("e", c)
	s.write(" AND (SELECT o.id FROM ", s.d.mates("o", "e"), " WHERE ", sameAggregate("o", "e"), " AND o.id <> e.id AND o.event_type IN ",
		s.list(c.Types), " LIMIT 1) IS NULL")
	s.notNeeded("e", c)
	s.inTime(limit)
	return s
}

// old writes the condition that e is of a type and from before a time; inTime the order and the limit.
func (s *statement) old(eventType string, before time.Time) {
	s.write("e.event_type = ", s.arg(eventType), " AND ", s.d.indexed("e.created_at"), " < ", s.d.indexed(s.time(before)))
}

func (s *statement) inTime(limit int) {
	s.write(" ORDER BY ", s.d.indexed("e.created_at"), " LIMIT ", s.arg(limit))
}

func sameAggregate(a, b string) string {
	return a + ".aggregate_type = " + b + ".aggregate_type AND " + a + ".aggregate_id = " + b + ".aggregate_id"
}

// Whether another event is there is asked by a subquery that cannot become a join: a join might read the whole table, for
// the few aggregates that are asked about.

// isLast writes the condition that no later event than row ends or begins again the aggregate's life in a category.
func (s *statement) isLast(row string, c *category) {
	s.write(" AND (SELECT m.id FROM ", s.d.mates("m", row), " WHERE ", sameAggregate("m", row), " AND m.event_type IN ",
		s.list(slices.Concat(c.After, c.Unless)), " AND ", s.place("m", c), " > ", s.place(row, c), " LIMIT 1) IS NULL")
}

// place is where an event is among those that end or begin a life. At the same time, beginning comes
// last: what may live is kept.
func (s *statement) place(row string, c *category) string {
	begins := "0"
	if len(c.Unless) > 0 {
		begins = "CASE WHEN " + row + ".event_type IN " + s.list(c.Unless) + " THEN 1 ELSE 0 END"
	}
	return "(" + row + ".created_at, " + begins + ", " + row + ".event_id)"
}

// notNeeded writes the condition that row is not the event that says whether its aggregate lives in another category,
// while there are events there that depend on that; or an older one that would end its life in its stead, and earlier.
func (s *statement) notNeeded(row string, of *category) {
	for _, c := range of.dependents {
		s.write(" AND NOT (", row, ".event_type IN ", s.list(slices.Concat(c.After, c.Unless)))
		s.isLast(row, c)
		s.write(" AND (SELECT o.id FROM ", s.d.mates("o", row), " WHERE ", sameAggregate("o", row), " AND o.id <> ", row, ".id AND o.event_type IN ",
			s.list(distinct(slices.Concat(c.Types, c.After))), " LIMIT 1) IS NOT NULL)")
	}
}
