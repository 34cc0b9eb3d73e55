package main

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// A plan follows from its seed, its size and its first day.
func TestPlan(t *testing.T) {
	t.Parallel()
	outline := func(p *plan) (all []life) {
		for _, l := range p.lives {
			all = append(all, *l)
		}
		return all
	}
	p := newPlan(1, 100, firstDay)
	if again := newPlan(1, 100, firstDay); !reflect.DeepEqual(outline(p), outline(again)) || !reflect.DeepEqual(p.faults, again.faults) || len(p.days) != len(again.days) {
		t.Error("the same seed makes another plan")
	}
	for _, other := range []*plan{newPlan(2, 100, firstDay), newPlan(1, 100, firstDay.AddDate(0, 0, 7))} {
		if other.lives[0].caseID == p.lives[0].caseID {
			t.Error("another seed or day makes the same cases")
		}
	}
	seen := map[string]bool{}
	for _, l := range p.lives {
		if seen[l.caseID] || seen[l.reference] || !strings.HasPrefix(l.reference, "GA-2024") {
			t.Errorf("case %s, %s, is there twice, or has a bad reference", l.caseID, l.reference)
		}
		seen[l.caseID], seen[l.reference] = true, true
	}
	for n := 1; n < 40; n++ {
		if got := len(newPlan(1, n, firstDay).lives); got != n {
			t.Errorf("a plan of %d cases has %d", n, got)
		}
	}
}

// Working days have no weekends; and the clock goes on, and never back.
func TestClock(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "Mon 15", 4: "Fri 19", 5: "Mon 22", 11: "Tue 30"} {
		if got := opening(firstDay, n).Format("Mon 02"); got != want {
			t.Errorf("day %d is %s, want %s", n, got, want)
		}
	}
	c := newClock(firstDay)
	before := c.now()
	c.skip(-time.Hour)
	if now := c.now(); now.Before(before) || now.Sub(before) > time.Minute || now.Sub(firstDay) > time.Minute {
		t.Errorf("it was %s, and is %s", before, now)
	}
	c.skip(time.Hour)
	if passed := c.now().Sub(before); passed < time.Hour || passed > time.Hour+time.Minute {
		t.Errorf("%s have passed, want an hour", passed)
	}
}
