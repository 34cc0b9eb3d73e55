package condition

import (
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// sight knows what is known of expressions that name a place of a schema.
type sight struct {
	scope *Scope
	local map[string][]*node // variables of the comprehensions around
}

func newSight(s *Scope) *sight { return &sight{scope: s, local: map[string][]*node{}} }

// of finds an expression in a whole one, and returns its node, or nil if that is not known.
func (t *sight) of(e, whole ast.Expr) *node {
	var found *node
	t.walk(whole, func(x ast.Expr) bool {
		if x.ID() == e.ID() {
			found = t.node(x)
		}
		return true
	})
	return found
}

// walk calls a function for each part of an expression, outer ones first, with the variables of
// the comprehensions around it in sight. It goes into those for which the function returns true.
func (t *sight) walk(e ast.Expr, visit func(ast.Expr) bool) {
	if !visit(e) {
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		t.walk(e.AsSelect().Operand(), visit)
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			t.walk(call.Target(), visit)
		}
		for _, a := range call.Args() {
			t.walk(a, visit)
		}
	case ast.ListKind:
		for _, x := range e.AsList().Elements() {
			t.walk(x, visit)
		}
	case ast.MapKind:
		for _, x := range e.AsMap().Entries() {
			t.walk(x.AsMapEntry().Key(), visit)
			t.walk(x.AsMapEntry().Value(), visit)
		}
	case ast.StructKind:
		for _, x := range e.AsStruct().Fields() {
			t.walk(x.AsStructField().Value(), visit)
		}
	case ast.ComprehensionKind:
		t.comprehension(e.AsComprehension(), visit)
	}
}

func (t *sight) comprehension(c ast.ComprehensionExpr, visit func(ast.Expr) bool) {
	t.walk(c.IterRange(), visit)
	t.walk(c.AccuInit(), visit)
	var of *node
	if r := t.node(c.IterRange()); r != nil && r.kind == listNode {
		of = r.element()
	}
	t.local[c.IterVar()] = append(t.local[c.IterVar()], of)
	t.local[c.AccuVar()] = append(t.local[c.AccuVar()], nil)
	t.walk(c.LoopCondition(), visit)
	t.walk(c.LoopStep(), visit)
	t.walk(c.Result(), visit)
	for _, name := range []string{c.AccuVar(), c.IterVar()} {
		t.local[name] = t.local[name][:len(t.local[name])-1]
	}
}

// global is the name of an expression that is a variable of no comprehension. A dot before it says
// so, if one has the same name.
func (t *sight) global(e ast.Expr) (string, bool) {
	if e.Kind() != ast.IdentKind {
		return "", false
	}
	name, absolute := strings.CutPrefix(e.AsIdent(), ".")
	return name, absolute || len(t.local[name]) == 0
}

// slot is that of an expression that is a variable of the scope.
func (t *sight) slot(e ast.Expr) (int, bool) {
	name, is := t.global(e)
	if !is {
		return 0, false
	}
	slot, is := t.scope.slots[name]
	return slot, is
}

// node is that of an expression with the variables in sight, or nil.
func (t *sight) node(e ast.Expr) *node {
	switch e.Kind() {
	case ast.IdentKind:
		name, is := t.global(e)
		if is {
			return t.scope.variable(name)
		}
		local := t.local[name]
		return local[len(local)-1]
	case ast.SelectKind:
		sel := e.AsSelect()
		n := t.node(sel.Operand())
		switch {
		case n == nil || sel.IsTestOnly():
			return nil
		case n.fields[sel.FieldName()] != nil:
			return n.fields[sel.FieldName()].node
		case n.kind == mapNode:
			return n.element()
		}
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 {
			return nil
		}
		if n := t.node(call.Args()[0]); n != nil && (n.kind == listNode || n.kind == mapNode) {
			return n.element()
		}
	}
	return nil
}

// variable is the node of a variable that is no comprehension's, or nil.
func (s *Scope) variable(name string) *node {
	if name == "event" {
		return eventNode
	}
	if slot, is := s.slots[name]; is {
		return s.nodeOf(slot)
	}
	return nil
}
