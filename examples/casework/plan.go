package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// plan is what is going to happen: all of it follows from a seed, a number of cases and the day on which it begins.
type plan struct {
	seed  uint64
	run   string // tells the IDs of one run from those of another
	lives []*life
	days  []*day
	// faults say, by place and key, at how many calls there will be a fault. See switches.
	faults map[string]map[string]int
}

// day is a working day.
type day struct {
	acts     []planned
	payments []*life // they go out in a batch
	answers  []subemaAnswer
}

type planned struct {
	*life
	act act
}

// subemaAnswer is what Subema says about a payment, at which try.
type subemaAnswer struct {
	*life
	processed bool
	try       int
}

// forGood is more often than anybody calls.
const forGood = 1 << 30

func newPlan(seed uint64, cases int, first time.Time) *plan {
	r := rand.New(rand.NewPCG(seed, uint64(first.Unix()))) //nolint:gosec // not a secret, and to be repeated
	p := &plan{seed: seed, run: fmt.Sprintf("%d-%s", seed, first.Format("20060102")), faults: map[string]map[string]int{}}
	var honest, suspects []*life
	for n := range cases {
		story := pick(r, n)
		l := newLife(r, p.run, n)
		l.story = story.name
		l.first = n * startDays / cases // those of the first days are there to be copied
		p.lives = append(p.lives, l)
		if story.suspect {
			l.first += startDays
			suspects = append(suspects, l)
		} else {
			p.fail(l)
			honest = append(honest, l)
		}
	}
	for i, l := range suspects {
		l.copy(honest[2*i%len(honest)], honest[(2*i+1)%len(honest)])
	}
	slices.SortStableFunc(p.lives, func(a, b *life) int { return a.first - b.first })
	perDay := map[int]int{}
	for _, l := range p.lives {
		perDay[l.first]++
		l.reference = fmt.Sprintf("GA-%s-%04d", opening(first, l.first).Format("20060102"), perDay[l.first])
		stories[slices.IndexFunc(stories, func(s story) bool { return s.name == l.story })].tell(&script{l, p, l.first})
	}
	return p
}

// startDays are those on which honest citizens apply; the others copy them after that.
const startDays = 4

// pick chooses the story of the nth case.
func pick(r *rand.Rand, n int) story {
	if n < len(stories) {
		return stories[n]
	}
	total := 0
	for _, s := range stories {
		total += s.weight
	}
	at, i := r.IntN(total), 0
	for ; at >= stories[i].weight; i++ { // which ends: at is less than the sum
		at -= stories[i].weight
	}
	return stories[i]
}

// copy makes a case suspicious: the same citizen has just applied for something else, with the same paper, and
// somebody else lives at that address.
func (l *life) copy(earlier, neighbour *life) {
	neighbour.citizen.address = earlier.citizen.address
	l.citizen = earlier.citizen
	l.documents[0].file, l.documents[0].size = earlier.documents[0].file, earlier.documents[0].size
}

// fail plans what fails around a case.
func (p *plan) fail(l *life) {
	add := func(where, key string, times int) {
		if p.faults[where] == nil {
			p.faults[where] = map[string]int{}
		}
		p.faults[where][key] = times
	}
	switch l.number % 25 {
	case 0:
		l.citizen.sms = true
		add("channel sms", l.caseID, forGood)
	case 1:
		add("channel email", l.caseID, 2)
	case 2:
		add("watch list", l.caseID, forGood)
	case 3:
		add("lookup case", l.caseID, 2)
	case 4:
		add("audit log", l.caseID, 3)
	case 5:
		add("lookup citizen", l.citizen.id, 1)
	case 6:
		add("channel email", l.caseID, forGood)
	case 7:
		add("watch list", l.caseID, 2)
	case 8:
		add("lookup office", l.office.id, 3)
	}
}

var (
	errOutage  = errors.New("connection refused")
	errNoPhone = errors.New("the number is not in service")
)

// install puts the planned faults where they belong.
func (p *plan) install(s *switches) {
	kinds := map[string]fault{"channel sms": failing(errNoPhone), "lookup citizen": hang}
	for where, times := range p.faults {
		kind := kinds[where]
		if kind == nil {
			kind = failing(errOutage)
		}
		s.turn(where, flapping(times, kind))
	}
}

func failing(err error) fault { return func(context.Context, string) error { return err } }

// day returns the nth day, made if need be.
func (p *plan) day(n int) *day {
	for len(p.days) <= n {
		p.days = append(p.days, new(day))
	}
	return p.days[n]
}
