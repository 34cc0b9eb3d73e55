package condition

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/parser"
)

// textOf is an expression as CEL, on one line: the same for expressions that differ in blanks and in
// parentheses only.
func textOf(e ast.Expr, in *ast.AST) string {
	const never = 1 << 30
	text, err := parser.Unparse(e, in.SourceInfo(), parser.EscapeIdentifiers(true), parser.WrapOnColumn(never))
	if err != nil {
		return "the expression"
	}
	return text
}
