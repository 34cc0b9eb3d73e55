package condition

import (
	"errors"
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/waybill-go/waybill/eventing"
)

// Values are what a program is evaluated with. Programs do not change them.
type Values struct {
	Event    *eventing.Header // nil: as an empty one
	Severity string           // CRITICAL or NORMAL; empty while that is being decided
	Vars     []any            // by slot, from Decode, Normalise or DecodeAny; nil or left out: null, or an empty object
}

var noHeader eventing.Header

func (v *Values) header() *eventing.Header {
	if v.Event == nil {
		return &noHeader
	}
	return v.Event
}

func (v *Values) at(slot int) any {
	if slot < len(v.Vars) {
		return v.Vars[slot]
	}
	return nil
}

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	test       test // of Bool
	text       text // of Text
	uses       []int
	key        string
	constant   verdict
	impossible []Impossible
	leaves     []leaf
	early      early
}

// test decides a condition, and text yields a text.
type (
	test func(*Values) (bool, error)
	text func(*Values) (string, error)
)

var errWant = errors.New("the program yields another type: compile it with the Result that is asked for")

// Bool evaluates a program that was compiled for [Bool].
func (p *Program) Bool(v *Values) (bool, error) {
	if p.test == nil {
		return false, errWant
	}
	b, err := p.test(v)
	return b && err == nil, err
}

// Text evaluates a program that was compiled for [Text].
func (p *Program) Text(v *Values) (string, error) {
	if p.text == nil {
		return "", errWant
	}
	return p.text(v)
}

// Uses are the slots of the variables that the expression refers to, in ascending order.
func (p *Program) Uses() []int { return slices.Clone(p.uses) }

// Constant reports whether the outcome is the same whatever the values, and which: because the
// expression is made of literals, or because the schemas rule the other one out.
func (p *Program) Constant() (value, is bool) { return p.constant == always, p.constant != depends }

// Impossible are the comparisons with words that the schema of the field does not have: likely
// misspelt.
func (p *Program) Impossible() []Impossible { return slices.Clone(p.impossible) }

// Key is the expression in its canonical form, the same for expressions that differ in blanks and
// in parentheses only.
func (p *Program) Key() string { return p.key }

// program puts a program together.
func (c *compiler) program(want Result) (*Program, error) {
	root := c.checked.Expr()
	p := &Program{uses: c.uses(), key: textOf(root, c.checked)}
	p.leaves = c.leaves()
	p.impossible = c.impossible()
	if want == Bool {
		p.constant = c.verdict(root)
	}
	var err error
	if want == Text {
		p.text, err = c.words(root)
	} else {
		p.test, err = c.condition(root)
		if err == nil && len(p.uses) > 0 && p.uses[len(p.uses)-1] > 0 {
			p.early, err = c.first()
		}
	}
	return p, err
}

// uses finds the slots of the variables.
func (c *compiler) uses() []int {
	found := map[int]bool{}
	t := newSight(c.scope)
	t.walk(c.checked.Expr(), func(e ast.Expr) bool {
		if slot, is := t.slot(e); is {
			found[slot] = true
		}
		return true
	})
	var slots []int
	for slot := range c.scope.vars {
		if found[slot] {
			slots = append(slots, slot)
		}
	}
	return slots
}

// plan makes a CEL program of a part of the expression.
func (c *compiler) plan(e ast.Expr) (cel.Program, error) {
	part := ast.NewCheckedAST(ast.NewAST(e, c.checked.SourceInfo()), c.checked.TypeMap(), c.checked.ReferenceMap())
	opts := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	if len(c.guarded) > 0 {
		opts = append(opts, cel.CustomDecoratorV2(c.guards))
	}
	program, err := c.scope.env.PlanProgram(part, opts...)
	if err != nil {
		return nil, c.fault(e, "%s", clip(err.Error(), maxMessage))
	}
	return program, nil
}

func (c *compiler) testByCEL(program cel.Program) test {
	s := c.scope
	return func(v *Values) (bool, error) {
		out, err := s.eval(program, v)
		if err != nil {
			return false, err
		}
		if b, is := out.(types.Bool); is {
			return bool(b), nil
		}
		return false, fmt.Errorf("the condition yields a %s, not a bool", out.Type().TypeName())
	}
}

func (c *compiler) textByCEL(program cel.Program) text {
	s := c.scope
	return func(v *Values) (string, error) {
		out, err := s.eval(program, v)
		if err != nil {
			return "", err
		}
		if t, is := out.(types.String); is {
			return string(t), nil
		}
		return "", fmt.Errorf("the expression yields a %s, not a string", out.Type().TypeName())
	}
}

// activation gives CEL the variables of one evaluation.
type activation struct {
	scope  *Scope
	values *Values
	left   int // values to compare; see guard
}

// ResolveName implements [cel.Activation].
func (a *activation) ResolveName(name string) (any, bool) {
	if slot, is := a.scope.slots[name]; is {
		v := a.values.at(slot)
		if v == nil {
			v = a.scope.nodeOf(slot).zero()
		}
		return v, true
	}
	switch name {
	case "event":
		return a.values, true
	case compareBudget:
		return a, true
	}
	return nil, false
}

// Parent implements [cel.Activation].
func (a *activation) Parent() interpreter.Activation { return nil }

// eval runs a program of CEL's.
func (s *Scope) eval(program cel.Program, v *Values) (ref.Val, error) {
	a := s.pool.Get().(*activation)
	a.values, a.left = v, maxCompared
	out, _, err := program.Eval(a)
	a.values = nil
	s.pool.Put(a)
	if err != nil {
		return nil, errors.New(clip(err.Error(), maxMessage)) // it may quote a value
	}
	return out, nil
}
