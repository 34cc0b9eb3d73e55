package condition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// plain says an issue of CEL's in plain words, where it is one that happens often.
func (s *Scope) plain(message string, at ast.Expr, parsed *ast.AST) string {
	message, _, _ = strings.Cut(message, "\n")
	if strings.Contains(message, "recursion limit exceeded") || strings.Contains(message, "recursion depth exceeded") {
		return fmt.Sprintf("the expression is nested too deeply, or a chain of its operators is too long: %d are the most; make it several conditions", maxNesting)
	}
	if what, is := strings.CutPrefix(message, syntaxError); is {
		return "syntax error: " + plainSyntax(what)
	}
	if text, is := plainTypes(message); is {
		return text
	}
	if at == nil {
		return "CEL: " + message
	}
	switch {
	case strings.HasPrefix(message, "undefined field ") && at.Kind() == ast.SelectKind:
		sel := at.AsSelect()
		owner := newSight(s).of(sel.Operand(), parsed.Expr())
		text := fmt.Sprintf("%s has no field %q", textOf(sel.Operand(), parsed), sel.FieldName())
		if owner == nil {
			return text
		}
		return text + didYouMean(sel.FieldName(), slices.Collect(maps.Keys(owner.fields)))
	case strings.HasPrefix(message, "undeclared reference to ") && at.Kind() == ast.IdentKind:
		names := append(slices.Collect(maps.Keys(s.slots)), "event")
		name := strings.TrimPrefix(at.AsIdent(), ".")
		return fmt.Sprintf("there is no variable %q", name) + didYouMean(name, names)
	case strings.HasPrefix(message, "undeclared reference to ") && at.Kind() == ast.CallKind:
		name, names := at.AsCall().FunctionName(), functionNames()
		if slices.Contains(names, name) {
			return fmt.Sprintf("%q cannot be called like this: it takes other arguments", name)
		}
		return fmt.Sprintf("there is no function %q", name) + didYouMean(name, names)
	}
	return "CEL: " + message
}

const syntaxError = "Syntax error: "

// meantSigns are what is written in other languages for a sign of CEL's.
var meantSigns = map[string]string{"=": "==", "&": "&&", "|": "||", "and": "&&", "or": "||"}

// plainSyntax says what the parser complains of.
func plainSyntax(what string) string {
	what, _, _ = strings.Cut(what, " expecting ")
	if strings.HasSuffix(what, "'<EOF>'") {
		if missing, is := strings.CutPrefix(what, "missing "); is {
			missing, _, _ = strings.Cut(missing, " at ")
			return fmt.Sprintf("%q is missing at the end", unquoted(missing))
		}
		return "the expression ends too early"
	}
	if text, is := strings.CutPrefix(what, "token recognition error at: "); is {
		text = unquoted(text)
		sign := text[:min(1, len(text))]
		switch {
		case sign == `"` || sign == `'`:
			return "this text does not end, or has an escape that there is not"
		case meantSigns[sign] != "":
			return fmt.Sprintf("there is no %s; did you mean %q?", sign, meantSigns[sign])
		}
		return fmt.Sprintf("%q means nothing here", clip(text, maxPointerBytes))
	}
	if text, is := strings.CutPrefix(what, "no viable alternative at input "); is {
		return fmt.Sprintf("%q cannot be understood", clip(unquoted(text), maxPointerBytes))
	}
	if text, is := strings.CutPrefix(what, "missing "); is {
		missing, at, _ := strings.Cut(text, " at ")
		return fmt.Sprintf("%q is missing before %q", unquoted(missing), clip(unquoted(at), maxPointerBytes))
	}
	for _, prefix := range []string{"mismatched input ", "extraneous input "} {
		if text, is := strings.CutPrefix(what, prefix); is {
			text = unquoted(text)
			if meant := meantSigns[strings.ToLower(text)]; meant != "" {
				return fmt.Sprintf("there is no %s; did you mean %q?", text, meant)
			}
			return fmt.Sprintf("%q is not expected here", clip(text, maxPointerBytes))
		}
	}
	return what
}

func unquoted(text string) string {
	if n := len(text); n > 1 && text[0] == '\'' && text[n-1] == '\'' {
		return text[1 : n-1]
	}
	return text
}

// plainTypes says that an operator or a function is for other types.
func plainTypes(message string) (string, bool) {
	if of, is := strings.CutPrefix(message, "found no matching overload for "); is {
		name, types, found := strings.Cut(of, " applied to ")
		if !found {
			return "", false
		}
		return noOverload(unquoted(name), unquoted(types))
	}
	if of, is := strings.CutPrefix(message, "expected type 'bool' but found "); is {
		return fmt.Sprintf("a condition is needed here, and %s is none", typeName(unquoted(of))), true
	}
	if of, is := strings.CutSuffix(message, " does not support field selection"); is {
		return fmt.Sprintf("%s has no fields", typeName(unquoted(strings.TrimPrefix(of, "type ")))), true
	}
	if of, is := strings.CutPrefix(message, "expression of type "); is {
		of, _, _ = strings.Cut(of, " cannot be range")
		return fmt.Sprintf("%s has no elements to go through", typeName(unquoted(of))), true
	}
	if message == "invalid argument to has() macro" {
		return `"has" takes a field, as in has(payload.note)`, true
	}
	if of, is := strings.CutPrefix(message, "reserved identifier: "); is {
		return fmt.Sprintf("%q is a word of CEL's, and no name", of), true
	}
	if of, is := strings.CutPrefix(message, "invalid "); is && strings.HasSuffix(of, " literal") {
		return "the number is too large, or is none", true
	}
	return "", false
}

// noOverload says what an operator or a function cannot be applied to. types is as CEL has it: (A, B), or TARGET.(A, B).
func noOverload(name, types string) (string, bool) {
	var operands []string
	list, is := strings.CutPrefix(types, "(")
	if !is {
		target, arguments, member := strings.Cut(types, ".(")
		if !member {
			return "", false
		}
		operands, list = append(operands, target), arguments
	}
	operands = append(operands, splitTypes(strings.TrimSuffix(list, ")"))...)
	names := make([]string, len(operands))
	for i, o := range operands {
		names[i] = typeName(o)
	}
	sign, isOperator := operators.FindReverse(name)
	switch {
	case len(names) == 2 && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, sign):
		if slices.Contains(operands, "timestamp") && slices.Contains(operands, "string") {
			return fmt.Sprintf(`%q cannot compare %s with %s: make a time of the text, as in timestamp("2026-01-31T00:00:00Z")`, sign, names[0], names[1]), true
		}
		return fmt.Sprintf("%q cannot compare %s with %s%s", sign, names[0], names[1], mixedHint(operands)), true
	case len(names) == 2 && name == operators.In:
		return fmt.Sprintf(`"in" cannot look for %s in %s`, names[0], names[1]), true
	case len(names) == 2 && name == operators.Index && strings.Contains(operands[0], "#"):
		return `"[ ]" is for lists and mappings: write the field of an object after a dot, as in payload.note`, true
	case len(names) == 2 && name == operators.Index:
		return fmt.Sprintf(`"[ ]" cannot find %s in %s`, names[1], names[0]), true
	case len(names) == 3 && name == operators.Conditional && operands[0] != "bool":
		return fmt.Sprintf(`before "?" a condition is needed, and %s is none`, names[0]), true
	case len(names) == 3 && name == operators.Conditional:
		return fmt.Sprintf(`"?" has to yield the same type either way, not %s or %s%s`, names[1], names[2], mixedHint(operands[1:])), true
	case isOperator && sign == "!":
		return fmt.Sprintf(`"!" is for conditions, and %s is none`, strings.Join(names, ", ")), true
	case isOperator && sign != "":
		return fmt.Sprintf("%q cannot be applied to %s%s", sign, strings.Join(names, " and "), mixedHint(operands)), true
	case len(names) == 0:
		return fmt.Sprintf("%q takes arguments", name), true
	}
	return fmt.Sprintf("%q cannot be applied to %s", name, strings.Join(names, " and ")), true
}

// mixedHint tells how a whole number becomes any other.
func mixedHint(operands []string) string {
	if slices.Contains(operands, "double") && slices.Contains(operands, "int") {
		return ": write a whole number with .0 to use it with a number, as in 5.0"
	}
	return ""
}

// splitTypes splits at the commas that are in no parentheses.
func splitTypes(list string) []string {
	var types []string
	depth, start := 0, 0
	for i, r := range list {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				types = append(types, strings.TrimSpace(list[start:i]))
				start = i + 1
			}
		}
	}
	if last := strings.TrimSpace(list[start:]); last != "" {
		types = append(types, last)
	}
	return types
}

var typeNames = map[string]string{
	"string": "a text", "int": "a whole number", "uint": "an unsigned whole number", "double": "a number", "bool": "true or false", "null": "null",
	"bytes": "bytes", "timestamp": "a time", "duration": "a duration", "dyn": "a value of any type", "type": "a type",
}

// typeName is a type of CEL's in words.
func typeName(celType string) string {
	if name := typeNames[celType]; name != "" {
		return name
	}
	if of, is := strings.CutPrefix(celType, "wrapper("); is {
		return typeName(strings.TrimSuffix(of, ")")) + " or null"
	}
	if of, is := strings.CutPrefix(celType, "list("); is {
		switch of = typeNames[strings.TrimSuffix(of, ")")]; of {
		case "a text", "a whole number", "a number":
			_, noun, _ := strings.Cut(of, " ")
			return "a list of " + noun + "s"
		}
		return "a list"
	}
	if strings.HasPrefix(celType, "map(") || strings.Contains(celType, "#") {
		return "an object"
	}
	return strings.TrimFunc(celType, unicode.IsControl)
}
