package routing

import (
	"maps"
	"slices"

	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// matrix looks for event types and consumers that it leaves out, and for cells that have no action.
func (l *linter) matrix() {
	rows := map[string]*routefile.Row{}
	for i := range l.table.file.Matrix {
		row := &l.table.file.Matrix[i]
		rows[row.Type.Text] = row
	}
	ticked := map[*consumer]bool{}
	for _, t := range l.types {
		name := t.src.Text
		switch row := rows[name]; {
		case len(t.cells) > 0:
		case row != nil:
			l.info(row.Type.Pos, "type-goes-nowhere", "events of %s are settled without going to anybody, as their row says", name)
		case rows[routefile.Any] == nil:
			l.error(t.src.Pos, "type-not-in-matrix",
				"no row of the matrix lists %s, so its events would go nowhere: add \"%s: [CONSUMER]\" under matrix, or \"%s: []\" if that is meant", name, name, name)
		default:
			l.info(rows[routefile.Any].Type.Pos, "type-goes-nowhere", "events of %s are settled without going to anybody, as row \"*\" says", name)
		}
		for c := range maps.Values(t.cells) {
			ticked[c.consumer] = true
		}
	}
	for _, c := range l.table.order {
		if !ticked[c] {
			l.warn(c.src.Pos, "consumer-not-in-matrix", "no row of the matrix has %s, so it gets no events: add it to a row, or remove it", c.src.Text)
		}
	}
	l.idle()
}

// idle looks for ticked cells without an action. Those of row "*" are one finding for each consumer.
func (l *linter) idle() {
	type place struct {
		consumer string
		at       routefile.Pos
	}
	byPlace := map[place][]string{}
	var order []place
	for _, t := range l.types {
		for _, c := range l.table.order {
			one := t.cells[c.src.Text]
			if one == nil || len(one.rules) > 0 {
				continue
			}
			p := place{c.src.Text, one.ticked}
			if byPlace[p] == nil {
				order = append(order, p)
			}
			byPlace[p] = append(byPlace[p], t.src.Text)
		}
	}
	for _, p := range order {
		types := byPlace[p]
		row := types[0]
		if len(types) > 1 {
			row = `"*"`
		}
		l.error(p.at, "cell-without-action", "the matrix sends %s to %s, which has no action for it: add \"%s: [{do: ACTION}]\" to %s under actions, or take %s out of the row",
			listed(types), p.consumer, p.consumer, row, p.consumer)
	}
}

// use is a cell as the file has it, with the cells of the matrix that use its rules.
type use struct {
	src   *routefile.Cell
	cells []*cell
}

// cells looks for what is wrong with the rules of each cell that the file has.
func (l *linter) cells() {
	for _, u := range l.uses() {
		switch {
		case len(u.src.Rules) == 0: // the matrix tells, if it matters
		case len(u.cells) > 0:
			l.conditionalOnly(u)
			l.rules(u)
		case u.src.Type.Text != routefile.Any:
			l.warn(u.src.Consumer.Pos, "rule-for-unticked-cell", "the matrix does not send %s to %s, so this is never used: add %s to row %s of the matrix, or remove it",
				u.src.Type.Text, u.src.Consumer.Text, u.src.Consumer.Text, u.src.Type.Text)
		case !l.getsAny(u.src.Consumer.Text):
			l.warn(u.src.Consumer.Pos, "rule-for-unticked-cell", "the matrix sends nothing to %s, so this is never used: add it to a row of the matrix, or remove it", u.src.Consumer.Text)
		default:
			l.warn(u.src.Consumer.Pos, "cell-overridden", "each event type that %s gets has a cell of its own for it, so this is never used: remove it", u.src.Consumer.Text)
		}
	}
}

func (l *linter) getsAny(consumer string) bool {
	return slices.ContainsFunc(l.types, func(t *eventType) bool { return t.cells[consumer] != nil })
}

// uses finds who uses the rules of each cell.
func (l *linter) uses() []use {
	users := map[*routefile.Rule][]*cell{} // by the first rule of the cell
	for _, t := range l.types {
		for _, c := range l.table.order {
			if one := t.cells[c.src.Text]; one != nil && len(one.rules) > 0 {
				users[one.rules[0].src] = append(users[one.rules[0].src], one)
			}
		}
	}
	list := make([]use, len(l.table.file.Cells))
	for i := range list {
		list[i].src = &l.table.file.Cells[i]
		if len(list[i].src.Rules) > 0 {
			list[i].cells = users[&list[i].src.Rules[0]]
		}
	}
	return list
}

// conditionalOnly tells of cells in which no rule need apply: then the event counts as processed, and that may be meant.
func (l *linter) conditionalOnly(u use) {
	var types []string
	for _, c := range u.cells {
		if !slices.ContainsFunc(c.rules, func(r rule) bool { return always(r.when, r.needs) }) {
			types = append(types, c.typ.src.Text)
		}
	}
	if len(types) > 0 {
		l.info(u.src.Consumer.Pos, "conditional-only", "%s does nothing about %s if none of the conditions holds: the event counts as processed",
			u.src.Consumer.Text, listed(types))
	}
}
