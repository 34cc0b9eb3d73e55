package routing

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// coverage is what of a table was reached. A nil one remembers nothing.
type coverage struct {
	cells     map[*cell]bool
	rules     map[*routefile.Rule]bool
	modifiers map[*routefile.Modifier]bool
}

func newCoverage() *coverage {
	return &coverage{cells: map[*cell]bool{}, rules: map[*routefile.Rule]bool{}, modifiers: map[*routefile.Modifier]bool{}}
}

func (c *coverage) cell(reached *cell) {
	if c != nil {
		c.cells[reached] = true
	}
}

func (c *coverage) rule(r *rule) {
	if c != nil {
		c.rules[r.src] = true
	}
}

func (c *coverage) modifier(m *modifier) {
	if c != nil {
		c.modifiers[m.src] = true
	}
}

// of compares it with all that there is. A rule of the row "*" is one, of however many event types.
func (c *coverage) of(t *Table) Coverage {
	result := Coverage{Unreached: []Unreached{}}
	rules, modifiers := map[*routefile.Rule]bool{}, map[*routefile.Modifier]bool{}
	count := func(to *Covered, reached bool, line int, kind, name string, args ...any) {
		if to.Total++; reached {
			to.Reached++
			return
		}
		result.Unreached = append(result.Unreached, Unreached{line, kind, fmt.Sprintf(name, args...)})
	}
	for _, e := range t.file.Events {
		for _, one := range t.order {
			cell := t.types[e.Text].cells[one.src.Text]
			if cell == nil {
				continue
			}
			count(&result.Cells, c.cells[cell], cell.ticked.Line, "cell", "%s at %s", e.Text, one.src.Text)
			for i := range cell.rules {
				r := &cell.rules[i]
				if !rules[r.src] {
					rules[r.src] = true
					count(&result.Rules, c.rules[r.src], r.src.Pos.Line, "rule", "%s", r)
				}
				for _, m := range r.modifiers {
					if !modifiers[m.src] {
						modifiers[m.src] = true
						count(&result.Modifiers, c.modifiers[m.src], m.src.Pos.Line, "modifier", "%s", m.src.Text)
					}
				}
			}
		}
	}
	slices.SortStableFunc(result.Unreached, func(a, b Unreached) int { return cmp.Compare(a.Line, b.Line) })
	return result
}

// String returns a rule in one line.
func (r *rule) String() string {
	if r.src.When == nil {
		return "do " + r.src.Do.Text
	}
	return "when " + oneLine(r.src.When.Text, "") + ": do " + r.src.Do.Text
}
