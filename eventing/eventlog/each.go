package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
)

// Filter selects entries. The zero value selects all.
type Filter struct {
	// Types are event types. Default: all.
	Types []string
	// AggregateType and AggregateID select the events of an aggregate. They are found by an
	// index if both are given. Default: all.
	AggregateType, AggregateID string
	// Since and Until bound the time of the events, to the microsecond: from Since on, and
	// before Until. Default: no bound.
	Since, Until time.Time
	// Limit is how many entries there are at most. Default: no limit.
	Limit int
}

// A page is what is in memory at a time: so many entries, but no further ones when it has so
// many bytes.
const (
	pageEntries = 500
	pageBytes   = 8 << 20
)

// Each returns the selected entries in the order of their time, those of the same time by the UUID of
// their event. An error ends the sequence, as its last pair.
//
// They are read in pages, each by a query of its own that is closed before its entries are
// handed out: the loop may use the database, also one with a single connection, and may take its
// time. What is recorded meanwhile may be among the entries or not; in a transaction that
// sees one state of the database, all of them are of that state. Rows without a time, which the log does
// not write, are left out.
func (l *Log) Each(ctx context.Context, db Querier, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if f.Limit < 0 {
			yield(Entry{}, fmt.Errorf("event log: read: the limit is %d: it must not be negative", f.Limit))
			return
		}
		p := page{size: pageEntries}
		for left := f.Limit; !p.last; left -= len(p.entries) {
			if f.Limit > 0 {
				p.size = min(p.size, left)
			}
			err := l.read(ctx, db, f, &p)
			for _, e := range p.entries {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(Entry{}, fmt.Errorf("event log: read: %w", err))
				return
			}
			p.last = p.last || left > 0 && left == len(p.entries)
		}
	}
}

// page is a stretch of the log.
type page struct {
	after   *cursor // where it begins; nil: at the beginning
	size    int     // how many entries to ask for
	entries []Entry
	last    bool
}

// read reads the next page.
func (l *Log) read(ctx context.Context, db Querier, f Filter, p *page) (err error) {
	p.entries = p.entries[:0]
	s := l.pageQuery(f, p)
	rows, err := db.QueryContext(ctx, s.text(), s.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for bytes := 0; rows.Next(); {
		e, at, size, err := scan(rows)
		if err != nil {
			return err
		}
		p.entries = append(p.entries, e)
		p.after = &at
		if bytes += size; bytes >= pageBytes {
			p.size = len(p.entries) // the next ones may be as large: do not ask for what will not be read
			return nil
		}
	}
	p.last = len(p.entries) < p.size
	p.size = min(2*p.size, pageEntries)
	return rows.Err()
}

func (l *Log) pageQuery(f Filter, p *page) *statement {
	s := &statement{d: l.d}
	where := []string{"e.created_at IS NOT NULL"}
	if len(f.Types) > 0 {
		where = append(where, "e.event_type IN "+s.list(f.Types))
	}
	if f.AggregateType != "" {
		where = append(where, "e.aggregate_type = "+s.arg(f.AggregateType))
	}
	if f.AggregateID != "" {
		where = append(where, "e.aggregate_id = "+s.uuid(UUID(f.AggregateID)))
	}
	if !f.Since.IsZero() {
		where = append(where, "e.created_at >= "+s.time(f.Since))
	}
	if !f.Until.IsZero() {
		where = append(where, "e.created_at < "+s.time(f.Until))
	}
	if p.after != nil {
		at := s.d.cast(s.arg(p.after.createdAt), "timestamptz")
		// The first part is for the index, which is of created_at alone.
		where = append(where, "e.created_at >= "+at, "(e.created_at, e.event_id) > ("+at+", "+s.uuid(p.after.eventID)+")")
	}
	s.write("SELECT ", entryColumns, " FROM events e WHERE ", strings.Join(where, " AND "), " ORDER BY e.created_at, e.event_id LIMIT ", s.arg(p.size))
	return s
}
