package routing

import (
	"slices"

	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// impact is what a modifier can do to the actions that it meets: those that have one of its parameters.
type impact struct {
	src                        *routefile.Modifier
	compiled                   []*modifier // by event type
	sets, adds, removes        []change    // as the modifier has them
	consumers, events, actions map[string]bool
}

// change is what a modifier does to a parameter.
type change struct {
	met   bool                // an action has the parameter
	stays bool                // for an action at least, nothing later replaces the result for sure
	by    *routefile.Modifier // what replaces it
	words []wordChange        // added or removed
}

type wordChange struct {
	matters bool                // a list may lack what is added, or have what is removed
	stays   bool                // it is added, and not removed again for sure
	by      *routefile.Modifier // what removes it
}

func newImpact(src *routefile.Modifier) *impact {
	im := &impact{src: src, consumers: map[string]bool{}, events: map[string]bool{}, actions: map[string]bool{}, sets: make([]change, len(src.Set))}
	lists := func(params []routefile.Param) []change {
		changes := make([]change, len(params))
		for i, p := range params {
			changes[i].words = make([]wordChange, len(p.Value.([]string)))
		}
		return changes
	}
	im.adds, im.removes = lists(src.Add), lists(src.Remove)
	return im
}

// all reports whether something is so for all event types that the modifier meets.
func (im *impact) all(is func(*modifier) bool) bool {
	return !slices.ContainsFunc(im.compiled, func(m *modifier) bool { return !is(m) })
}

// meets notes the names that the modifier has among others: one alone is met, or nothing is.
func (im *impact) meets(c *cell, r *rule) {
	if len(im.src.Consumers) > 1 {
		im.consumers[c.consumer.src.Text] = true
	}
	if len(im.src.Events) > 1 {
		im.events[c.typ.src.Text] = true
	}
	if len(im.src.Actions) > 1 {
		im.actions[r.src.Do.Text] = true
	}
}

// impacts finds out what each modifier does, by looking once at each pair of a modifier and an action that it meets.
func (l *linter) impacts() map[*routefile.Modifier]*impact {
	impacts := map[*routefile.Modifier]*impact{}
	for _, m := range l.compiled() {
		if impacts[m.src] == nil {
			impacts[m.src] = newImpact(m.src)
		}
		impacts[m.src].compiled = append(impacts[m.src].compiled, m)
	}
	l.eachRule(func(c *cell, r *rule) {
		if len(r.modifiers) == 0 {
			return
		}
		o := outcomeOf(r)
		for i, m := range r.modifiers {
			im := impacts[m.src]
			im.meets(c, r)
			o.judge(im, i)
		}
	})
	return impacts
}

// compiled are the modifiers that meet an action, for each event type, in a fixed order.
func (l *linter) compiled() []*modifier {
	if l.met != nil {
		return l.met
	}
	seen := map[*modifier]bool{}
	l.eachRule(func(_ *cell, r *rule) {
		for _, m := range r.modifiers {
			if !seen[m] {
				seen[m] = true
				l.met = append(l.met, m)
			}
		}
	})
	return l.met
}

// eachRule calls f with the rules of all cells that are ticked.
func (l *linter) eachRule(f func(*cell, *rule)) {
	for _, t := range l.types {
		for _, c := range l.table.order {
			if to := t.cells[c.src.Text]; to != nil {
				for i := range to.rules {
					f(to, &to.rules[i])
				}
			}
		}
	}
}

// possible is what the modifiers of a rule together may make of its action.
type possible struct {
	rule    *rule
	words   map[word]bool                // that lists may have, at some point
	removed map[word]*routefile.Modifier // what lists have lost in the end, for sure, and by which modifier
	set     map[string]int               // the last modifier that sets a parameter for sure, or -1 if one may
}

// word is one of a list parameter.
type word struct{ param, text string }

func outcomeOf(r *rule) possible {
	o := possible{r, map[word]bool{}, map[word]*routefile.Modifier{}, map[string]int{}}
	may := func(param string, value any) {
		list, _ := value.([]string)
		for _, w := range list {
			o.words[word{param, w}] = true
		}
	}
	for param, value := range r.action().params {
		may(param, value)
	}
	for i, m := range r.modifiers {
		sure := always(m.when, m.needs)
		for _, p := range m.src.Set {
			may(p.Text, p.Value)
			if _, known := o.set[p.Text]; sure {
				o.set[p.Text] = i
			} else if !known {
				o.set[p.Text] = -1
			}
		}
		for _, p := range m.src.Add {
			may(p.Text, p.Value)
		}
		for _, p := range m.src.Remove {
			for _, w := range p.Value.([]string) {
				if sure {
					o.removed[word{p.Text, w}] = m.src
				}
			}
		}
	}
	return o
}

// judge adds to an impact what the i-th modifier of the rule does to its action.
func (o possible) judge(im *impact, i int) {
	for k, p := range im.src.Set {
		if _, given := o.rule.action().params[p.Text]; given {
			o.replaced(&im.sets[k], p.Text, i)
		}
	}
	for k, p := range im.src.Add {
		have, given := o.rule.action().params[p.Text].([]string)
		if !given {
			continue
		}
		o.replaced(&im.adds[k], p.Text, i)
		_, replaced := o.set[p.Text]
		for n, w := range p.Value.([]string) {
			c := &im.adds[k].words[n]
			c.matters = c.matters || replaced || !slices.Contains(have, w)
			switch by := o.removed[word{p.Text, w}]; {
			case by != nil:
				c.by = by
			case removes(im.src, p.Text, w):
				c.by = im.src
			default:
				c.stays = true
			}
		}
	}
	for k, p := range im.src.Remove {
		if _, given := o.rule.action().params[p.Text].([]string); !given {
			continue
		}
		c := &im.removes[k]
		c.met, c.stays = true, true // removals win
		for n, w := range p.Value.([]string) {
			c.words[n].matters = c.words[n].matters || o.words[word{p.Text, w}]
		}
	}
}

// replaced notes whether a modifier after the i-th sets the parameter for sure.
func (o possible) replaced(c *change, param string, i int) {
	c.met = true
	if last, set := o.set[param]; set && last > i {
		c.by = o.rule.modifiers[last].src
		return
	}
	c.stays = true
}

func removes(m *routefile.Modifier, param, word string) bool {
	return slices.ContainsFunc(m.Remove, func(p routefile.Param) bool {
		return p.Text == param && slices.Contains(p.Value.([]string), word)
	})
}
