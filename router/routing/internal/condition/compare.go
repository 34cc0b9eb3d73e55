package condition

import (
	"math"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// equality compares a field with a literal, or with a field of the same type.
func (c *compiler) equality(a, b ast.Expr, equal bool) test {
	if a.Kind() == ast.LiteralKind {
		a, b = b, a
	}
	p, is := c.whole(a)
	if !is {
		return nil
	}
	if b.Kind() == ast.LiteralKind {
		return p.equals(b.AsLiteral(), equal)
	}
	q, is := c.whole(b)
	if !is || !p.typed || !q.typed || p.node.kind != q.node.kind {
		return nil
	}
	switch p.node.kind {
	case textNode:
		return func(v *Values) (bool, error) {
			a, is := p.text(v)
			b, too := q.text(v)
			return (a == b && is == too) == equal, nil // both may be null
		}
	case boolNode, intNode, doubleNode:
		return func(v *Values) (bool, error) { return same(p.read(v), q.read(v)) == equal, nil }
	}
	return nil
}

// equals compares what is at the end of any path with a literal.
func (p path) equals(literal ref.Val, equal bool) test {
	switch want := literal.(type) {
	case types.String:
		return p.isText(string(want), equal)
	case types.Bool:
		return p.is(bool(want), equal)
	case types.Null:
		return p.is(nil, equal)
	case types.Int:
		if p.node.kind == intNode {
			return p.is(int64(want), equal)
		}
	case types.Double:
		if p.node.kind == doubleNode {
			return p.is(float64(want), equal)
		}
	}
	return nil
}

func (p path) isText(word string, equal bool) test {
	if p.typed {
		return func(v *Values) (bool, error) {
			s, is := p.text(v)
			return (is && s == word) == equal, nil
		}
	}
	return func(v *Values) (bool, error) {
		found, err := p.find(v)
		if err != nil {
			return false, err
		}
		s, is := found.(string)
		return (is && s == word) == equal, nil
	}
}

// is compares with a value that is no text, list or map.
func (p path) is(want any, equal bool) test {
	return func(v *Values) (bool, error) {
		found, err := p.find(v)
		return same(want, found) == equal && err == nil, err
	}
}

// same compares two values of which the first is no list or map.
func same(a, b any) bool {
	switch a.(type) {
	case nil, bool, int64, float64, string:
		return a == b
	}
	return false
}

// order compares a number field with a literal.
func (c *compiler) order(operator string, a, b ast.Expr) test {
	if a.Kind() == ast.LiteralKind {
		a, b = b, a
		operator = mirrored[operator]
	}
	p, is := c.whole(a)
	if !is || !p.typed || p.node.nullable || b.Kind() != ast.LiteralKind {
		return nil
	}
	float, isNumber := asFloat(b.AsLiteral())
	switch {
	case !isNumber:
		return nil
	case p.node.kind == doubleNode:
		return func(v *Values) (bool, error) {
			n, _ := p.read(v).(float64)
			return ordered(operator, n < float, n == float), nil
		}
	case p.node.kind == intNode:
		whole, is := b.AsLiteral().(types.Int)
		if !is {
			if float != math.Trunc(float) || math.Abs(float) >= exactFloat {
				return nil
			}
			whole = types.Int(float)
		}
		return func(v *Values) (bool, error) {
			n, _ := p.read(v).(int64)
			return ordered(operator, n < int64(whole), n == int64(whole)), nil
		}
	}
	return nil
}

var mirrored = map[string]string{
	operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals,
	operators.Greater: operators.Less, operators.GreaterEquals: operators.LessEquals,
}

func ordered(operator string, less, equal bool) bool {
	switch operator {
	case operators.Less:
		return less
	case operators.LessEquals:
		return less || equal
	case operators.Greater:
		return !less && !equal
	}
	return !less
}

// exactFloat bounds the whole numbers that a float64 has all of.
const exactFloat = 1 << 53

// asFloat is a number as a float64, as CEL compares it with one.
func asFloat(number ref.Val) (float64, bool) {
	switch n := number.(type) {
	case types.Double:
		return float64(n), true
	case types.Int:
		return float64(n), true
	}
	return 0, false
}

// member looks for a field in a list of literal texts.
func (c *compiler) member(a, b ast.Expr) test {
	p, is := c.whole(a)
	words, all := literalTexts(b)
	if !is || !p.typed || !all {
		return nil
	}
	const few = 8
	if len(words) <= few {
		return func(v *Values) (bool, error) {
			s, is := p.text(v)
			return is && slices.Contains(words, s), nil
		}
	}
	set := make(map[string]struct{}, len(words))
	for _, w := range words {
		set[w] = struct{}{}
	}
	return func(v *Values) (bool, error) {
		s, is := p.text(v)
		_, in := set[s]
		return is && in, nil
	}
}

// literalTexts are the elements of a list, if all of them are literal texts.
func literalTexts(e ast.Expr) (words []string, all bool) {
	if e.Kind() != ast.ListKind {
		return nil, false
	}
	for _, x := range e.AsList().Elements() {
		w, is := literalText(x)
		if !is {
			return nil, false
		}
		words = append(words, w)
	}
	return words, true
}

func literalText(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, is := e.AsLiteral().(types.String)
	return string(s), is
}
