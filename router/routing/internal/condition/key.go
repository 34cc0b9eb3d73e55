package condition

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/parser"
)

// textOf is an expression as CEL.
func textOf(e ast.Expr, in *ast.AST) string {
	text, err := parser.Unparse(e, in.SourceInfo(), parser.EscapeIdentifiers(true), parser.WrapOnColumn(1<<30))
	if err != nil {
		return "the expression"
	}
	return text
}

func canonical(e ast.Expr, in *ast.AST) string {
	return textOf(e, in)
}
