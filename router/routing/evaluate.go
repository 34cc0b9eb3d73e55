package routing

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// decide returns the actions that a consumer is to take about an event. Its error is that of the attempt: transient
// if a lookup failed whose policy is to retry, permanent otherwise. rec, if it is not nil, is told each step;
// what is decided does not depend on it.
func (t *Table) decide(ctx context.Context, consumer string, e *event, from source, rec *recorder) ([]Action, error) {
	c := e.typ.cells[consumer]
	if c == nil {
		return nil, notRouted(fmt.Errorf("the routing file %s (version %s) sends no %s to %s: whoever dispatched it has another one", t.file.Name, t.Version(), e.Type, consumer))
	}
	ev := evaluation{table: t, event: e, from: from, rec: rec}
	clear(e.states)
	clear(e.values.Vars[1:])
	var actions []Action
	for i := range c.rules {
		r := &c.rules[i]
		applies, err := ev.holds(ctx, r.when, r.needs, line(r.src.When, r.src.Pos))
		rec.rule(r, applies, ev.skipped, err, e)
		if err != nil {
			return nil, err
		}
		if !applies {
			continue
		}
		action, modified, err := ev.modify(ctx, r)
		switch {
		case err != nil:
			return nil, err
		case actions == nil && !modified:
			actions = r.alone
		default:
			actions = append(actions, action) // a copy: what is the rule's has no room
		}
		if !r.src.Continue {
			break
		}
	}
	return actions, nil
}

// modify returns a rule's action as the modifiers leave it that apply.
func (ev *evaluation) modify(ctx context.Context, r *rule) (a Action, modified bool, err error) {
	var room [8]*modifier
	applied := room[:0]
	for _, m := range r.modifiers {
		applies, err := ev.holds(ctx, m.when, m.needs, line(m.src.When, m.src.Pos))
		ev.rec.modifier(m, applies, ev.skipped, err, ev.event)
		if err != nil {
			return a, false, err
		}
		if applies {
			applied = append(applied, m)
		}
	}
	if len(applied) == 0 {
		return r.action(), false, nil
	}
	return r.action().modified(applied), true, nil
}

func line(e *routefile.Expr, otherwise routefile.Pos) int {
	if e == nil {
		return otherwise.Line
	}
	return e.Pos.Line
}

// evaluation is that of one event at one consumer.
type evaluation struct {
	table   *Table
	event   *event
	from    source
	rec     *recorder
	skipped string // the lookup that kept the last condition from holding
}

type lookupState int

const (
	unasked lookupState = iota
	found
	missing // and what needs it does not apply
)

// holds reports whether a condition holds, and what it needs is there. Nothing is looked up for what the event decides alone.
func (ev *evaluation) holds(ctx context.Context, when *condition.Program, needs []int, line int) (bool, error) {
	ev.skipped = ""
	if when == nil {
		return true, nil
	}
	if len(needs) > 0 {
		if holds, decided := when.Early(&ev.event.values); decided {
			return holds, nil
		}
	}
	for _, slot := range needs {
		there, err := ev.need(ctx, slot)
		if err != nil {
			return false, err
		}
		if !there {
			ev.skipped = ev.table.lookups[slot-1].src.Text
			return false, nil
		}
	}
	holds, err := when.Bool(&ev.event.values)
	if err != nil {
		return false, ruleFailed(line, err)
	}
	return holds, nil
}

// need has a lookup's value in its slot, and reports whether it is there.
func (ev *evaluation) need(ctx context.Context, slot int) (bool, error) {
	state := &ev.event.states[slot-1]
	if *state != unasked {
		return *state == found, nil
	}
	l := ev.table.lookups[slot-1]
	for _, other := range ev.event.typ.keys[slot-1].needs {
		if _, err := ev.need(ctx, other); err != nil {
			return false, err // it is to be tried again, whatever this one's policy
		}
	}
	key, value, err := ev.look(ctx, slot, l)
	ev.rec.lookup(l, key, value, err)
	if err != nil {
		switch {
		case l.src.OnError == routefile.Default:
			value = l.fallback
		case l.src.OnError == routefile.Skip:
			*state = missing
			return false, nil
		case eventing.IsPermanent(err):
			return false, err
		default:
			return false, &lookupError{l.src.Text, err}
		}
	}
	*state = found
	ev.event.values.Vars[slot] = value
	return true, nil
}

// look finds the key, and what is under it.
func (ev *evaluation) look(ctx context.Context, slot int, l *lookup) (key string, value any, err error) {
	k := ev.event.typ.keys[slot-1]
	if k.program == nil {
		return "", nil, noKey(l.src.Text)
	}
	for _, other := range k.needs {
		if ev.event.states[other-1] == missing {
			return "", nil, fmt.Errorf("its key needs %s, which is missing", ev.table.lookups[other-1].src.Text)
		}
	}
	if key, err = k.program.Text(&ev.event.values); err != nil {
		return "", nil, ruleFailed(l.src.Pos.Line, err)
	}
	if key == "" {
		return "", nil, noKey(l.src.Text)
	}
	value, err = ev.from.find(ctx, l, key)
	return key, value, err
}
