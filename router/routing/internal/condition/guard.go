package condition

import (
	"errors"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// maxCompared bounds how many values within lists, maps and objects one evaluation compares, where
// the schemas do not bound it.
const maxCompared = 3000

var errCompared = errors.New("the lists or objects to compare have too many values: compare their fields, or bound them in the schema")

// guard is a comparison of values that can be large. CEL counts one step for it, whatever their
// size.
type guard struct {
	id   int64
	name string
	a, b interpreter.InterpretableV2
}

// guards puts a guard before the comparisons that the estimate found to be unbounded.
func (c *compiler) guards(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, is := i.(interpreter.InterpretableCall)
	if !is || !c.guarded[i.ID()] || len(call.Args()) != 2 {
		return i, nil
	}
	return &guard{id: i.ID(), name: call.Function(), a: call.Args()[0], b: call.Args()[1]}, nil
}

// ID implements [interpreter.Interpretable].
func (g *guard) ID() int64 { return g.id }

// Eval implements [interpreter.Interpretable].
func (g *guard) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, g.Exec)
}

// Exec implements [interpreter.InterpretableV2].
func (g *guard) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a := g.a.Exec(frame)
	if types.IsUnknownOrError(a) {
		return a
	}
	b := g.b.Exec(frame)
	if types.IsUnknownOrError(b) {
		return b
	}
	found, _ := frame.ResolveName(compareBudget)
	budget, is := found.(*activation)
	if !is || !budget.compare(g.name, a, b) {
		return types.WrapErr(errCompared)
	}
	switch g.name {
	case operators.Equals:
		return types.Equal(a, b)
	case operators.NotEquals:
		return types.Bool(types.Equal(a, b) != types.True)
	}
	if in, is := b.(traits.Container); is {
		return in.Contains(a)
	}
	return types.MaybeNoSuchOverloadErr(b)
}

// compareBudget is the name by which guards find the activation. No expression can say it.
const compareBudget = "@compared"

// compare takes what comparing two values needs from what is left.
func (a *activation) compare(name string, x, y ref.Val) bool {
	if !nested(x) || !nested(y) {
		return true
	}
	if name == operators.Equals || name == operators.NotEquals {
		if s, t := x.(traits.Sizer).Size(), y.(traits.Sizer).Size(); s != t {
			return true
		}
	}
	left := a.left
	enough := count(y, &left)
	if !enough && name != operators.In { // comparing ends with the smaller one
		left = a.left
		enough = count(x, &left)
	}
	if enough {
		a.left = left
	}
	return enough
}

func nested(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}

// count takes the values within a value, and reports whether there were enough left.
func count(v any, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	switch v := v.(type) {
	case []any:
		return countAll(v, left)
	case map[string]any:
		for _, e := range v {
			if !count(e, left) {
				return false
			}
		}
	case traits.Mapper:
		if plain, is := v.Value().(map[string]any); is {
			*left++ // it is the same
			return count(plain, left)
		}
		for it := v.Iterator(); it.HasNext() == types.True; {
			if e, _ := v.Find(it.Next()); !count(e, left) {
				return false
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !count(it.Next(), left) {
				return false
			}
		}
	}
	return true
}

func countAll(list []any, left *int) bool {
	for _, e := range list {
		if !count(e, left) {
			return false
		}
	}
	return true
}
