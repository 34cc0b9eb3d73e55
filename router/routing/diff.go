package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// Change is a delivery that another table makes differ.
type Change struct {
	EventID   string `json:"event_id"`
	EventType string `json:"event_type"`
	// Consumer is empty for Routable and Unroutable, which are about the event as a whole.
	Consumer string     `json:"consumer,omitempty"`
	Kind     ChangeKind `json:"kind"`
	// Old and New are the delivery by the one table and by the other; nil: there is none.
	Old *Delivery `json:"old,omitempty"`
	New *Delivery `json:"new,omitempty"`
}

// ChangeKind says how a delivery differs.
type ChangeKind string

// The kinds of changes.
const (
	Gained  ChangeKind = "gained"  // the consumer gets the event, and did not
	Lost    ChangeKind = "lost"    // the consumer does not get it any more
	Changed ChangeKind = "changed" // it gets it, and does something else, or fails otherwise, or gets it in another lane
	// Routable: the old table does not declare the event's type, so that it was a dead letter at dispatch; Unroutable: now
	// it will be.
	Routable   ChangeKind = "routable"
	Unroutable ChangeKind = "unroutable"
)

// Delivery is what becomes of an event at a consumer.
type Delivery struct {
	// Actions are what the consumer does; nil: that is not known, see [Uncompared].
	Actions []Action `json:"actions"`
	// Lane in which the event comes. Ordered consumers know no lanes.
	Lane eventing.Lane `json:"lane,omitempty"`
	// Error and Reason as in [ConsumerExplanation]: why the attempt fails.
	Error  string              `json:"error,omitempty"`
	Reason eventing.ReasonCode `json:"reason,omitempty"`
}

// sameEnd compares what is done, or why it fails, but not what errors say: they name files and lines.
func (d *Delivery) sameEnd(other *Delivery) bool {
	return (d.Error == "") == (other.Error == "") && d.Reason == other.Reason && slices.EqualFunc(d.Actions, other.Actions, Action.Equal)
}

// Diff returns the deliveries of an event that differ between two tables, if lookups found what l says: none if both are of the
// same file. It has no effect. See [Differ] for many events, and for what it cannot tell.
func Diff(ctx context.Context, before, after *Table, e eventing.Envelope, l Lookups) []Change {
	return NewDiffer(before, after, l).Event(ctx, e)
}

// Differ compares two tables over events, one at a time, and counts the changes. Its memory does not grow with the number of
// events. It is not safe for concurrent use.
//
// What a consumer does about an event may depend on what a file does not have: on upcasters, for events of older schema versions, and on
// lookups that are not given. Then the report has it among what was not compared, unless nothing that matters for the delivery has
// changed between the files.
type Differ struct {
	old, now *Table
	lookups  Lookups

	consumers []string // of both
	types     map[string]typeDiff
	report    counts
}

// typeDiff is what is known of an event type before any event is looked at.
type typeDiff struct {
	old, now *eventType      // nil: not declared
	same     map[string]bool // consumers that treat each event alike by both tables
	allSame  bool
}

// NewDiffer returns one without events.
func NewDiffer(before, after *Table, l Lookups) *Differ {
	d := &Differ{old: before, now: after, lookups: l, types: map[string]typeDiff{}}
	d.consumers = before.Consumers()
	for _, name := range after.Consumers() {
		if before.consumers[name] == nil {
			d.consumers = append(d.consumers, name)
		}
	}
	return d
}

// Event compares what becomes of an event, adds it to the report, and returns the deliveries that differ.
func (d *Differ) Event(ctx context.Context, e eventing.Envelope) []Change {
	e.SchemaVersion = max(e.SchemaVersion, 1)
	d.report.events++
	typ, known := d.types[e.Type]
	if !known {
		if typ = d.compareType(e.Type); typ.old == nil && typ.now == nil {
			d.report.unroute(e.Type)
			return nil // and no word of it in types: who sends such events may invent any number of them
		}
		d.types[e.Type] = typ
	}
	if typ.allSame {
		return nil
	}
	var changes []Change
	add := func(kind ChangeKind, consumer string, old, now *Delivery) {
		changes = append(changes, Change{EventID: e.ID, EventType: e.Type, Consumer: consumer, Kind: kind, Old: old, New: now})
	}
	switch {
	case typ.old == nil:
		add(Routable, "", nil, nil)
	case typ.now == nil:
		add(Unroutable, "", nil, nil)
	}
	before, after := &side{table: d.old, typ: typ.old, envelope: e, lookups: d.lookups}, &side{table: d.now, typ: typ.now, envelope: e, lookups: d.lookups}
	for _, consumer := range d.consumers {
		if typ.same[consumer] {
			continue
		}
		old, now := before.delivery(ctx, consumer), after.delivery(ctx, consumer)
		switch {
		case old == nil && now == nil:
		case old == nil:
			add(Gained, consumer, nil, &now.Delivery)
		case now == nil:
			add(Lost, consumer, &old.Delivery, nil)
		case old.Lane != now.Lane:
			add(Changed, consumer, &old.Delivery, &now.Delivery)
		case old.unknown != lack{} || now.unknown != lack{}:
			d.report.uncompared(e, consumer, cmp.Or(old.unknown, now.unknown))
		case !old.sameEnd(&now.Delivery):
			add(Changed, consumer, &old.Delivery, &now.Delivery)
		case old.guessed != lack{} || now.guessed != lack{}:
			d.report.uncompared(e, consumer, cmp.Or(old.guessed, now.guessed))
		}
	}
	d.report.add(changes)
	return changes
}

// side is one event by one table.
type side struct {
	table    *Table
	typ      *eventType // nil: not declared
	envelope eventing.Envelope
	lookups  Lookups

	opened *event
	failed error // to open it
}

// judged is a delivery, with what keeps it from being known.
type judged struct {
	Delivery

	unknown lack // why it is not known at all
	guessed lack // why it may be another in truth
}

// lack is what keeps a delivery from being known. The zero value is nothing.
type lack struct{ lookup, why string }

// delivery returns nil if the consumer does not get the event.
func (s *side) delivery(ctx context.Context, consumer string) *judged {
	if s.typ == nil || s.typ.cells[consumer] == nil {
		return nil
	}
	d := &judged{}
	if !s.table.consumers[consumer].route.Ordered {
		d.Lane = s.table.Lane(s.envelope)
	}
	if s.opened == nil && s.failed == nil {
		s.opened, s.failed = s.table.open(s.envelope, nil)
	}
	err := s.failed
	if err == nil {
		from := tally{Lookups: s.lookups}
		d.Actions, err = s.table.decide(ctx, consumer, s.opened, &from, nil)
		d.guessed = from.missed
	}
	d.Actions = append([]Action{}, d.Actions...)
	var notGiven *notGivenError
	switch {
	case err == nil:
		return d
	case errors.Is(err, errNoUpcaster):
		d.unknown, d.Actions = lack{why: whyUpcast(s.envelope.SchemaVersion, s.typ)}, nil
		return d
	case errors.As(err, &notGiven):
		d.unknown = lackOf(notGiven.name)
	}
	d.Error, d.Actions = err.Error(), []Action{}
	if eventing.IsPermanent(err) {
		d.Reason = eventing.ReasonOf(err)
	}
	return d
}

// tally remembers that a lookup was not given.
type tally struct {
	Lookups

	missed lack
}

func (t *tally) find(ctx context.Context, l *lookup, key string) (any, error) {
	value, err := t.Lookups.find(ctx, l, key)
	if notGiven := (*notGivenError)(nil); errors.As(err, &notGiven) {
		t.missed = lackOf(l.src.Text)
	}
	return value, err
}

func lackOf(lookup string) lack {
	return lack{lookup, fmt.Sprintf("lookup %s has no result for the event's key", lookup)}
}

func whyUpcast(version int, typ *eventType) string {
	return fmt.Sprintf("version %d of its schema is brought to version %d by Go functions, which a routing file does not have", version, typ.latest())
}
