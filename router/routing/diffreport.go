package routing

import (
	"cmp"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// DiffReport is what two tables make of many events.
type DiffReport struct {
	Old TableName `json:"old"`
	New TableName `json:"new"`
	// Events is how many were looked at, and Differing how many of them have a delivery that differs.
	Events    int `json:"events"`
	Differing int `json:"differing"`
	// Unroutable is how many events are of types that neither table declares.
	Unroutable int `json:"unroutable"`
	// UnroutableTypes are the first three of these types that were met.
	UnroutableTypes []string `json:"unroutable_types,omitempty"`
	// Changes are by event type, consumer and kind.
	Changes []ChangeCount `json:"changes"`
	// Uncompared are the deliveries of which it is not known whether they differ.
	Uncompared []Uncompared `json:"uncompared"`
}

// TableName says which table it is.
type TableName struct {
	File    string `json:"file"`
	Version string `json:"routing_version"`
}

// ChangeCount counts the changes of one kind.
type ChangeCount struct {
	EventType string     `json:"event_type"`
	Consumer  string     `json:"consumer,omitempty"`
	Kind      ChangeKind `json:"kind"`
	Count     int        `json:"count"`
	// Examples are the first three.
	Examples []Change `json:"examples"`
}

// Uncompared counts deliveries that could not be compared.
type Uncompared struct {
	EventType string `json:"event_type"`
	Consumer  string `json:"consumer"`
	// Lookup is the one that has no result for the event's key; empty: the event needs an upcaster.
	Lookup string `json:"lookup,omitempty"`
	// Why says it in words.
	Why     string `json:"why"`
	Count   int    `json:"count"`
	Example string `json:"example_event_id"`
}

// Same reports whether no delivery differs, and all were compared.
func (r *DiffReport) Same() bool { return len(r.Changes) == 0 && len(r.Uncompared) == 0 }

const maxExamples = 3

// counts grow with what the tables declare, and not with the events.
type counts struct {
	events, differing, unroutable int

	unroutableTypes []string // the first maxExamples

	changes []ChangeCount
	lacking []Uncompared
	places  map[countKey]int
	lacks   map[lackKey]int
}

type countKey struct {
	eventType, consumer string
	kind                ChangeKind
}

type lackKey struct {
	eventType, consumer string
	lack
}

func (c *counts) add(changes []Change) {
	if len(changes) > 0 {
		c.differing++
	}
	for _, change := range changes {
		key := countKey{change.EventType, change.Consumer, change.Kind}
		i, known := c.places[key]
		if !known {
			if c.places == nil {
				c.places = map[countKey]int{}
			}
			i = len(c.changes)
			c.places[key] = i
			c.changes = append(c.changes, ChangeCount{EventType: change.EventType, Consumer: change.Consumer, Kind: change.Kind})
		}
		to := &c.changes[i]
		if to.Count++; len(to.Examples) < maxExamples {
			to.Examples = append(to.Examples, change)
		}
	}
}

func (c *counts) unroute(eventType string) {
	c.unroutable++
	if len(c.unroutableTypes) < maxExamples && !slices.Contains(c.unroutableTypes, eventType) {
		c.unroutableTypes = append(c.unroutableTypes, eventType)
	}
}

func (c *counts) uncompared(e eventing.Envelope, consumer string, l lack) {
	key := lackKey{e.Type, consumer, l}
	i, known := c.lacks[key]
	if !known {
		if c.lacks == nil {
			c.lacks = map[lackKey]int{}
		}
		i = len(c.lacking)
		c.lacks[key] = i
		c.lacking = append(c.lacking, Uncompared{EventType: e.Type, Consumer: consumer, Lookup: l.lookup, Why: l.why, Example: e.ID})
	}
	c.lacking[i].Count++
}

// Report returns what has been counted so far, sorted by event type, consumer and kind.
func (d *Differ) Report() DiffReport {
	r := DiffReport{
		Old: TableName{d.old.file.Name, d.old.Version()}, New: TableName{d.now.file.Name, d.now.Version()},
		Events: d.report.events, Differing: d.report.differing, Unroutable: d.report.unroutable, UnroutableTypes: slices.Clone(d.report.unroutableTypes),
		Changes: append([]ChangeCount{}, d.report.changes...), Uncompared: append([]Uncompared{}, d.report.lacking...),
	}
	for i := range r.Changes {
		r.Changes[i].Examples = slices.Clone(r.Changes[i].Examples)
	}
	slices.SortFunc(r.Changes, func(a, b ChangeCount) int {
		return cmp.Or(cmp.Compare(a.EventType, b.EventType), cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(r.Uncompared, func(a, b Uncompared) int {
		return cmp.Or(cmp.Compare(a.EventType, b.EventType), cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Why, b.Why))
	})
	return r
}
