package condition

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// maxCost bounds an expression's worst case, for values of the largest sizes that the schemas
// allow. The estimate is in time, by what CEL's steps took when they were measured, and
// then some: what it allows takes a millisecond at the most, see TestEstimates.
const maxCost = 2 * time.Millisecond

// What CEL's steps take, in nanoseconds.
const (
	callCost    = 60
	identCost   = 30
	selectCost  = 40
	roundCost   = 80  // of a comprehension
	appendCost  = 120 // to the result of map and filter
	makeCost    = 100 // a list or a map
	entryCost   = 60  // of one that is made
	valueCost   = 130 // comparing a value within lists and maps
	joinCost    = 25  // finding an element in lists that were concatenated
	compareByte = 0.05
	hashByte    = 0.1
	scanByte    = 0.5
	parseByte   = 7
	zoneCost    = 20_000 // loading a time zone
)

const (
	maxWork   = 100_000 // steps of an estimate
	maxAdvice = 5
)

// coster estimates what evaluating an expression takes at the most. CEL's own estimate does not
// know what comparing nested values takes, nor that a loop's elements share the size of the whole.
type coster struct {
	*compiler
	loops  loops
	locals map[string][]*extent
	work   int
	advice []string // what the schema would have to bound
	joins  float64  // of the lists that are compared under guard
}

// spent reports whether the estimate itself takes too long.
func (k *coster) spent() bool {
	k.work++
	return k.work > maxWork
}

// allowed refuses what takes too long, or cannot be estimated.
func (c *compiler) allowed() error {
	k := &coster{compiler: c, locals: map[string][]*extent{}}
	worst, err := k.estimate()
	switch {
	case err != nil:
		return err
	case k.work > maxWork:
		return c.faultWhole("the expression is too complicated to estimate what it costs: make it several conditions")
	case worst <= float64(maxCost.Nanoseconds()):
		return nil
	}
	estimate := "more than an hour"
	if worst < float64(time.Hour.Nanoseconds()) {
		estimate = "about " + rounded(worst).String()
	}
	advice := "declare maxItems of the lists and maxLength of the texts that it goes through, or compare less"
	if len(k.advice) > 0 {
		advice = "declare " + strings.Join(k.advice, ", ")
	}
	return c.faultWhole("evaluating it may take %s, and at most %s is allowed: %s", estimate, maxCost, advice)
}

// estimate is what the whole expression takes at the most, in nanoseconds.
func (k *coster) estimate() (float64, error) {
	cost, _, err := k.cost(k.checked.Expr())
	if len(k.guarded) > 0 {
		cost.fixed += maxCompared * (valueCost + joinCost*k.joins*k.joins)
	}
	return cost.fixed, err
}

// rounded has two digits.
func rounded(ns float64) time.Duration {
	unit := math.Pow(10, math.Floor(math.Log10(ns))-1)
	return time.Duration(math.Ceil(ns/unit) * unit)
}

// adviseLength notes a list, map or object whose size the schema does not bound.
func (k *coster) adviseLength(e ast.Expr, x *extent) {
	if x.node == nil {
		return
	}
	switch n := x.node; {
	case n.kind == listNode && !n.declared.items:
		k.advise("maxItems of", e)
	case n.kind == mapNode && !n.declared.entries:
		k.advise("maxProperties of", e)
	case n.kind == objectNode && n.open:
		k.advise("additionalProperties: false of", e)
	case n.kind == dynNode:
		k.adviseType(e)
	}
}

// adviseText notes a text whose length the schema does not bound.
func (k *coster) adviseText(e ast.Expr, x *extent) {
	if x.node == nil {
		return
	}
	switch n := x.node; {
	case n.kind == textNode && n.words == nil && !n.declared.texts:
		k.advise("maxLength of", e)
	case n.kind == dynNode:
		k.adviseType(e)
	}
}

// adviseType notes that nothing is known: of a part of a variable, or of all of it.
func (k *coster) adviseType(e ast.Expr) {
	root := e
	for root.Kind() != ast.IdentKind {
		switch {
		case root.Kind() == ast.SelectKind:
			root = root.AsSelect().Operand()
		case root.Kind() == ast.CallKind && root.AsCall().FunctionName() == operators.Index:
			root = root.AsCall().Args()[0]
		default:
			k.advise("a type of", e)
			return
		}
	}
	if slot, is := k.top.slot(root); is && k.scope.vars[slot].Schema == nil && len(k.locals[root.AsIdent()]) == 0 {
		k.advise("a schema of", root)
		return
	}
	k.advise("a type of", e)
}

func (k *coster) advise(what string, e ast.Expr) {
	if len(k.advice) == maxAdvice {
		return
	}
	if text := what + " " + clip(textOf(e, k.checked), maxPointerBytes); !slices.Contains(k.advice, text) {
		k.advice = append(k.advice, text)
	}
}

// cost is that of an expression, and how large its value can be.
func (k *coster) cost(e ast.Expr) (form, *extent, error) {
	switch e.Kind() {
	case ast.LiteralKind:
		return form{}, literal(e), nil
	case ast.IdentKind:
		return fixed(identCost), k.ident(e), nil
	case ast.SelectKind:
		sel := e.AsSelect()
		cost, x, err := k.cost(sel.Operand())
		if err != nil || sel.IsTestOnly() {
			return cost.plus(fixed(selectCost)), scalar(), err
		}
		return cost.plus(fixed(selectCost)), orScalar(k.field(x, sel.FieldName())), nil
	case ast.CallKind:
		return k.call(e)
	case ast.ListKind:
		return k.list(e.AsList().Elements())
	case ast.MapKind:
		return k.mapping(e.AsMap().Entries())
	case ast.ComprehensionKind:
		return k.comprehension(e)
	}
	return form{}, nil, k.fault(e, "a condition cannot make objects of a type")
}

func orScalar(x *extent) *extent {
	if x == nil {
		return scalar()
	}
	return x
}

func literal(e ast.Expr) *extent {
	x := scalar()
	switch v := e.AsLiteral().(type) {
	case types.String:
		x = ofText(fixed(float64(len(v))))
	case types.Bytes:
		x = ofText(fixed(float64(len(v))))
	}
	x.constant = true
	return x
}

func (k *coster) ident(e ast.Expr) *extent {
	name, absolute := strings.CutPrefix(e.AsIdent(), ".")
	if local := k.locals[name]; len(local) > 0 && !absolute {
		return local[len(local)-1]
	}
	if n := k.scope.variable(name); n != nil {
		return k.ofNode(n, fixed(maxValueBytes))
	}
	return scalar() // a type
}

func (k *coster) list(elements []ast.Expr) (form, *extent, error) {
	cost := fixed(makeCost + entryCost*float64(len(elements)))
	x := &extent{length: float64(len(elements)), size: fixed(leastBytes), nodes: fixed(1), constant: true}
	for _, e := range elements {
		c, one, err := k.cost(e)
		if err != nil {
			return form{}, nil, err
		}
		cost = cost.plus(c)
		x.size, x.nodes = x.size.plus(one.size, fixed(leastBytes)), x.nodes.plus(one.nodes)
		x.elem, x.constant = k.either(x.elem, one), x.constant && one.constant
	}
	return cost, x, nil
}

func (k *coster) mapping(entries []ast.EntryExpr) (form, *extent, error) {
	cost := fixed(makeCost + 2*entryCost*float64(len(entries)))
	x := &extent{length: float64(len(entries)), size: fixed(leastBytes), nodes: fixed(1)}
	for _, entry := range entries {
		keyCost, key, err := k.cost(entry.AsMapEntry().Key())
		if err != nil {
			return form{}, nil, err
		}
		valueCost, value, err := k.cost(entry.AsMapEntry().Value())
		if err != nil {
			return form{}, nil, err
		}
		cost = cost.plus(keyCost, valueCost, key.text.times(hashByte))
		x.size, x.nodes = x.size.plus(key.size, value.size, fixed(2*leastBytes)), x.nodes.plus(value.nodes)
		x.key, x.elem = k.either(x.key, key), k.either(x.elem, value)
	}
	return cost, x, nil
}

// comprehension is the cost of a macro: all, exists, exists_one, map or filter.
func (k *coster) comprehension(e ast.Expr) (form, *extent, error) {
	c := e.AsComprehension()
	cost, over, err := k.cost(c.IterRange())
	if err != nil {
		return form{}, nil, err
	}
	initCost, accu, err := k.cost(c.AccuInit())
	if err != nil {
		return form{}, nil, err
	}
	var current *extent
	kind := k.kind(c.IterRange())
	if kind != types.MapKind {
		current = k.element(over)
	}
	if kind != types.ListKind {
		current = k.either(current, k.keyOf(over))
	}
	k.adviseLength(c.IterRange(), over)
	k.loops = append(k.loops, loop{rounds: over.length, whole: over.size})
	collects := c.AccuInit().Kind() == ast.ListKind
	if collects {
		accu = &extent{size: fixed(leastBytes), nodes: fixed(1), growing: true}
	}
	k.push(c.IterVar(), k.current(current))
	k.push(c.AccuVar(), accu)
	round := fixed(roundCost + joinCost*over.joins*over.joins)
	var step *extent
	for _, part := range []ast.Expr{c.LoopCondition(), c.LoopStep()} {
		var partCost form
		if partCost, step, err = k.cost(part); err != nil {
			return form{}, nil, err
		}
		round = round.plus(partCost)
	}
	k.pop(c.IterVar())
	k.pop(c.AccuVar())
	cost = cost.plus(initCost, k.loops.close(round))
	result := scalar()
	if collects {
		result = k.collected(k.element(step), over.length)
	}
	k.loops = k.loops[:len(k.loops)-1]
	k.push(c.AccuVar(), result)
	resultCost, result, err := k.cost(c.Result())
	k.pop(c.AccuVar())
	return cost.plus(resultCost, fixed(makeCost)), result, err
}

// collected is the list of what the innermost loop made in its rounds.
func (k *coster) collected(e *extent, rounds float64) *extent {
	if e == nil {
		return &extent{size: fixed(leastBytes), nodes: fixed(1)}
	}
	return &extent{
		length: rounds,
		size:   k.loops.close(e.size.plus(fixed(leastBytes))).plus(fixed(leastBytes)),
		nodes:  k.loops.close(e.nodes).plus(fixed(1)),
		elem:   k.outside(e),
	}
}

func (k *coster) push(name string, x *extent) { k.locals[name] = append(k.locals[name], x) }

func (k *coster) pop(name string) { k.locals[name] = k.locals[name][:len(k.locals[name])-1] }

// call is the cost of a function or an operator.
func (k *coster) call(e ast.Expr) (form, *extent, error) {
	call := e.AsCall()
	operands := call.Args()
	if call.IsMemberFunction() {
		operands = append([]ast.Expr{call.Target()}, operands...)
	}
	if len(operands) == 0 {
		return form{}, nil, k.unknown(e)
	}
	cost := fixed(callCost)
	xs := make([]*extent, len(operands))
	for i, o := range operands {
		c, x, err := k.cost(o)
		if err != nil {
			return form{}, nil, err
		}
		cost, xs[i] = cost.plus(c), x
	}
	own, x, err := k.function(e, operands, xs)
	return cost.plus(own), x, err
}

func (k *coster) unknown(e ast.Expr) error {
	return k.fault(e, "%s is not available in conditions", fmt.Sprintf("%.60q", e.AsCall().FunctionName()))
}

var logical = []string{operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse}
