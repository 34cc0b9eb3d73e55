package routing

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// modifiers looks for modifiers that change nothing, or that others undo.
func (l *linter) modifiers() {
	impacts := l.impacts()
	all := l.meetings()
	for i := range l.table.file.Modifiers {
		src := &l.table.file.Modifiers[i]
		im := impacts[src]
		switch {
		case im == nil:
			l.warn(src.Pos, "modifier-never-applies", "%s", all.why(src))
			continue
		case im.all(func(m *modifier) bool { return isConstant(m.when, false) }):
			if !l.impossible[src.When] {
				l.warn(src.Pos, "modifier-never-applies", "the condition of modifier %s is false whatever the event: mend it, or remove the modifier", src.Text)
			}
			continue
		case src.When != nil && im.all(func(m *modifier) bool { return isConstant(m.when, true) }):
			l.alwaysTrue(src.When)
		}
		l.changes(im)
		l.scope(im)
	}
}

// changes tells of parameters that no action has, and of changes that change nothing.
func (l *linter) changes(im *impact) {
	for i, p := range im.src.Set {
		l.change(im, p, im.sets[i], "set")
	}
	for i, p := range im.src.Add {
		if c := im.adds[i]; l.change(im, p, c, "add to") {
			l.additions(im, p, c)
		}
	}
	for i, p := range im.src.Remove {
		if c := im.removes[i]; l.change(im, p, c, "remove from") {
			l.removals(im, p, c)
		}
	}
}

// change reports whether a modifier's change of a parameter comes to anything, and tells if not.
func (l *linter) change(im *impact, p routefile.Param, c change, verb string) bool {
	switch {
	case !c.met:
		l.warn(p.Pos, "modifier-without-parameter", "no action that modifier %s meets has a parameter %s for it to %s: give it to a rule, or remove it here", im.src.Text, p.Text, verb)
	case !c.stays:
		l.warn(p.Pos, "modifier-overridden", "modifier %s comes later, always applies and sets %s, so this is never seen: move this modifier behind that one, or remove it",
			c.by.Text, p.Text)
	}
	return c.met && c.stays
}

func (l *linter) additions(im *impact, p routefile.Param, c change) {
	for i, w := range p.Value.([]string) {
		switch one := c.words[i]; {
		case !one.stays && one.by == im.src:
			l.warn(p.ValuePos, "addition-removed", "modifier %s itself removes %s from %s, and removals win: remove one of the two", im.src.Text, w, p.Text)
		case !one.stays:
			l.warn(p.ValuePos, "addition-removed", "modifier %s always applies and removes %s from %s, and removals win: remove one of the two", one.by.Text, w, p.Text)
		case !one.matters:
			l.warn(p.ValuePos, "addition-without-effect", "each action that modifier %s meets has %s in %s already: remove it here", im.src.Text, w, p.Text)
		}
	}
}

func (l *linter) removals(im *impact, p routefile.Param, c change) {
	var idle []string
	for i, w := range p.Value.([]string) {
		if !c.words[i].matters {
			idle = append(idle, w)
		}
	}
	if len(idle) > 0 {
		l.warn(p.ValuePos, "removal-without-effect", "no action that modifier %s meets has %s in %s, and no modifier adds it: correct the spelling, or remove it here",
			im.src.Text, listed(idle), p.Text)
	}
}

// scope tells of names that narrow a modifier to what it never meets.
func (l *linter) scope(im *impact) {
	each := func(what string, names []routefile.Name, met map[string]bool) {
		if len(names) < 2 || slices.ContainsFunc(names, isAny) {
			return
		}
		for _, n := range names {
			if !met[n.Text] {
				l.warn(n.Pos, "modifier-scope-unused", "modifier %s can change nothing for %s %s: no rule that it meets there has a parameter that it is about; correct the name, or remove it",
					im.src.Text, what, n.Text)
			}
		}
	}
	each("consumer", im.src.Consumers, im.consumers)
	each("event type", im.src.Events, im.events)
	each("action", im.src.Actions, im.actions)
}

func isAny(n routefile.Name) bool { return n.Text == routefile.Any }

// meetings knows which consumers take which actions about which event types.
type meetings struct {
	list                       []meeting
	consumers, events, actions map[string][]meeting
	suggested                  int
}

type meeting struct{ consumer, event, action string }

func (l *linter) meetings() *meetings {
	ms := &meetings{consumers: map[string][]meeting{}, events: map[string][]meeting{}, actions: map[string][]meeting{}}
	seen := map[meeting]bool{}
	l.eachRule(func(c *cell, r *rule) {
		m := meeting{c.consumer.src.Text, c.typ.src.Text, r.src.Do.Text}
		if seen[m] {
			return
		}
		seen[m] = true
		ms.list = append(ms.list, m)
		ms.consumers[m.consumer] = append(ms.consumers[m.consumer], m)
		ms.events[m.event] = append(ms.events[m.event], m)
		ms.actions[m.action] = append(ms.actions[m.action], m)
	})
	return ms
}

// suggest names what was probably meant, in the findings that somebody reads: it takes time.
func (ms *meetings) suggest(name string, known iter.Seq[string]) string {
	if ms.suggested++; ms.suggested > maxSuggested {
		return ""
	}
	return suggest(name, known)
}

// why says why a modifier meets no action that it could change.
func (ms *meetings) why(src *routefile.Modifier) string {
	list := ms.list // the shortest one that has all that the modifier may meet
	narrow := func(what string, names []routefile.Name, by map[string][]meeting) (unknown string) {
		if len(names) == 0 || slices.ContainsFunc(names, isAny) {
			return ""
		}
		var some []meeting
		for _, n := range names {
			some = append(some, by[n.Text]...)
		}
		if len(some) < len(list) {
			list = some
		}
		if len(some) == 0 {
			return fmt.Sprintf("%s %s%s", what, names[0].Text, ms.suggest(names[0].Text, maps.Keys(by)))
		}
		return ""
	}
	for _, unknown := range []string{
		narrow("consumer", src.Consumers, ms.consumers), narrow("event type", src.Events, ms.events), narrow("action", src.Actions, ms.actions),
	} {
		if unknown != "" {
			return fmt.Sprintf("modifier %s never applies: no rule of a ticked cell has %s; correct the name, or remove the modifier", src.Text, unknown)
		}
	}
	if !slices.ContainsFunc(list, func(m meeting) bool {
		return inScope(src.Consumers, m.consumer) && inScope(src.Events, m.event) && inScope(src.Actions, m.action)
	}) {
		return fmt.Sprintf("modifier %s never applies: no ticked cell of its consumers and events has one of its actions; widen its scope, or remove it", src.Text)
	}
	var names []string
	for _, p := range slices.Concat(src.Set, src.Add, src.Remove) {
		if !slices.Contains(names, p.Text) {
			names = append(names, p.Text)
		}
	}
	return fmt.Sprintf("modifier %s never applies: no action in its scope has a parameter %s that it could change; give it to a rule, or remove the modifier",
		src.Text, strings.Join(names, " or "))
}
