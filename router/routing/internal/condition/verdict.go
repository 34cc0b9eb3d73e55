package condition

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// verdict is the outcome of a condition, as far as it is known when it is compiled.
type verdict int

const (
	depends verdict = iota // on the values
	always
	never
)

func (v verdict) not() verdict {
	switch v {
	case always:
		return never
	case never:
		return always
	}
	return depends
}

func known(b bool) verdict {
	if b {
		return always
	}
	return never
}

// verdict folds a condition.
func (c *compiler) verdict(e ast.Expr) verdict {
	if e.Kind() == ast.CallKind {
		args := e.AsCall().Args()
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd:
			return c.decided(args, never)
		case operators.LogicalOr:
			return c.decided(args, always)
		case operators.LogicalNot:
			return c.verdict(args[0]).not()
		case operators.Conditional:
			switch c.verdict(args[0]) {
			case always:
				return c.verdict(args[1])
			case never:
				return c.verdict(args[2])
			}
			return depends
		case operators.Equals:
			if c.missing(args[0], args[1]) || c.missing(args[1], args[0]) {
				return never
			}
		case operators.NotEquals:
			if c.missing(args[0], args[1]) || c.missing(args[1], args[0]) {
				return always
			}
		case operators.In:
			if c.allMissing(args[0], args[1]) {
				return never
			}
		}
	}
	return c.closed(e)
}

// decided folds && and ||, of which one operand is enough for one outcome.
func (c *compiler) decided(args []ast.Expr, by verdict) verdict {
	all := true
	for _, a := range args {
		switch c.verdict(a) {
		case by:
			return by
		case depends:
			all = false
		}
	}
	if all {
		return by.not()
	}
	return depends
}

// closed evaluates a condition without variables.
func (c *compiler) closed(e ast.Expr) verdict {
	if b, is := literalBool(e); is {
		return known(b)
	}
	free := false
	t := newSight(c.scope)
	t.walk(e, func(x ast.Expr) bool {
		if name, is := t.global(x); is && c.scope.variable(name) != nil {
			free = true
		}
		return !free
	})
	if free {
		return depends
	}
	decide, err := c.conditionByCEL(e)
	if err != nil {
		return depends
	}
	b, err := decide(&Values{})
	if err != nil {
		return depends
	}
	return known(b)
}

func literalBool(e ast.Expr) (value, is bool) {
	if e.Kind() != ast.LiteralKind {
		return false, false
	}
	b, is := e.AsLiteral().(types.Bool)
	return bool(b), is
}

// lacks reports whether a text can never be the word. The empty one can be where the value is absent.
func (n *node) lacks(word string) bool {
	if n == nil || n.words == nil || word == "" {
		return false
	}
	_, in := slices.BinarySearch(n.words, word)
	return !in
}

// missing reports whether a field, which is read without an error, is never the literal.
func (c *compiler) missing(e, literal ast.Expr) bool {
	word, is := literalText(literal)
	if !is {
		return false
	}
	p, is := c.path(c.top, e)
	return is && p.typed && p.node.lacks(word)
}

func (c *compiler) allMissing(e, list ast.Expr) bool {
	words, all := literalTexts(list)
	if !all {
		return false
	}
	p, is := c.path(c.top, e)
	return is && p.typed && !slices.ContainsFunc(words, func(w string) bool { return !p.node.lacks(w) })
}

// Impossible is a comparison with a word that the schema of the field does not have.
type Impossible struct {
	Fault
	word  string
	words []string
}

// Suggestion is a question after the word that is meant, or "". It takes time, if the schema has many.
func (i Impossible) Suggestion() string { return didYouMean(i.word, i.words) }

// impossible finds the comparisons with words that are never found, wherever they are.
func (c *compiler) impossible() []Impossible {
	var found []Impossible
	t := newSight(c.scope)
	add := func(literal, e ast.Expr, verb, word string, words []string) {
		message := fmt.Sprintf("%s %s %q", clip(textOf(e, c.checked), maxPointerBytes), verb, clip(word, maxPointerBytes))
		found = append(found, Impossible{c.faultAt(literal, message), word, words})
	}
	check := func(e ast.Expr, literals ...ast.Expr) {
		n := t.node(e)
		for _, l := range literals {
			if word, is := literalText(l); is && n.lacks(word) {
				add(l, e, "is never", word, n.words)
			}
		}
	}
	t.walk(c.checked.Expr(), func(e ast.Expr) bool {
		if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
			return true
		}
		a, b := e.AsCall().Args()[0], e.AsCall().Args()[1]
		switch e.AsCall().FunctionName() {
		case operators.Equals, operators.NotEquals:
			check(a, b)
			check(b, a)
		case operators.In:
			if b.Kind() == ast.ListKind {
				check(a, b.AsList().Elements()...)
				break
			}
			if list := t.node(b); list != nil && list.kind == listNode {
				if word, is := literalText(a); is && list.element().lacks(word) {
					add(a, b, "never has", word, list.element().words)
				}
			}
		}
		return true
	})
	return found
}
