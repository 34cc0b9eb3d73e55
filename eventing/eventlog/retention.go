package eventlog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// category is a retention that has been checked.
type category struct {
	eventing.Retention
	// dependents are the other categories in which events of this one end or begin lives.
	dependents []*category
}

// marks reports whether an event type ends or begins again a life in the category.
func (c *category) marks(eventType string) bool {
	return slices.Contains(c.After, eventType) || slices.Contains(c.Unless, eventType)
}

// compile checks a retention.
func compile(retention []eventing.Retention) ([]*category, error) {
	list := make([]*category, len(retention))
	of := map[string]string{} // event type → category
	for i, r := range retention {
		list[i] = &category{Retention: eventing.Retention{
			Category: r.Category, Keep: r.Keep, Types: distinct(r.Types), After: distinct(r.After), Unless: distinct(r.Unless),
		}}
		if err := check(r); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(retention[:i], func(other eventing.Retention) bool { return other.Category == r.Category }) {
			return nil, fmt.Errorf("category %s: it is there twice: name each category once", r.Category)
		}
		for _, t := range list[i].Types {
			if other, taken := of[t]; taken {
				return nil, fmt.Errorf("event type %s: it is of the categories %s and %s: leave it in one", t, other, r.Category)
			}
			of[t] = r.Category
		}
	}
	for _, c := range list {
		for _, other := range list {
			if other != c && slices.ContainsFunc(c.Types, other.marks) {
				c.dependents = append(c.dependents, other)
			}
		}
	}
	for _, c := range list {
		if c.reaches(c, map[*category]bool{}) {
			return nil, fmt.Errorf("category %s: whether its aggregates live is said by events of another category, and the other way round: each would wait for the other's events to go", c.Category)
		}
	}
	return list, nil
}

func check(r eventing.Retention) error {
	switch {
	case r.Category == "":
		return fmt.Errorf("the category of %s has no name", strings.Join(r.Types, ", "))
	case r.Keep.IsZero():
		return fmt.Errorf("category %s: Keep is missing; to keep its events for ever, leave the category out", r.Category)
	case r.Keep.Years < 0 || r.Keep.Days < 0 || r.Keep.Rest < 0:
		return fmt.Errorf("category %s: Keep is %v: it must not be negative", r.Category, r.Keep)
	case len(r.After) == 0 && len(r.Unless) > 0:
		return fmt.Errorf("category %s: Unless is of use with After only: say which events end the life that %s begins again", r.Category, r.Unless[0])
	}
	for _, t := range slices.Concat(r.Types, r.After, r.Unless) {
		if t == "" || t == "*" {
			return fmt.Errorf("category %s: %q is no event type: name the types one by one", r.Category, t)
		}
	}
	for _, t := range r.After {
		if slices.Contains(r.Unless, t) {
			return fmt.Errorf("category %s: %s is in After and in Unless: an event either ends a life or begins it again", r.Category, t)
		}
	}
	return nil
}

// reaches reports whether a category waits for another, if only through others.
func (c *category) reaches(other *category, seen map[*category]bool) bool {
	for _, d := range c.dependents {
		if d == other {
			return true
		}
		if !seen[d] {
			seen[d] = true
			if d.reaches(other, seen) {
				return true
			}
		}
	}
	return false
}

func distinct(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// border returns the time before which something must have happened to be longer ago than a period.
// ok is false if nothing can.
func border(keep eventing.Period, now time.Time) (t time.Time, ok bool) {
	now = now.UTC()
	t = keep.Before(now)
	if t.AddDate(keep.Years, 0, keep.Days).Add(keep.Rest).After(now) {
		t = t.AddDate(0, 0, -1) // on 29 February: else what happened on 1 March would go a day early
	}
	return t.Truncate(time.Microsecond), t.Year() >= 1
}
