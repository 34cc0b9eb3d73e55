package routing

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// keys compiles how each event type finds the keys of the lookups that its conditions may ask for.
// Which it does is known only then: a lookup that no condition on a type uses needs no key for it.
func (c *compiler) keys() {
	c.checkKeyTypes()
	for _, t := range c.table.types {
		t.keys = make([]key, len(c.table.lookups))
	}
}

func (c *compiler) checkKeyTypes() {
	for _, l := range c.table.lookups {
		for _, k := range l.src.Keys {
			if k.Type.Text != routefile.Any {
				c.eventType(k.Type)
			}
		}
	}
}

// reach compiles the keys of the lookups that a condition on a type needs, and of those that they need. path are the
// lookups on the way.
func (c *compiler) reach(t *eventType, slots []int, path []int) {
	for _, slot := range slots {
		l := c.table.lookups[slot-1]
		if at := slices.Index(path, slot); at >= 0 {
			var names []string
			for _, s := range append(path[at:len(path):len(path)], slot) {
				names = append(names, c.table.lookups[s-1].src.Text)
			}
			c.fault(l.src.Pos, "lookups need each other's values for their keys: %s", strings.Join(names, " → "))
			return
		}
		k := &t.keys[slot-1]
		if k.src != nil {
			continue
		}
		if k.src = keyFor(l.src, t.src.Text); k.src == nil {
			c.fault(l.src.Pos, "lookup %s has no key for %s, and conditions on it need one: add it under key, or \"*\"", l.src.Text, t.src.Text)
			k.src = &routefile.Key{}
			continue
		}
		k.program = c.program(t, &k.src.Expr, condition.Text)
		k.needs = needs(k.program)
		c.reach(t, k.needs, append(path[:len(path):len(path)], slot))
	}
}

// keyFor returns the key for events of a type, or that for all.
func keyFor(l *routefile.Lookup, eventType string) (found *routefile.Key) {
	for i := range l.Keys {
		switch l.Keys[i].Type.Text {
		case eventType:
			return &l.Keys[i]
		case routefile.Any:
			found = &l.Keys[i]
		}
	}
	return found
}

// cells puts the rules and modifiers into each cell that is ticked. Those of others are checked as far as
// names go; lint finds them.
func (c *compiler) cells() {
	for i := range c.file.Cells {
		src := &c.file.Cells[i]
		one := c.consumer(src.Consumer)
		if one != nil {
			for k := range src.Rules {
				c.params(one, src.Rules[k].With, true)
			}
		}
		if src.Type.Text != routefile.Any {
			if t := c.eventType(src.Type); t != nil && t.cells[src.Consumer.Text] != nil {
				t.cells[src.Consumer.Text].own = true
				c.rules(t.cells[src.Consumer.Text], src)
			}
		}
	}
	visited := 0
	for i := range c.file.Cells {
		src := &c.file.Cells[i]
		if src.Type.Text != routefile.Any {
			continue
		}
		if visited += len(c.file.Events); visited > c.most.visited {
			c.fault(src.Consumer.Pos, "more than %d cells that \"*\" could be for", c.most.visited)
			return
		}
		for _, e := range c.file.Events {
			if cell := c.table.types[e.Text].cells[src.Consumer.Text]; cell != nil && !cell.own {
				c.rules(cell, src)
			}
		}
	}
	c.modifiers()
}

func (c *compiler) rules(to *cell, src *routefile.Cell) {
	if c.met.rules += len(src.Rules); c.met.rules > c.most.rules {
		c.faultAbout(to.typ.src.Text, src.Consumer.Pos, "more than %d rules, those of \"*\" counted for each event type", c.most.rules)
		return
	}
	to.rules = make([]rule, len(src.Rules))
	for i := range src.Rules {
		r := &to.rules[i]
		r.src = &src.Rules[i]
		c.ask(asked{to.typ, r.src.When, &r.when, &r.needs})
		params := map[string]any{}
		for _, p := range r.src.With {
			params[p.Text] = p.Value
		}
		r.alone = []Action{{Name: r.src.Do.Text, Line: r.src.Pos.Line, params: params}}
	}
}

// params checks parameters against their declaration; those that have none only if they are all meant for this consumer.
func (c *compiler) params(one *consumer, params []routefile.Param, all bool) {
	if one.src.Parameters == nil {
		return
	}
	for _, p := range params {
		i := slices.IndexFunc(one.src.Parameters, func(d routefile.Parameter) bool { return d.Text == p.Text })
		switch {
		case i < 0 && !all:
			continue
		case i < 0:
			c.fault(p.Pos, "consumer %s declares no parameter %s%s", one.src.Text, p.Text, c.suggest(p.Text, parameterNames(one)))
			continue
		}
		declared := one.src.Parameters[i]
		words, kind := wordsOf(p.Value)
		if kind != declared.Kind {
			c.fault(p.ValuePos, "parameter %s is declared as a %s, and this is a %s", p.Text, declared.Kind, kind)
			continue
		}
		for _, w := range words {
			if declared.Words != nil && !slices.Contains(declared.Words, w) {
				c.fault(p.ValuePos, "parameter %s may not be %q%s; it is declared as one of %s", p.Text, w, c.suggest(w, slices.Values(declared.Words)), strings.Join(declared.Words, ", "))
			}
		}
	}
}

func parameterNames(one *consumer) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, p := range one.src.Parameters {
			if !yield(p.Text) {
				return
			}
		}
	}
}

// wordsOf returns the texts in a parameter's value, and its kind.
func wordsOf(value any) ([]string, routefile.Kind) {
	switch v := value.(type) {
	case []string:
		return v, routefile.List
	case string:
		return []string{v}, routefile.Text
	case bool:
		return nil, routefile.Bool
	}
	return nil, routefile.Number
}

// place is a rule of a cell.
type place struct {
	cell *cell
	rule *rule
}

// modifiers takes each modifier for the event types that it can meet, and adds it to each rule whose action it could change.
func (c *compiler) modifiers() {
	having := map[string][]place{} // by parameter, the rules that give it
	for _, e := range c.file.Events {
		for _, cell := range c.table.types[e.Text].ticked {
			for i := range cell.rules {
				for name := range cell.rules[i].action().params {
					having[name] = append(having[name], place{cell, &cell.rules[i]})
				}
			}
		}
	}
	visited := 0
	for i := range c.file.Modifiers {
		src := &c.file.Modifiers[i]
		c.scopeOf(src)
		params := slices.Concat(src.Add, src.Remove, src.Set)
		for _, p := range params {
			visited += len(having[p.Text])
		}
		if visited > c.most.visited {
			c.fault(src.Pos, "more than %d pairs of a rule and a modifier of one of its parameters: give parameters of their own to what is not to be modified", c.most.visited)
			return
		}
		c.modifier(src, params, having)
	}
}

// scopeOf checks the names of a modifier's scope.
func (c *compiler) scopeOf(src *routefile.Modifier) {
	for _, n := range src.Events {
		if n.Text != routefile.Any {
			c.eventType(n)
		}
	}
	for _, n := range src.Consumers {
		if one := c.consumer(n); one != nil {
			c.params(one, slices.Concat(src.Add, src.Remove, src.Set), true)
		}
	}
}

func (c *compiler) modifier(src *routefile.Modifier, params []routefile.Param, having map[string][]place) {
	byType := map[*eventType]*modifier{}
	checked := map[*consumer]bool{}
	events, consumers, actions := setOf(src.Events), setOf(src.Consumers), setOf(src.Actions)
	for _, p := range params {
		for _, at := range having[p.Text] {
			t, one := at.cell.typ, at.cell.consumer
			if !events.has(t.src.Text) || !consumers.has(one.src.Text) || !actions.has(at.rule.src.Do.Text) || !touches(src, at.rule.action()) {
				continue
			}
			if n := len(at.rule.modifiers); n > 0 && at.rule.modifiers[n-1].src == src {
				continue // by another parameter
			}
			m := byType[t]
			if m == nil {
				m = &modifier{src: src}
				c.ask(asked{t, src.When, &m.when, &m.needs})
				byType[t] = m
			}
			at.rule.modifiers = append(at.rule.modifiers, m)
			c.sameKinds(src, at.rule.action())
			if len(src.Consumers) == 0 && !checked[one] {
				checked[one] = true
				c.params(one, params, false)
			}
		}
	}
}

// names are a scope: nil is all.
type names map[string]bool

func setOf(list []routefile.Name) names {
	if len(list) == 0 {
		return nil
	}
	set := names{}
	for _, n := range list {
		if n.Text == routefile.Any {
			return nil
		}
		set[n.Text] = true
	}
	return set
}

func (s names) has(name string) bool { return s == nil || s[name] }

// sameKinds complains of a modifier that would make another kind of a parameter.
func (c *compiler) sameKinds(src *routefile.Modifier, a Action) {
	for _, p := range src.Set {
		if given, is := a.params[p.Text]; is {
			_, have := wordsOf(given)
			if _, want := wordsOf(p.Value); have != want {
				c.fault(p.ValuePos, "modifier %s sets %s to a %s, and the rule in line %d has a %s", src.Text, p.Text, want, a.Line, have)
			}
		}
	}
}

func inScope(names []routefile.Name, name string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(n routefile.Name) bool { return n.Text == name || n.Text == routefile.Any })
}

// touches reports whether a modifier could change an action: it has a parameter that the modifier is about.
func touches(m *routefile.Modifier, a Action) bool {
	has := func(p routefile.Param) bool { _, is := a.params[p.Text].([]string); return is }
	return slices.ContainsFunc(m.Add, has) || slices.ContainsFunc(m.Remove, has) ||
		slices.ContainsFunc(m.Set, func(p routefile.Param) bool { _, is := a.params[p.Text]; return is })
}

func (c *compiler) retention() {
	seen := map[string]bool{}
	for _, r := range c.file.Retention {
		if seen[r.Category.Text] {
			c.fault(r.Category.Pos, "category %s has two retentions", r.Category.Text)
		}
		seen[r.Category.Text] = true
		for _, n := range slices.Concat(r.After, r.Unless) {
			c.eventType(n)
		}
		if r.Keep.IsZero() {
			c.fault(r.Category.Pos, "category %s is kept for no time at all: say how long, such as 7y", r.Category.Text)
		}
	}
	for _, e := range c.file.Events {
		if name := e.Category; name.Text != "" && !seen[name.Text] {
			c.fault(name.Pos, "category %s has no retention%s: add it under retention", name.Text, c.suggest(name.Text, maps.Keys(seen)))
		}
	}
}

// suggest names what was probably meant, in the faults that somebody reads: it takes time.
func (c *compiler) suggest(name string, known iter.Seq[string]) string {
	if len(c.faults) > maxSuggested || c.met.comparisons > maxComparisons {
		return ""
	}
	names := slices.Collect(known)
	c.met.comparisons += len(names)
	return suggest(name, slices.Values(names))
}

// suggest names what was probably meant.
func suggest(name string, known iter.Seq[string]) string { return routefile.Suggest(name, known) }

const maxSuggested, maxComparisons = 50, 200_000
