package routing

import (
	"maps"
	"reflect"
	"slices"

	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// compareType finds out which consumers treat events of a type alike by both tables, whatever is in them.
func (d *Differ) compareType(name string) typeDiff {
	t := typeDiff{old: d.old.types[name], now: d.now.types[name], same: map[string]bool{}}
	if t.old == nil || t.now == nil {
		return t
	}
	alike := sameEvents(d.old.file, d.now.file, t.old, t.now)
	t.allSame = true
	for _, consumer := range d.consumers {
		old, now := t.old.cells[consumer], t.now.cells[consumer]
		same := old == nil && now == nil || old != nil && now != nil && alike && d.sameCell(old, now)
		t.same[consumer], t.allSame = same, t.allSame && same
	}
	return t
}

// sameEvents reports whether payloads of a type are checked, seen and judged alike.
func sameEvents(before, after *routefile.File, old, now *eventType) bool {
	return slices.EqualFunc(old.src.Schemas, now.src.Schemas, func(s, t routefile.Schema) bool {
		return s.Version == t.Version && reflect.DeepEqual(s.Doc, t.Doc)
	}) && reflect.DeepEqual(before.Definitions, after.Definitions) && text(old.src.Critical) == text(now.src.Critical)
}

// sameCell reports whether a consumer treats events of a type alike, given that it sees them alike.
func (d *Differ) sameCell(old, now *cell) bool {
	if old.consumer.route.Ordered != now.consumer.route.Ordered { // and so in another lane
		return false
	}
	sameModifier := func(a, b *modifier) bool {
		return text(a.src.When) == text(b.src.When) && sameParams(a.src.Add, b.src.Add) && sameParams(a.src.Remove, b.src.Remove) && sameParams(a.src.Set, b.src.Set)
	}
	if !slices.EqualFunc(old.rules, now.rules, func(a, b rule) bool {
		return text(a.src.When) == text(b.src.When) && a.src.Continue == b.src.Continue && a.action().Equal(b.action()) &&
			slices.EqualFunc(a.modifiers, b.modifiers, sameModifier)
	}) {
		return false
	}
	before, after := old.context(d.old), now.context(d.now)
	return maps.EqualFunc(before, after, func(a, b *lookup) bool {
		return sameKey(keyFor(a.src, old.typ.src.Text), keyFor(b.src, now.typ.src.Text)) && sameLookup(a, b)
	})
}

// context are the lookups that the conditions of a cell may ask for.
func (c *cell) context(t *Table) map[string]*lookup {
	all := map[string]*lookup{}
	var add func(slots []int)
	add = func(slots []int) {
		for _, slot := range slots {
			if l := t.lookups[slot-1]; all[l.src.Text] == nil {
				all[l.src.Text] = l
				add(c.typ.keys[slot-1].needs)
			}
		}
	}
	for i := range c.rules {
		add(c.rules[i].needs)
		for _, m := range c.rules[i].modifiers {
			add(m.needs)
		}
	}
	return all
}

func sameKey(a, b *routefile.Key) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Expr.Text == b.Expr.Text
}

// sameLookup does not compare timeouts and caches: fixed lookups have none.
func sameLookup(a, b *lookup) bool {
	var schemas [2]any
	for i, l := range []*lookup{a, b} {
		if l.src.Schema != nil {
			schemas[i] = l.src.Schema.Doc
		}
	}
	return a.policy() == b.policy() && reflect.DeepEqual(a.src.Default, b.src.Default) && reflect.DeepEqual(schemas[0], schemas[1])
}

// sameParams compares what a modifier does, in whatever order it is written: the parameters of one map are different ones.
func sameParams(a, b []routefile.Param) bool {
	return reflect.DeepEqual(params(a), params(b))
}
