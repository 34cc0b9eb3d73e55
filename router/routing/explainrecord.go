package routing

import (
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// recorder writes down the steps of an evaluation. A nil one writes nothing.
type recorder struct {
	to  *ConsumerExplanation
	cov *coverage // nil: of no interest
}

func (rec *recorder) rule(r *rule, applies bool, skipped string, err error, e *event) {
	if rec == nil {
		return
	}
	t := tried(r, NotTried)
	t.Outcome, t.Why = outcome(applies, skipped, err)
	t.Values = values(r.when, e)
	rec.to.Rules = append(rec.to.Rules, t)
	if applies {
		rec.cov.rule(r)
	}
}

func tried(r *rule, o Outcome) RuleTried {
	return RuleTried{Line: r.src.Pos.Line, Do: r.src.Do.Text, When: text(r.src.When), Continue: r.src.Continue, Outcome: o}
}

func text(e *routefile.Expr) string {
	if e == nil {
		return ""
	}
	return e.Text
}

func (rec *recorder) modifier(m *modifier, applies bool, skipped string, err error, e *event) {
	if rec == nil {
		return
	}
	t := ModifierTried{
		Name: m.src.Text, Line: m.src.Pos.Line, When: text(m.src.When),
		Add: params(m.src.Add), Remove: params(m.src.Remove), Set: params(m.src.Set), Values: values(m.when, e),
	}
	t.Outcome, t.Why = outcome(applies, skipped, err)
	if n := len(rec.to.Rules); n > 0 { // always: that of the rule goes before
		t.RuleLine = rec.to.Rules[n-1].Line
	}
	rec.to.Modifiers = append(rec.to.Modifiers, t)
	if applies {
		rec.cov.modifier(m)
	}
}

func params(list []routefile.Param) map[string]any {
	byName := map[string]any{}
	for _, p := range list {
		byName[p.Text] = cloned(p.Value)
	}
	return byName
}

// values are those of a condition's parts, but for the lookups that were not made, or have nothing.
func values(when *condition.Program, e *event) []Term {
	if when == nil {
		return nil
	}
	var terms []Term
	for _, t := range when.Explain(&e.values, func(slot int) bool { return slot == 0 || e.states[slot-1] == found }) {
		terms = append(terms, Term(t))
	}
	return terms
}

func outcome(applies bool, skipped string, err error) (o Outcome, why string) {
	lookup := (*lookupError)(nil)
	switch {
	case errors.As(err, &lookup): // the lookup itself says why
		return Failed, fmt.Sprintf("lookup %s failed", lookup.name)
	case err != nil:
		return Failed, err.Error()
	case skipped != "":
		return Skipped, fmt.Sprintf("lookup %s failed, and its policy is to skip what needs it", skipped)
	case applies:
		return Matched, ""
	}
	return NotMatched, ""
}

func (rec *recorder) lookup(l *lookup, key string, value any, err error) {
	if rec == nil {
		return
	}
	made := LookupMade{Name: l.src.Text, Key: key, Value: cloned(value)}
	if err != nil {
		made.Error, made.OnError, made.Permanent, made.Value = err.Error(), string(l.policy()), eventing.IsPermanent(err), nil
		if named := (*lookupError)(nil); errors.As(err, &named) {
			made.Error = named.err.Error()
		}
		if l.policy() == routefile.Default {
			made.Value = cloned(l.fallback)
		}
	}
	rec.to.Lookups = append(rec.to.Lookups, made)
}
