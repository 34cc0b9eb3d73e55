package condition

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
)

// Fault is what is wrong at a place of an expression.
type Fault struct {
	Line, Column int // from 1; columns are characters. Of a field it is that of the dot
	Message      string
}

func (f Fault) String() string {
	return fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Message)
}

// CompileError says why an expression does not compile.
type CompileError struct{ Faults []Fault }

// Error implements error.
func (e *CompileError) Error() string {
	list := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		list[i] = f.String()
	}
	return "the expression does not compile: " + strings.Join(list, "; ")
}

// faults says CEL's issues in plain words. The parsed expression is nil if it is not one.
func (s *Scope) faults(issues *cel.Issues, parsed *ast.AST) error {
	var list []Fault
	for i, e := range issues.Errors() {
		if i == maxFaults || i > 0 && strings.HasPrefix(e.Message, syntaxError) { // which often follows from the first
			break
		}
		var at ast.Expr
		if parsed != nil {
			ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
				if x.ID() == e.ExprID {
					at = x
				}
			}))
		}
		list = append(list, Fault{
			Line: max(1, e.Location.Line()), Column: max(0, e.Location.Column()) + 1,
			Message: clip(s.plain(e.Message, at, parsed), maxMessage),
		})
	}
	return &CompileError{Faults: list}
}

// functionNames are those that an expression can call by name.
func functionNames() []string {
	base, err := baseEnv()
	if err != nil {
		return nil
	}
	names := []string{"has", "all", "exists", "exists_one", "map", "filter"}
	for name := range base.Functions() {
		if identifier.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// didYouMean suggests the candidate that is most like a word, if one is.
func didYouMean(word string, candidates []string) string {
	const longest, maxCandidates = 100, 1000
	best, least := "", 1+max(1, len(word)/3)
	if len(candidates) > maxCandidates {
		return ""
	}
	candidates = slices.Sorted(slices.Values(candidates))
	for _, c := range candidates {
		if len(word) > longest || len(c) > longest {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is the number of letters to insert, delete, replace or swap with their neighbours, to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// yields checks the type of the result.
func (c *compiler) yields(want Result) error {
	out := c.checked.GetType(c.checked.Expr().ID())
	wanted := types.BoolType
	if want == Text {
		wanted = types.StringType
	}
	if out.IsExactType(wanted) || out.IsExactType(types.NewNullableType(wanted)) || out.Kind() == types.DynKind {
		return nil
	}
	hint := ""
	if want == Text {
		hint = ": make one of it with string(…)"
	}
	return c.faultWhole("it yields %s, and has to yield %s%s", typeName(cel.FormatCELType(out)), typeName(want.String()), hint)
}
