package condition

import (
	"errors"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
)

// Conditions are mostly of a few shapes: a field compared with a literal, a bool field, has(), and
// &&, || and ! of these. They are compiled to Go functions, which take a tenth of CEL's time. What is
// of no such shape is left to CEL, part by part.

var errNoOverload = errors.New("no such overload")

// condition compiles an expression that yields a bool.
func (c *compiler) condition(e ast.Expr) (test, error) {
	if len(c.guarded) > 0 && e == c.checked.Expr() { // all parts share one bound
		return c.conditionByCEL(e)
	}
	if e.Kind() == ast.CallKind {
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.LogicalAnd:
			return c.chain(e, operators.LogicalAnd, false)
		case operators.LogicalOr:
			return c.chain(e, operators.LogicalOr, true)
		case operators.LogicalNot:
			return c.not(call.Args()[0])
		case operators.Conditional:
			return c.choice(call.Args())
		}
	}
	if t := c.shortcut(e); t != nil {
		return t, nil
	}
	return c.conditionByCEL(e)
}

func (c *compiler) conditionByCEL(e ast.Expr) (test, error) {
	program, err := c.plan(e)
	if err != nil {
		return nil, err
	}
	return c.testByCEL(program), nil
}

// chain compiles && or ||: the first operand that decides does so, whatever errors the others have.
func (c *compiler) chain(e ast.Expr, operator string, decisive bool) (test, error) {
	var tests []test
	for _, operand := range operandsOf(e, operator) {
		t, err := c.condition(operand)
		if err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	if len(tests) == 2 { // most are
		a, b := tests[0], tests[1]
		return func(v *Values) (bool, error) {
			x, first := a(v)
			if first == nil && x == decisive {
				return decisive, nil
			}
			y, err := b(v)
			if err == nil && (y == decisive || first == nil) {
				return y, nil
			}
			if first == nil {
				first = err
			}
			return !decisive, first
		}, nil
	}
	return func(v *Values) (bool, error) {
		var first error
		for _, t := range tests {
			b, err := t(v)
			if err == nil && b == decisive {
				return decisive, nil
			}
			if first == nil {
				first = err
			}
		}
		return !decisive, first
	}, nil
}

func (c *compiler) not(e ast.Expr) (test, error) {
	t, err := c.condition(e)
	if err != nil {
		return nil, err
	}
	return func(v *Values) (bool, error) {
		b, err := t(v)
		return !b, err
	}, nil
}

func (c *compiler) choice(args []ast.Expr) (test, error) {
	var tests [3]test
	for i, a := range args {
		var err error
		if tests[i], err = c.condition(a); err != nil {
			return nil, err
		}
	}
	return func(v *Values) (bool, error) {
		b, err := tests[0](v)
		switch {
		case err != nil:
			return false, err
		case b:
			return tests[1](v)
		}
		return tests[2](v)
	}, nil
}

// shortcut compiles a condition that has no parts, or returns nil.
func (c *compiler) shortcut(e ast.Expr) test {
	switch e.Kind() {
	case ast.LiteralKind:
		if b, is := literalBool(e); is {
			return func(*Values) (bool, error) { return b, nil }
		}
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return c.presence(e.AsSelect())
		}
		return c.flag(e)
	case ast.IdentKind:
		return c.flag(e)
	case ast.CallKind:
		call := e.AsCall()
		switch name := call.FunctionName(); name {
		case operators.Equals:
			return c.equality(call.Args()[0], call.Args()[1], true)
		case operators.NotEquals:
			return c.equality(call.Args()[0], call.Args()[1], false)
		case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
			return c.order(name, call.Args()[0], call.Args()[1])
		case operators.In:
			return c.member(call.Args()[0], call.Args()[1])
		case overloads.StartsWith, overloads.EndsWith, overloads.Contains:
			return c.substring(call)
		}
	}
	return nil
}

// whole is the path of an expression that no comprehension is around.
func (c *compiler) whole(e ast.Expr) (path, bool) {
	p, is := c.path(c.top, e)
	if is {
		p = c.scope.shared(p)
	}
	return p, is
}

// presence is has() of an object's field.
func (c *compiler) presence(sel ast.SelectExpr) test {
	p, is := c.whole(sel.Operand())
	if !is || !p.typed || p.event != nil || p.node.kind != objectNode {
		return nil
	}
	name := sel.FieldName()
	return func(v *Values) (bool, error) {
		object, _ := p.read(v).(map[string]any)
		_, is := object[name]
		return is, nil
	}
}

// flag is a field that is a bool.
func (c *compiler) flag(e ast.Expr) test {
	p, is := c.whole(e)
	if !is || !p.typed || p.node.kind != boolNode && p.node.kind != dynNode {
		return nil
	}
	return func(v *Values) (bool, error) {
		b, is := p.read(v).(bool)
		if !is {
			return false, errNoOverload
		}
		return b, nil
	}
}

// substring looks for a literal in a text field.
func (c *compiler) substring(call ast.CallExpr) test {
	if !call.IsMemberFunction() || len(call.Args()) != 1 {
		return nil
	}
	p, is := c.whole(call.Target())
	word, literal := literalText(call.Args()[0])
	if !is || !literal || !p.typed || p.node.kind != textNode || p.node.nullable {
		return nil
	}
	in := map[string]func(string, string) bool{
		overloads.StartsWith: strings.HasPrefix, overloads.EndsWith: strings.HasSuffix, overloads.Contains: strings.Contains,
	}[call.FunctionName()]
	return func(v *Values) (bool, error) {
		s, _ := p.text(v)
		return in(s, word), nil
	}
}

// words compiles an expression that yields a text.
func (c *compiler) words(e ast.Expr) (text, error) {
	if len(c.guarded) == 0 {
		switch e.Kind() {
		case ast.LiteralKind:
			if s, is := literalText(e); is {
				return func(*Values) (string, error) { return s, nil }, nil
			}
		case ast.SelectKind, ast.IdentKind:
			if p, is := c.whole(e); is && p.typed {
				return func(v *Values) (string, error) {
					s, is := p.text(v)
					if !is {
						return "", errors.New("the expression yields no string")
					}
					return s, nil
				}, nil
			}
		}
	}
	program, err := c.plan(e)
	if err != nil {
		return nil, err
	}
	return c.textByCEL(program), nil
}
