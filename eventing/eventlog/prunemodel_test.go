package eventlog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

func days(n int) eventing.Period { return eventing.Period{Days: n} }

// retentions to check: as one would write them, and as one would rather not.
var retentions = map[string][]eventing.Retention{
	"own marks": {
		{Category: "case", Types: []string{"a", "closed", "reopened"}, Keep: days(5), After: []string{"closed"}, Unless: []string{"reopened"}},
		{Category: "audit", Types: []string{"b", "c"}, Keep: days(9)},
	},
	"marks of another": {
		{Category: "case", Types: []string{"a", "closed", "reopened"}, Keep: days(3), After: []string{"closed"}, Unless: []string{"reopened"}},
		{Category: "document", Types: []string{"b"}, Keep: days(7), After: []string{"closed"}, Unless: []string{"reopened"}},
		{Category: "note", Types: []string{"c"}, Keep: days(1), After: []string{"closed", "b"}},
	},
	"marks in the rest of another": {
		{Category: "document", Types: []string{"b"}, Keep: days(2), After: []string{"closed"}},
		{Category: "note", Types: []string{"c"}, Keep: days(3), After: []string{"closed", "b"}},
	},
	"marks that go early": {
		{Category: "short", Types: []string{"reopened", "closed"}, Keep: days(1)},
		{Category: "case", Types: []string{"a", "b"}, Keep: days(5), After: []string{"closed"}, Unless: []string{"reopened"}},
	},
	"marks of their own ways": {
		{Category: "short", Types: []string{"reopened"}, Keep: days(1)},
		{Category: "case", Types: []string{"a", "closed"}, Keep: days(4), After: []string{"closed"}, Unless: []string{"reopened"}},
	},
	"beginnings that go early": {
		{Category: "short", Types: []string{"reopened"}, Keep: days(1)},
		{Category: "case", Types: []string{"a", "b"}, Keep: days(2), After: []string{"closed"}, Unless: []string{"reopened"}},
	},
	"marks for ever": {
		{Category: "case", Types: []string{"a", "b"}, Keep: days(2), After: []string{"closed"}, Unless: []string{"reopened"}},
	},
}

// history is all that was ever recorded, and what of it is gone.
type history struct {
	retention []eventing.Retention
	events    []eventing.Envelope
	gone      map[string]bool
	orphans   map[string]bool // recorded when their aggregate had ended and what said so was gone
}

// verdict is what the whole history says about an event: whether it may go, and may not stay.
func (h *history) verdict(e eventing.Envelope, now time.Time) (due bool) {
	for _, r := range h.retention {
		if !slices.Contains(r.Types, e.Type) {
			continue
		}
		if len(r.After) == 0 {
			return e.OccurredAt.Before(now.AddDate(0, 0, -r.Keep.Days))
		}
		end, ended := h.end(r, e.AggregateID, func(eventing.Envelope) bool { return true })
		return ended && end.OccurredAt.Before(now.AddDate(0, 0, -r.Keep.Days))
	}
	return false
}

// end returns the event that decides whether an aggregate lives, among those that count, and whether it says that
// it does not.
func (h *history) end(r eventing.Retention, aggregate string, counts func(eventing.Envelope) bool) (last eventing.Envelope, ended bool) {
	for _, e := range h.events {
		begins := slices.Contains(r.Unless, e.Type)
		if e.AggregateID != aggregate || !begins && !slices.Contains(r.After, e.Type) || !counts(e) {
			continue
		}
		later := e.OccurredAt.Compare(last.OccurredAt)
		if later > 0 || later == 0 && (begins && ended || begins != ended && eventlog.UUID(e.ID) > eventlog.UUID(last.ID)) {
			last, ended = e, !begins
		}
	}
	return last, ended
}

// excused: an event that is due has to stay, as others that are there depend on it, or because what said that
// its aggregate has ended was gone when it came.
func (h *history) excused(e eventing.Envelope) bool {
	there := func(e eventing.Envelope) bool { return !h.gone[e.ID] }
	for _, r := range h.retention {
		if slices.Contains(r.Types, e.Type) && len(r.After) > 0 {
			if h.orphans[e.ID] {
				return true
			}
			continue
		}
		if last, _ := h.end(r, e.AggregateID, there); last.ID != e.ID {
			continue
		}
		for _, other := range h.events {
			depends := slices.Contains(r.Types, other.Type) || slices.Contains(r.After, other.Type)
			if other.ID != e.ID && other.AggregateID == e.AggregateID && there(other) && depends {
				return true
			}
		}
	}
	return false
}

// check compares the history with what is left.
func (h *history) check(r *rapid.T, left []string, now time.Time, finished bool) {
	for _, e := range h.events {
		there := slices.Contains(left, e.ID)
		switch {
		case !there && !h.gone[e.ID]:
			if !h.verdict(e, now) {
				r.Fatalf("at %v, %s %s of %s is gone before its time", now, e.ID, e.Type, e.AggregateID)
			}
			h.gone[e.ID] = true
		case there && h.gone[e.ID]:
			r.Fatalf("%s is there again", e.ID)
		}
	}
	for _, e := range h.events {
		if finished && !h.gone[e.ID] && h.verdict(e, now) && !h.excused(e) {
			r.Fatalf("at %v, %s %s of %s is still there", now, e.ID, e.Type, e.AggregateID)
		}
	}
}

// The pruner sees what is left of a history. Of what goes and stays it must never be wrong by what the whole
// history says: whenever it runs, in whatever batches, and wherever it is interrupted.
func TestPruneAgainstTheWholeHistory(t *testing.T) {
	t.Parallel()
	for name, retention := range retentions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, b base) {
				l := b.log(t, retention...)
				rapid.Check(t, func(r *rapid.T) {
					b.empty(r)
					h := &history{retention: retention, gone: map[string]bool{}, orphans: map[string]bool{}}
					now := noon
					for range rapid.IntRange(1, 4).Draw(r, "rounds") {
						b.record(r, l, h.grow(r, now)...)
						now = now.AddDate(0, 0, rapid.IntRange(0, 4).Draw(r, "pass"))
						finished := false
						for range rapid.IntRange(1, 3).Draw(r, "prunes") {
							limit := rapid.SampledFrom([]int{1, 2, 3, 100}).Draw(r, "limit")
							n, err := l.Prune(ctx, b.db, now, limit)
							if err != nil || n > limit {
								r.Fatalf("removed %d of at most %d: %v", n, limit, err)
							}
							finished = n == 0
							h.check(r, ids(b.entries(r, l, eventlog.Filter{})), now, finished)
						}
					}
					b.prune(r, l, now, 100)
					h.check(r, ids(b.entries(r, l, eventlog.Filter{})), now, true)
				})
			})
		})
	}
}

// grow has some events occur until now; those that are no marks may be recorded late.
func (h *history) grow(r *rapid.T, now time.Time) []eventing.Envelope {
	begin := len(h.events)
	for range rapid.IntRange(0, 6).Draw(r, "events") {
		e := event(fmt.Sprintf("e%d", len(h.events)), rapid.SampledFrom([]string{"a", "b", "c", "closed", "reopened"}).Draw(r, "type"), now)
		e.AggregateID = rapid.SampledFrom([]string{"1", "2"}).Draw(r, "aggregate")
		if ago := rapid.IntRange(-8, 8).Draw(r, "days ago"); ago > 0 && len(e.Type) == 1 && !h.marks(e.Type) {
			e.OccurredAt = now.AddDate(0, 0, -ago)
		}
		h.events = append(h.events, e)
		for _, c := range h.retention {
			_, ended := h.end(c, e.AggregateID, func(eventing.Envelope) bool { return true })
			_, seen := h.end(c, e.AggregateID, func(e eventing.Envelope) bool { return !h.gone[e.ID] })
			if slices.Contains(c.Types, e.Type) && ended && !seen {
				h.orphans[e.ID] = true
			}
		}
	}
	return h.events[begin:]
}

func (h *history) marks(eventType string) bool {
	return slices.ContainsFunc(h.retention, func(r eventing.Retention) bool {
		return slices.Contains(r.After, eventType) || slices.Contains(r.Unless, eventType)
	})
}
