package eventing

import (
	"cmp"
	"slices"
)

// PlanReport says what a plan would do.
type PlanReport struct {
	Targets int `json:"targets"`
	// Counts are the targets by type and consumer.
	Counts []PlanCount `json:"counts"`
	// Groups are the targets by failure, the most frequent first.
	Groups []FailureGroup `json:"groups"`
	// Skipped are the dead letters that were selected but are left out, by reason.
	Skipped []Skip `json:"skipped"`
	// Parked are the deliveries that wait behind targets.
	Parked int `json:"parked_behind"`
	// Truncated: the limit has cut the plan off; there are more.
	Truncated bool `json:"truncated"`
}

// PlanCount counts the targets of one event type at one consumer.
type PlanCount struct {
	EventType string `json:"event_type"`
	Consumer  string `json:"consumer_name"`
	Targets   int    `json:"targets"`
	Forced    int    `json:"forced"` // of them
	Parked    int    `json:"parked_behind"`
}

// Skip counts dead letters that are left alone for one reason.
type Skip struct {
	Reason  string `json:"reason"`
	Count   int    `json:"count"`
	Example Target `json:"example"` // the first
}

// skips counts by reason.
type skips map[string]*Skip

// maxSkipReasons bounds the reasons, of which errors are part.
const maxSkipReasons = 100

func (s skips) add(why string, t Target) {
	if s[why] == nil && len(s) >= maxSkipReasons {
		why = OtherFailures
	}
	if s[why] == nil {
		s[why] = &Skip{Reason: why, Example: t}
	}
	s[why].Count++
}

// list returns the most frequent first.
func (s skips) list() []Skip {
	list := []Skip{}
	for _, skip := range s {
		list = append(list, *skip)
	}
	slices.SortFunc(list, func(a, b Skip) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// tally counts the targets of a plan.
type tally struct {
	targets   int
	counts    map[[2]string]*PlanCount
	groups    failureGroups
	skipped   skips
	keys      map[[2]string]bool // whose parked deliveries are counted
	parked    int
	truncated bool
}

func newTally() *tally {
	return &tally{counts: map[[2]string]*PlanCount{}, groups: failureGroups{}, skipped: skips{}, keys: map[[2]string]bool{}}
}

func (t *tally) skip(why string, target Target) { t.skipped.add(cut(why, maxNormalizedBytes), target) }

func (t *tally) count(dl DeadLetter, force bool) {
	t.targets++
	t.groups.add(dl)
	pair := [2]string{dl.EventType, dl.Consumer}
	if t.counts[pair] == nil && len(t.counts) >= maxGroups {
		pair = [2]string{OtherFailures, OtherFailures}
	}
	c := t.counts[pair]
	if c == nil {
		c = &PlanCount{EventType: pair[0], Consumer: pair[1]}
		t.counts[pair] = c
	}
	c.Targets++
	if force {
		c.Forced++
	}
	// What is parked waits behind all dead letters of its key.
	if key := [2]string{dl.Consumer, dl.OrderingKey}; dl.ParkedBehind > 0 && !t.keys[key] {
		t.keys[key] = true
		c.Parked += dl.ParkedBehind
		t.parked += dl.ParkedBehind
	}
}

func (t *tally) report() PlanReport {
	r := PlanReport{Targets: t.targets, Counts: []PlanCount{}, Groups: t.groups.list(), Skipped: t.skipped.list(), Parked: t.parked, Truncated: t.truncated}
	for _, c := range t.counts {
		r.Counts = append(r.Counts, *c)
	}
	slices.SortFunc(r.Counts, func(a, b PlanCount) int {
		return cmp.Or(cmp.Compare(a.EventType, b.EventType), cmp.Compare(a.Consumer, b.Consumer))
	})
	return r
}
