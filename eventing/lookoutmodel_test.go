package eventing

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// sequence is a table whose rows get their Seq when they are inserted, and can be seen
// when their transaction has committed.
type sequence struct {
	last    int64
	open    map[string][]OutboxRow // by transaction: what it has inserted
	pending []OutboxRow            // committed, in the order of Seq
	flying  []OutboxRow            // of these, what is being settled
	begun   int
}

func (s *sequence) names() (names []string) {
	for name := range s.open {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *sequence) begin() string {
	s.begun++
	name := fmt.Sprintf("tx%d", s.begun)
	s.open[name] = nil
	return name
}

func (s *sequence) insert(name string, partition int) {
	s.last++
	s.open[name] = append(s.open[name], OutboxRow{Seq: s.last, Partition: partition})
}

func (s *sequence) commit(name string) {
	s.pending = append(s.pending, s.open[name]...)
	slices.SortFunc(s.pending, func(a, b OutboxRow) int { return int(a.Seq - b.Seq) })
	delete(s.open, name)
}

// rows returns those that are pending, or will be.
func (s *sequence) rows() []OutboxRow {
	rows := slices.Clone(s.pending)
	for _, open := range s.open {
		rows = append(rows, open...)
	}
	return rows
}

// see returns what a look finds.
func (s *sequence) see(r ClaimRequest) (rows []OutboxRow) {
	for _, p := range r.Partitions {
		left := p.Limit
		for _, row := range s.pending {
			if row.Partition == p.Partition && row.Seq > p.After && left > 0 && !slices.Contains(p.Exclude, row.Seq) {
				rows = append(rows, row)
				left--
			}
		}
	}
	slices.SortFunc(rows, func(a, b OutboxRow) int { return int(a.Seq - b.Seq) })
	return rows
}

func (s *sequence) settled() {
	s.pending = slices.DeleteFunc(s.pending, func(row OutboxRow) bool { return slices.ContainsFunc(s.flying, same(row)) })
	s.flying = nil
}

func same(row OutboxRow) func(OutboxRow) bool {
	return func(other OutboxRow) bool { return other.Seq == row.Seq }
}

// TestLookoutNeverPassesWhatIsPending has transactions commit in any order, with looks
// between them that are at everything only once, and dispatchers that die.
func TestLookoutNeverPassesWhatIsPending(t *testing.T) {
	t.Parallel()
	const partitions = 3
	moved := 0
	rapid.Check(t, func(t *rapid.T) {
		s, l := &sequence{open: map[string][]OutboxRow{}}, newLookout(rapid.IntRange(1, 6).Draw(t, "batch"))
		recorded := map[int]int64{}
		someone := func() string {
			if len(s.open) == 0 {
				return s.begin()
			}
			return rapid.SampledFrom(s.names()).Draw(t, "transaction")
		}
		act := func() {
			switch rapid.SampledFrom([]string{"begin", "insert", "insert", "commit", "roll back", "settled"}).Draw(t, "act") {
			case "begin":
				if len(s.open) < 4 {
					s.begin()
				}
			case "insert":
				s.insert(someone(), rapid.IntRange(0, partitions-1).Draw(t, "partition"))
			case "commit":
				s.commit(someone())
			case "roll back":
				delete(s.open, someone())
			case "settled":
				s.settled()
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			for range rapid.IntRange(0, 5).Draw(t, "acts") {
				act()
			}
			flying := map[int][]int64{}
			for _, row := range s.flying {
				flying[row.Partition] = append(flying[row.Partition], row.Seq)
			}
			if rapid.IntRange(0, 3).Draw(t, "writers are asked for") > 0 {
				l.asked = l.asked.Add(-writersPause)
			}
			r, _ := l.ask(allOf(partitions), l.batch, flying, false)
			for i := range r.Partitions {
				p := &r.Partitions[i]
				p.After = max(l.base[p.Partition], l.front[p.Partition]) // the clock does not matter
				for _, row := range s.rows() {
					if row.Partition == p.Partition && row.Seq <= p.After && !slices.Contains(p.Exclude, row.Seq) {
						t.Fatalf("row %d of partition %d is pending, or will be, and not under way; a look begins after %d", row.Seq, row.Partition, p.After)
					}
				}
			}
			c := Claimed{Rows: s.see(r)}
			for range rapid.IntRange(0, 2).Draw(t, "acts in the middle") {
				act()
			}
			if r.Writers {
				c.Drawn = s.last
				act()
				c.Writers = s.names()
			}
			l.take(r, c, 0)
			for p, base := range l.base {
				if base > 0 {
					moved++
				}
				for _, row := range s.rows() {
					if row.Partition == p && row.Seq <= base {
						t.Fatalf("row %d of partition %d is pending, or will be, and looks begin after %d", row.Seq, p, base)
					}
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "bases are recorded") == 0 {
				maps.Copy(recorded, l.base)
			}
			s.settled() // before the next batch's settlement begins
			s.flying = c.Rows
			if len(c.Rows) > 0 && rapid.IntRange(0, 9).Draw(t, "not all goes out") == 0 {
				s.flying = nil
				l.retreat()
			}
			if rapid.IntRange(0, 9).Draw(t, "a settlement fails") == 0 {
				s.flying = nil
				l.forget()
			}
			if rapid.IntRange(0, 9).Draw(t, "the dispatcher dies") == 0 {
				s.flying = nil
				l = newLookout(l.batch)
				for p, base := range recorded {
					l.takeOver(Lease{Partition: p, Token: 1, Base: base})
				}
			}
		}
	})
	if moved == 0 {
		t.Error("the base moves at all")
	}
}
