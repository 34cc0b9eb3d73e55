package condition

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// early is what the operands of a && or || decide that use no variable but the first.
type early struct {
	tests    []test
	decisive bool // the outcome, if one of them yields it
}

// Early reports whether the condition is decided by those parts of it that use the first variable and
// event only, and how: by one operand of its && or ||, whatever the others are, as CEL has it. So what others
// need has not to be found.
func (p *Program) Early(v *Values) (holds, decided bool) {
	for _, t := range p.early.tests {
		if b, err := t(v); err == nil && b == p.early.decisive {
			return b, true
		}
	}
	return false, false
}

// first compiles the operands for Early.
func (c *compiler) first() (early, error) {
	root := c.checked.Expr()
	if len(c.guarded) > 0 || root.Kind() != ast.CallKind { // all parts of a guarded one share a bound
		return early{}, nil
	}
	operator := root.AsCall().FunctionName()
	if operator != operators.LogicalAnd && operator != operators.LogicalOr {
		return early{}, nil
	}
	e := early{decisive: operator == operators.LogicalOr}
	for _, operand := range operandsOf(root, operator) {
		if !c.onlyFirst(operand) {
			continue
		}
		t, err := c.condition(operand)
		if err != nil {
			return early{}, err
		}
		e.tests = append(e.tests, t)
	}
	return e, nil
}

// operandsOf are those of a chain of one operator.
func operandsOf(e ast.Expr, operator string) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operator {
		return []ast.Expr{e}
	}
	var all []ast.Expr
	for _, a := range e.AsCall().Args() {
		all = append(all, operandsOf(a, operator)...)
	}
	return all
}

// onlyFirst reports whether a part uses no variable but the first.
func (c *compiler) onlyFirst(e ast.Expr) bool {
	only := true
	t := newSight(c.scope)
	t.walk(e, func(e ast.Expr) bool {
		if slot, is := t.slot(e); is && slot > 0 {
			only = false
		}
		return only
	})
	return only
}
