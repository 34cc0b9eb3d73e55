package eventlog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

// framework is the retention that the routing framework specifies.
func framework() []eventing.Retention {
	return []eventing.Retention{
		{Category: "audit", Types: []string{"login"}, Keep: eventing.Period{Years: 7}},
		{
			Category: "case", Types: []string{"case_created", "case_closed", "case_reopened", "note_added"}, Keep: eventing.Period{Years: 5},
			After: []string{"case_closed"}, Unless: []string{"case_reopened"},
		},
		{Category: "notification", Types: []string{"notified"}, Keep: eventing.Period{Years: 1}},
		{Category: "integration", Types: []string{"synced", "exported"}, Keep: eventing.Period{Days: 90}},
	}
}

// recorded records events given as "ID TYPE AGGREGATE TIME" each.
func (b base) recorded(t *testing.T, l *eventlog.Log, lines ...string) {
	t.Helper()
	events := make([]eventing.Envelope, len(lines))
	for i, line := range lines {
		f := strings.Fields(line)
		events[i] = event(f[0], f[1], day(t, strings.Join(f[3:], " ")))
		if events[i].AggregateID = f[2]; f[2] == "-" {
			events[i].AggregateID = ""
		}
	}
	b.record(t, l, events...)
}

// left returns the IDs of what is there, by name.
func (b base) left(t fataler, l *eventlog.Log) string {
	t.Helper()
	list := ids(b.entries(t, l, eventlog.Filter{}))
	slices.Sort(list)
	return strings.Join(list, " ")
}

// prune prunes until nothing is left to.
func (b base) prune(t fataler, l *eventlog.Log, now time.Time, limit int) (removed int) {
	t.Helper()
	for {
		n, err := l.Prune(ctx, b.db, now, limit)
		if err != nil || n > limit {
			t.Fatalf("removed %d of at most %d: %v", n, limit, err)
		}
		if removed += n; n == 0 {
			return removed
		}
	}
}

func TestPruneByAge(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		b.recorded(t, l,
			"early synced 1 2026-01-01 12:00:00", "late exported 1 2026-01-01 12:00:00.000001", "n notified 1 2026-01-01 12:00:00",
			"leap login 1 2024-02-29 23:59:59", "forever unheard 1 1990-01-01 00:00:00")
		for _, c := range []struct {
			now     string
			removed int
			left    string
		}{
			{"2026-04-01 12:00:00", 0, "early forever late leap n"}, // exactly at the border: kept
			{"2026-04-01 12:00:00.000001", 1, "forever late leap n"},
			{"2026-04-01 12:00:00.000002", 1, "forever leap n"},
			{"2027-01-01 12:00:00", 0, "forever leap n"},
			{"2027-01-01 12:00:00.000001", 1, "forever leap"},
			{"2031-02-28 23:59:59.999999", 0, "forever leap"},
			{"2031-03-01 00:00:00", 1, "forever"},
			{"9999-12-31 00:00:00", 0, "forever"},
		} {
			n, err := l.Prune(ctx, b.db, day(t, c.now).In(time.FixedZone("", 7*3600)), 100)
			if got := b.left(t, l); err != nil || n != c.removed || got != c.left {
				t.Errorf("at %s: removed %d, %v; left are %q, want %q", c.now, n, err, got, c.left)
			}
		}
	})
}

func TestPruneByLife(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		for _, c := range []struct {
			name   string
			events []string
			now    string
			left   string
		}{
			{"lives", []string{"a case_created 1 2000-01-01 00:00:00", "b note_added 1 2001-01-01 00:00:00"}, "2026-01-01 00:00:00", "a b"},
			{"exactly at the border", []string{"a case_created 1 2000-01-01 00:00:00", "b case_closed 1 2021-01-01 00:00:00"}, "2026-01-01 00:00:00", "a b"},
			{"past the border", []string{"a case_created 1 2000-01-01 00:00:00", "b case_closed 1 2021-01-01 00:00:00"}, "2026-01-01 00:00:00.000001", ""},
			{
				"others live, and other categories have their own times",
				[]string{
					"a case_created 1 2000-01-01 00:00:00", "b case_closed 1 2001-01-01 00:00:00", "c case_created 2 2000-01-01 00:00:00", "d login 1 2020-01-01 00:00:00",
					"e case_closed 3 2025-01-01 00:00:00",
				}, "2026-01-01 00:00:00", "c d e",
			},
			{
				"reopened",
				[]string{"a case_created 1 2000-01-01 00:00:00", "b case_closed 1 2001-01-01 00:00:00", "c case_reopened 1 2002-01-01 00:00:00"},
				"2026-01-01 00:00:00", "a b c",
			},
			{
				"reopened and closed again, not long ago",
				[]string{"a case_closed 1 2001-01-01 00:00:00", "b case_reopened 1 2002-01-01 00:00:00", "c case_closed 1 2022-01-01 00:00:00", "d note_added 1 2002-01-02 00:00:00"},
				"2026-01-01 00:00:00", "a b c d",
			},
			{
				"reopened and closed again, long ago",
				[]string{"a case_closed 1 2001-01-01 00:00:00", "b case_reopened 1 2002-01-01 00:00:00", "c case_closed 1 2020-01-01 00:00:00", "d note_added 1 2002-01-02 00:00:00"},
				"2026-01-01 00:00:00", "",
			},
			{
				"closed twice: the later counts",
				[]string{"a case_closed 1 2001-01-01 00:00:00", "b case_closed 1 2024-01-01 00:00:00"}, "2026-01-01 00:00:00", "a b",
			},
			{
				"an event later than its close goes with the rest",
				[]string{"a case_closed 1 2001-01-01 00:00:00", "b note_added 1 2025-12-31 00:00:00"}, "2026-01-01 00:00:00", "",
			},
			{
				"reopened at the time of the close: it lives",
				[]string{"a case_closed 1 2001-01-01 00:00:00", "b case_reopened 1 2001-01-01 00:00:00", "c case_closed 1 2001-01-01 00:00:00"}, "2026-01-01 00:00:00", "a b c",
			},
			{
				"recorded late, in another order",
				[]string{"a case_reopened 1 2002-01-01 00:00:00", "b case_closed 1 2001-01-01 00:00:00", "c case_created 1 2000-01-01 00:00:00"}, "2026-01-01 00:00:00", "a b c",
			},
			{
				"without an aggregate, each is one of its own",
				[]string{"a case_created - 2000-01-01 00:00:00", "b case_closed - 2001-01-01 00:00:00", "c case_created - 2000-01-01 00:00:00"}, "2026-01-01 00:00:00", "a c",
			},
			{
				"a leap year",
				[]string{"a case_closed 1 2024-02-29 12:00:00", "b case_closed 2 2023-03-01 12:00:00"}, "2028-02-29 23:00:00", "a b",
			},
			{"the day after", []string{"a case_closed 1 2023-02-28 12:00:00", "b case_closed 2 2023-03-01 12:00:00"}, "2028-02-29 23:00:00", "b"},
		} {
			for _, limit := range []int{1, 1000} {
				b.recorded(t, l, c.events...)
				b.prune(t, l, day(t, c.now), limit)
				if got := b.left(t, l); got != c.left {
					t.Errorf("%s, %d at a time: left are %q, want %q", c.name, limit, got, c.left)
				}
				b.empty(t)
			}
		}
	})
}

// The events that say whether a case lives outlast those of other categories that depend on it.
func TestPruneAcrossCategories(t *testing.T) {
	t.Parallel()
	years := func(n int) eventing.Period { return eventing.Period{Years: n} }
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t,
			eventing.Retention{Category: "case", Types: []string{"created", "closed"}, Keep: years(5), After: []string{"closed"}, Unless: []string{"reopened"}},
			eventing.Retention{Category: "document", Types: []string{"uploaded"}, Keep: years(10), After: []string{"closed"}, Unless: []string{"reopened"}},
			eventing.Retention{Category: "short", Types: []string{"reopened"}, Keep: years(1)},
		)
		b.recorded(t, l,
			"a1 created A 2000-01-01 00:00:00", "a2 uploaded A 2000-01-02 00:00:00", "a3 closed A 2001-01-01 00:00:00",
			"b1 created B 2000-01-01 00:00:00", "b2 closed B 2001-01-01 00:00:00", "b3 reopened B 2001-01-02 00:00:00",
			"c1 reopened C 2000-01-01 00:00:00", "c2 closed C 2001-01-01 00:00:00",
			"d1 reopened D 2000-01-01 00:00:00")
		for _, c := range []struct{ now, left string }{
			{"2002-06-01 00:00:00", "a1 a2 a3 b1 b2 b3 c2"}, // c1 decides nothing, d1 nothing that is there
			{"2006-06-01 00:00:00", "a2 a3 b1 b2 b3"},
			{"2010-06-01 00:00:00", "a2 a3 b1 b2 b3"},
			{"2011-06-01 00:00:00", "b1 b2 b3"}, // b lives, for ever
		} {
			b.prune(t, l, day(t, c.now), 100)
			if got := b.left(t, l); got != c.left {
				t.Errorf("at %s: left are %q, want %q", c.now, got, c.left)
			}
		}
		b.recorded(t, l, "b4 closed B 2012-01-01 00:00:00")
		b.prune(t, l, day(t, "2017-06-01 00:00:00"), 1)
		if got := b.left(t, l); got != "" {
			t.Errorf("left are %q", got)
		}
	})
}

// A life that has gone is known no more: what comes later is kept.
func TestPruneKeepsWhatComesAfterTheEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		b.recorded(t, l, "a case_created 1 2000-01-01 00:00:00", "b case_closed 1 2001-01-01 00:00:00")
		b.prune(t, l, noon, 10)
		b.recorded(t, l, "c note_added 1 2000-06-01 00:00:00")
		b.prune(t, l, noon, 10)
		if got := b.left(t, l); got != "c" {
			t.Errorf("left are %q, want the late note", got)
		}
	})
}

// Whatever interrupts it, the event that says that a case is over goes last.
func TestPruneInSmallBatches(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		var lines []string
		for i := range 20 {
			lines = append(lines, fmt.Sprintf("n%d note_added 1 2002-01-01 00:00:0%d", i, i%10))
		}
		b.recorded(t, l, append(lines, "z case_closed 1 2001-01-01 00:00:00", "y case_closed 1 2000-01-01 00:00:00")...)
		for left := 22; left > 0; {
			n, err := l.Prune(ctx, b.db, noon, 3)
			if left -= n; err != nil || n != min(3, left+n) {
				t.Fatalf("removed %d: %v", n, err)
			}
			if entries := b.entries(t, l, eventlog.Filter{Types: []string{"case_closed"}}); left > 0 && (len(entries) == 0 || entries[len(entries)-1].ID != "z") {
				t.Fatalf("%d events are left, and the close is not: %v", left, ids(entries))
			}
		}
		if n, err := l.Prune(ctx, b.db, noon, 3); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
	})
}

// Several at once delete each event once, and nothing else.
func TestPruneAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		events := make([]eventing.Envelope, 900)
		for i := range events {
			events[i] = event(fmt.Sprint(i), "synced", noon.AddDate(0, -i%9, 0))
		}
		b.record(t, l, events...)
		var all sync.WaitGroup
		var mu sync.Mutex
		total := 0
		for range 4 {
			all.Go(func() {
				for tries := 0; tries < 200; tries++ {
					n, err := l.Prune(ctx, b.db, noon, 50)
					mu.Lock()
					total += n
					mu.Unlock()
					if n == 0 && err == nil {
						return
					}
				}
			})
		}
		all.Wait()
		if left := len(b.entries(t, l, eventlog.Filter{})); left != 300 || total != 600 {
			t.Errorf("removed %d, left are %d; want 600 and 300", total, left)
		}
	})
}

func TestPruneFails(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		b.recorded(t, l, "a synced 1 2001-01-01 00:00:00")
		for _, limit := range []int{0, -1} {
			if _, err := l.Prune(ctx, b.db, noon, limit); err == nil || !strings.Contains(err.Error(), "positive") {
				t.Errorf("a limit of %d: %v", limit, err)
			}
		}
		ended, end := context.WithCancel(ctx)
		end()
		if n, err := l.Prune(ended, b.db, noon, 10); err == nil || n != 0 {
			t.Errorf("in a context that has ended: %d, %v", n, err)
		}
		if got := b.left(t, l); got != "a" {
			t.Errorf("left are %q", got)
		}
	})
}

// The library's pruner takes it along.
func TestPruner(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		events := make([]eventing.Envelope, 25)
		for i := range events {
			events[i] = event(fmt.Sprint(i), "synced", noon.AddDate(-1, 0, 0))
		}
		b.record(t, l, append(events, event("kept", "synced", noon))...)
		p, err := eventing.NewPruner(b.store.(eventing.PruneStore), eventing.PrunerConfig{
			BatchSize: 10, Now: func() time.Time { return noon }, Also: map[string]eventing.PruneFunc{"events": l.Pruner(b.db)},
		})
		if err != nil {
			t.Fatal(err)
		}
		pruned, err := p.PruneOnce(ctx)
		if err != nil || pruned.Also["events"] != 25 || b.left(t, l) != "kept" {
			t.Errorf("pruned %+v, %v; left are %s", pruned, err, b.left(t, l))
		}
	})
}
