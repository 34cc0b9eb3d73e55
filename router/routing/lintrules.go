package routing

import (
	"encoding/json"

	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// rules looks for rules of a cell that can never decide, or whose condition decides nothing.
func (l *linter) rules(u use) {
	shadows := make([][]int, len(u.cells)) // of each rule: the rule that comes first, or -1
	twins := make([][]int, len(u.cells))
	for i, c := range u.cells {
		shadows[i], twins[i] = l.order(c.rules)
	}
	for i := range u.src.Rules {
		src := &u.src.Rules[i]
		allOf := func(is func(*rule) bool) bool {
			for _, c := range u.cells {
				if !is(&c.rules[i]) {
					return false
				}
			}
			return true
		}
		switch earlier, twin := first(shadows, i), first(twins, i); {
		case allOf(func(r *rule) bool { return isConstant(r.when, false) }):
			if !l.impossible[src.When] {
				l.warn(src.Pos, "rule-never-matches", "the condition of this rule is false whatever the event: mend it, or remove the rule")
			}
		case earlier >= 0 && always(u.cells[0].rules[earlier].when, u.cells[0].rules[earlier].needs):
			l.warn(src.Pos, "rule-shadowed", "the rule in line %d always matches, so this one is never tried: move this one before it, or give that one a condition or \"continue: true\"",
				u.src.Rules[earlier].Pos.Line)
		case earlier >= 0:
			l.warn(src.Pos, "rule-shadowed", "the rule in line %d has the same condition and comes first, so this one never matches: mend one of them, or give that one \"continue: true\"",
				u.src.Rules[earlier].Pos.Line)
		case twin >= 0:
			l.warn(src.Pos, "rule-repeated", "the rule in line %d takes the same action on the same condition, and continues, so it would be taken twice: remove one of them",
				u.src.Rules[twin].Pos.Line)
		}
		if src.When != nil && allOf(func(r *rule) bool { return isConstant(r.when, true) }) {
			l.alwaysTrue(src.When)
		}
	}
}

func (l *linter) alwaysTrue(when *routefile.Expr) {
	if !l.impossible[when] {
		l.warn(when.Pos, "condition-always-true", "this condition is true whatever the event: mend it, or leave it out")
	}
}

// first is the other rule that each cell has found for a rule; that of the first cell, or -1 if a cell has found none.
func first(found [][]int, i int) int {
	for _, one := range found {
		if one[i] < 0 {
			return -1
		}
	}
	return found[0][i]
}

// order finds for each rule the earlier one that keeps it from ever matching, and the one whose action it repeats.
func (l *linter) order(rules []rule) (shadows, twins []int) {
	shadows, twins = make([]int, len(rules)), make([]int, len(rules))
	decides := -1 // the first that always matches and does not continue
	byKey, byAction := map[string]int{}, map[string]int{}
	for i := range rules {
		r := &rules[i]
		shadows[i], twins[i] = decides, -1
		key := l.key(r.when)
		action := key + "\x00" + actionKey(r.action())
		if earlier, known := byKey[key]; known && decides < 0 {
			shadows[i] = earlier
		}
		if twin, known := byAction[action]; known {
			twins[i] = twin
		}
		switch _, known := byKey[key]; {
		case r.src.Continue:
			byAction[action] = i
		case decides < 0 && always(r.when, r.needs) && !l.impossible[r.src.When]:
			decides = i
		case !known:
			byKey[key] = i
		}
	}
	return shadows, twins
}

// actionKey identifies an action: equal ones have equal keys.
func actionKey(a Action) string {
	text, err := json.Marshal(a)
	if err != nil { // parameters are texts, numbers, bools and lists of texts
		return err.Error()
	}
	return string(text)
}

// comparisons looks for comparisons with words that the schema does not have, in all conditions and keys.
func (l *linter) comparisons() {
	c := impossible{uses: map[*routefile.Expr]int{}, at: map[routefile.Pos]*comparison{}}
	for _, t := range l.types {
		if t.src.Critical != nil {
			for _, version := range versionsOf(t) {
				c.look(t.src.Critical, t.critical[version])
			}
		}
		for i := range t.keys {
			if k := t.keys[i]; k.program != nil {
				c.look(&k.src.Expr, k.program)
			}
		}
		for _, one := range l.table.order {
			if to := t.cells[one.src.Text]; to != nil {
				for i := range to.rules {
					c.look(to.rules[i].src.When, to.rules[i].when)
				}
			}
		}
	}
	for _, m := range l.compiled() {
		c.look(m.src.When, m.when)
	}
	for _, one := range c.order {
		if one.times == c.uses[one.in] {
			l.warn(one.pos, "impossible-comparison", "%s", one.message)
			l.impossible[one.in] = true
		}
	}
}

func versionsOf(t *eventType) []int {
	if len(t.versions) == 0 {
		return []int{0}
	}
	return t.versions
}

// impossible collects comparisons that cannot hold, by place.
type impossible struct {
	uses  map[*routefile.Expr]int // how often an expression is compiled
	at    map[routefile.Pos]*comparison
	order []*comparison
}

type comparison struct {
	in      *routefile.Expr
	pos     routefile.Pos
	message string
	times   int
}

func (c *impossible) look(in *routefile.Expr, p *condition.Program) {
	if p == nil {
		return
	}
	c.uses[in]++
	for _, f := range p.Impossible() {
		pos := in.At(f.Line, f.Column)
		one := c.at[pos]
		if one == nil {
			one = &comparison{in: in, pos: pos, message: f.Message}
			if len(c.order) < maxSuggested {
				one.message += f.Suggestion()
			}
			c.at[pos] = one
			c.order = append(c.order, one)
		}
		one.times++
	}
}
