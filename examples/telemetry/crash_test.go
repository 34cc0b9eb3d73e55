package main

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/internal/testkit"
)

const (
	tenant      = "aurora"
	goodStation = "good"
	poorStation = "poor" // has no tariff
)

// A process that is killed at random moments, while it and others close windows, has
// in the end led each window to exactly one settlement; those of a station without a
// tariff are dead letters, and settled once by their replay.
func TestCrash(t *testing.T) {
	t.Parallel()
	kills := 20
	switch {
	case testkit.Long():
		kills = 200
	case testing.Short():
		kills = 4
	}
	onEachStore(t, func(t *testing.T, address string) {
		s := newStorm(t, address, healthy)
		s.rage(kills, s.killAnywhere)
		w := s.aftermath()

		poor := w.texts(`SELECT window_id FROM windows WHERE station_id = $1 ORDER BY window_id`, poorStation)
		f := w.audit()
		slices.Sort(f[lost])
		dead := f[inTrouble]
		if len(poor) == 0 || len(dead) != len(poor) || !maps.EqualFunc(f, findings{lost: poor, inTrouble: dead, unnoted: dead}, sameIDs) {
			t.Errorf("%d windows without a tariff are to be dead letters, and nothing else is to be wrong: %v", len(poor), f.err())
		}
		w.setTariff(tenant, poorStation, 40)
		w.replay(dead...)
		if err := w.audit().err(); err != nil {
			t.Errorf("after the replay: %v", err)
		}
		if missing := s.missing(w); len(missing) > 0 {
			t.Errorf("%d windows were closed and are not there, such as %s", len(missing), missing[0])
		}

		working, carried := s.impact(w)
		t.Logf("%d kills, %d of them of a process at work; %d windows, %d of them closed before a kill and settled after it; %d dead letters",
			kills, working, len(s.closed), carried, len(poor))
		if working == 0 || carried == 0 {
			t.Error("no kill hit anything: this proves nothing")
		}
	})
}

func sameIDs(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// The same test finds that windows are lost when their events are appended after the
// commit, and settled twice when the inbox row is not in the effect's transaction; and
// finds nothing in a process that is merely as slow.
func TestCrashTestFindsFaults(t *testing.T) {
	t.Parallel()
	const kills = 4
	for _, c := range []struct {
		program string
		found   string // if there is a fault
		never   []string
	}{
		{slow, "", []string{lost, doubled, foreign, badStats, badBills, underWay, unnoted, inTrouble}},
		{appendAfterwards, lost, []string{doubled, foreign, badBills, underWay, unnoted, inTrouble}},
		{inboxOutside, doubled, []string{lost, foreign, underWay, unnoted, inTrouble}},
	} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			onEachStore(t, func(t *testing.T, address string) {
				s := newStorm(t, address, c.program)
				s.poorToo = false
				s.rage(kills, s.killBusy)
				f := s.aftermath().audit()
				t.Logf("%d windows: %v", len(s.closed), f.err())
				if c.found != "" && len(f[c.found]) == 0 {
					t.Errorf("there are no %s", c.found)
				}
				for _, what := range c.never {
					if len(f[what]) > 0 {
						t.Errorf("there are %s", what)
					}
				}
			})
		})
	}
}

// missing returns the windows that were said to be committed and are not there.
func (s *storm) missing(w world) (ids []string) {
	s.Helper()
	there := map[string]bool{}
	for _, id := range w.texts(`SELECT window_id FROM windows`) {
		there[id] = true
	}
	for _, id := range s.closed {
		if !there[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// impact counts the kills that ended a process which had processed events, and the
// windows that were closed before a kill and settled after it.
func (s *storm) impact(w world) (working, carriedOver int) {
	s.Helper()
	lives := func(at time.Time) int { // how many kills before
		n, _ := slices.BinarySearchFunc(s.killed, at, time.Time.Compare)
		return n
	}
	worked := make([]bool, len(s.killed)+1)
	s.pairs(w, `SELECT processed_at, processed_at FROM processed_events`, func(at, _ time.Time) { worked[lives(at)] = true })
	for _, w := range worked[:len(s.killed)] {
		if w {
			working++
		}
	}
	s.pairs(w, `SELECT w.closed_at, s.settled_at FROM windows w JOIN settlements s ON s.window_id = w.window_id WHERE w.station_id <> '`+poorStation+`'`,
		func(closed, settled time.Time) {
			if lives(closed) < lives(settled) {
				carriedOver++
			}
		})
	return working, carriedOver
}

// pairs calls fn with each pair of times that a query returns.
func (s *storm) pairs(w world, query string, fn func(a, b time.Time)) {
	s.Helper()
	rows, err := w.db.read.QueryContext(s.Context(), query)
	if err != nil {
		s.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var a, b sqlstore.Timestamp
		if err := rows.Scan(&a, &b); err != nil {
			s.Fatal(err)
		}
		fn(a.Time, b.Time)
	}
	if err := rows.Err(); err != nil {
		s.Fatal(err)
	}
}
