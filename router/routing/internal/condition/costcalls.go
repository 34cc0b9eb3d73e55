package condition

import (
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// What conversions make of numbers, times and bools, at most.
const convertedBytes = 64

// function is what a call takes beside its operands, and how large its result can be.
func (k *coster) function(e ast.Expr, operands []ast.Expr, xs []*extent) (form, *extent, error) {
	name := e.AsCall().FunctionName()
	switch {
	case slices.Contains(logical, name):
		return form{}, scalar(), nil
	case len(xs) == 1:
		return k.unary(e, operands[0], xs[0])
	case len(xs) == 3 && name == operators.Conditional:
		return form{}, k.either(xs[1], xs[2]), nil
	case len(xs) == 2:
		return k.binary(e, operands, xs[0], xs[1])
	}
	return form{}, nil, k.unknown(e)
}

// getters are those of times, which may be told a time zone.
var getters = []string{
	overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDayOfYear, overloads.TimeGetDate, overloads.TimeGetDayOfMonth,
	overloads.TimeGetDayOfWeek, overloads.TimeGetHours, overloads.TimeGetMinutes, overloads.TimeGetSeconds, overloads.TimeGetMilliseconds,
}

func (k *coster) unary(e, operand ast.Expr, x *extent) (form, *extent, error) {
	switch name := e.AsCall().FunctionName(); name {
	case operators.Negate, overloads.TypeConvertType:
		return form{}, scalar(), nil
	case overloads.TypeConvertDyn:
		return form{}, x, nil
	case overloads.Size:
		return k.text(operand, x).times(scanByte), scalar(), nil
	case overloads.TypeConvertString, overloads.TypeConvertBytes:
		text := k.text(operand, x)
		return text.times(scanByte), ofText(text.or(fixed(convertedBytes))), nil
	case overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertDouble, overloads.TypeConvertBool:
		return k.text(operand, x).times(scanByte), scalar(), nil
	case overloads.TypeConvertTimestamp, overloads.TypeConvertDuration:
		return k.text(operand, x).times(parseByte).plus(fixed(callCost)), scalar(), nil
	default:
		if slices.Contains(getters, name) {
			return fixed(callCost), scalar(), nil
		}
	}
	return form{}, nil, k.unknown(e)
}

// text is what there is of an operand to read as a text: nothing, if it can be none.
func (k *coster) text(e ast.Expr, x *extent) form {
	if kind := k.kind(e); kind == types.StringKind || kind == types.BytesKind || kind == types.DynKind {
		k.adviseText(e, x)
		return x.text
	}
	return form{}
}

// kind is that of an expression's type; DynKind, if it can be any.
func (k *coster) kind(e ast.Expr) types.Kind {
	switch kind := k.checked.GetType(e.ID()).Kind(); kind {
	case types.AnyKind, types.TypeParamKind, types.OpaqueKind, types.UnspecifiedKind:
		return types.DynKind
	default:
		return kind
	}
}

func (k *coster) binary(e ast.Expr, operands []ast.Expr, a, b *extent) (form, *extent, error) {
	switch name := e.AsCall().FunctionName(); name {
	case operators.Equals, operators.NotEquals:
		return k.comparison(e, a, b), scalar(), nil
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return k.loops.less(a.text, b.text).times(compareByte), scalar(), nil
	case operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		return form{}, scalar(), nil
	case operators.Add:
		return k.sum(e, operands, a, b)
	case operators.In, operators.OldIn:
		return k.membership(e, operands, a, b), scalar(), nil
	case operators.Index:
		found := k.element(a)
		return k.text(operands[1], b).times(hashByte).plus(fixed(joinCost * a.joins * a.joins)), orScalar(found), nil
	case overloads.StartsWith, overloads.EndsWith:
		return k.loops.less(a.text, b.text).times(compareByte), scalar(), nil
	case overloads.Contains:
		return k.text(operands[0], a).plus(k.text(operands[1], b)).times(scanByte), scalar(), nil
	case overloads.Matches:
		return k.match(operands, a)
	default:
		if slices.Contains(getters, name) {
			if operands[1].Kind() != ast.LiteralKind {
				return form{}, nil, k.fault(operands[1], "the time zone has to be a literal, as in event.occurred_at.getHours(%q)", "Europe/Berlin")
			}
			return fixed(zoneCost), scalar(), nil
		}
	}
	return form{}, nil, k.unknown(e)
}

// comparison is what finding out takes whether two values are equal.
func (k *coster) comparison(e ast.Expr, a, b *extent) form {
	joins := max(a.joins, b.joins)
	values := k.guard(e, k.loops.less(a.nodes, b.nodes), joins)
	return values.times(valueCost + joinCost*joins*joins).plus(k.loops.less(a.size, b.size).times(compareByte))
}

// guard has a comparison of many values bounded when it runs. What is left of it here is to begin it.
func (k *coster) guard(e ast.Expr, values form, joins float64) form {
	const many = 500
	if k.loops.total(values) <= max(many, k.loops.total(fixed(1))) {
		return values
	}
	k.guarded[e.ID()], k.joins = true, max(k.joins, joins)
	return fixed(1)
}

// membership is what finding a value in a list or a map takes.
func (k *coster) membership(e ast.Expr, operands []ast.Expr, a, b *extent) form {
	if k.kind(operands[1]) == types.MapKind || b.constant {
		return k.text(operands[0], a).times(hashByte)
	}
	k.adviseLength(operands[1], b)
	var within form // of the elements that are lists or maps themselves
	if one := k.element(b); one != nil {
		within = k.loops.less(b.nodes, k.loops.less(one.nodes, a.nodes).times(b.length))
	}
	if k.loops.total(within) <= k.loops.total(fixed(b.length)) {
		within = form{}
	} else {
		within = k.guard(e, within, b.joins)
	}
	bytes := k.loops.less(b.size, a.size.times(b.length))
	return within.plus(fixed(b.length)).times(valueCost + joinCost*b.joins*b.joins).plus(bytes.times(compareByte))
}

// sum is what + takes: of numbers, texts, or lists.
func (k *coster) sum(e ast.Expr, operands []ast.Expr, a, b *extent) (form, *extent, error) {
	if a.growing {
		return fixed(appendCost), &extent{size: a.size, nodes: a.nodes, growing: true, elem: k.either(k.element(a), k.element(b))}, nil
	}
	var cost form
	x := scalar()
	kind := k.kind(e)
	dynamic := kind == types.DynKind
	if kind == types.StringKind || kind == types.BytesKind || dynamic {
		bytes := k.text(operands[0], a).plus(k.text(operands[1], b))
		cost, x = bytes.times(scanByte), ofText(bytes)
	}
	if kind == types.ListKind || dynamic {
		list := k.either(a, b)
		if list == a { // the same value twice
			twice := *a
			list = &twice
		}
		list.length, list.joins = a.length+b.length, a.joins+b.joins+1
		list.size, list.nodes, list.text = a.size.plus(b.size), a.nodes.plus(b.nodes), x.text
		cost, x = cost.plus(fixed(makeCost)), list
	}
	return cost, x, nil
}

// match is what a pattern takes. It is compiled once, and has to be a literal therefore.
func (k *coster) match(operands []ast.Expr, a *extent) (form, *extent, error) {
	pattern, is := operands[1].AsLiteral().(types.String)
	if operands[1].Kind() != ast.LiteralKind || !is {
		return form{}, nil, k.fault(operands[1], `the pattern of matches has to be a literal, as in event.id.matches("^evt_")`)
	}
	if len(pattern) > maxPattern {
		return form{}, nil, k.fault(operands[1], "the pattern has %d bytes, more than %d", len(pattern), maxPattern)
	}
	size, err := patternSize(string(pattern))
	if err != nil {
		return form{}, nil, k.fault(operands[1], "%s", err)
	}
	if size > maxPatternSize {
		return form{}, nil, k.fault(operands[1], "the pattern compiles to %d instructions, more than %d", size, maxPatternSize)
	}
	const perInstruction, least = 6, 12 // nanoseconds for a byte
	text := k.text(operands[0], a)
	return text.times(max(least, perInstruction*float64(size))).plus(fixed(10 * callCost)), scalar(), nil
}
