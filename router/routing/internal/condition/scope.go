package condition

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"unicode"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
)

// Bounds of an expression.
const (
	maxExpression = 4096 // bytes
	maxNesting    = 64
)

// Variable is what a condition may refer to by its name.
type Variable struct {
	Name   string
	Schema *Schema // of its values, which are those of Decode and Normalise; nil: any, of DecodeAny
}

// Scope is what conditions may use: some variables, and `event`, which has the fields id, type,
// occurred_at, correlation_id, causation_id, tenant_id, station_id, aggregate_type, aggregate_id,
// ordering_key, idempotency_key, schema_version and severity. It is safe for concurrent use.
type Scope struct {
	vars     []Variable
	slots    map[string]int
	provider *provider
	env      *cel.Env
	pool     sync.Pool // of *activation

	mu    sync.Mutex
	steps map[pathID][]step
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Words of CEL that are no names, and what its own types are called.
var reserved = map[string]bool{
	"as": true, "break": true, "const": true, "continue": true, "else": true, "false": true, "for": true, "function": true, "if": true,
	"import": true, "in": true, "let": true, "loop": true, "namespace": true, "null": true, "package": true, "return": true, "true": true,
	"var": true, "void": true, "while": true, "__result__": true, "event": true,
	"bool": true, "bytes": true, "double": true, "duration": true, "dyn": true, "int": true, "list": true, "map": true, "null_type": true,
	"string": true, "timestamp": true, "type": true, "uint": true, "google": true, "optional_type": true,
}

const maxVariables = 1000

// NewScope returns one with the variables. Their names are identifiers of CEL that mean nothing else, and their
// schemas have different names, unless they are the same.
func NewScope(vars ...Variable) (*Scope, error) {
	s := &Scope{vars: slices.Clone(vars), slots: map[string]int{}, provider: &provider{schemas: map[string]*Schema{}}, steps: map[pathID][]step{}}
	if len(vars) > maxVariables {
		return nil, fmt.Errorf("there are %d variables, more than %d", len(vars), maxVariables)
	}
	opts := []cel.EnvOption{cel.CustomTypeAdapter(s.provider), cel.CustomTypeProvider(s.provider), cel.Variable("event", eventNode.celType)}
	for slot, v := range vars {
		_, double := s.slots[v.Name]
		switch {
		case !identifier.MatchString(v.Name):
			return nil, fmt.Errorf("a variable cannot be called %.60q: letters, digits and _ are allowed, the first one no digit", v.Name)
		case reserved[v.Name]:
			return nil, fmt.Errorf("a variable cannot be called %s, which means something else already: choose another name", v.Name)
		case double:
			return nil, fmt.Errorf("there are two variables %s: choose another name for one", v.Name)
		}
		s.slots[v.Name] = slot
		if v.Schema != nil {
			if other := s.provider.schemas[v.Schema.name]; other != nil && other != v.Schema {
				return nil, fmt.Errorf("there are two schemas %s: give one another name", v.Schema.name)
			}
			s.provider.schemas[v.Schema.name] = v.Schema
		}
		opts = append(opts, cel.Variable(v.Name, s.nodeOf(slot).celType))
	}
	base, err := baseEnv()
	if err != nil {
		return nil, err
	}
	if s.env, err = base.Extend(opts...); err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	s.pool.New = func() any { return &activation{scope: s} }
	return s, nil
}

// baseEnv is what all scopes have in common.
var baseEnv = sync.OnceValues(func() (*cel.Env, error) {
	env, err := cel.NewEnv(
		cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true), cel.EnableIdentifierEscapeSyntax(), cel.EnableMacroCallTracking(),
		cel.ParserRecursionLimit(maxNesting), cel.ParserExpressionSizeLimit(maxExpression), cel.EagerlyValidateDeclarations(true),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	return env, nil
})

// nodeOf is what is known of a variable.
func (s *Scope) nodeOf(slot int) *node {
	if schema := s.vars[slot].Schema; schema != nil {
		return schema.root
	}
	return dynamic
}

// Result is what an expression is to yield.
type Result int

// The results.
const (
	Bool Result = iota
	Text
)

func (r Result) String() string {
	if r == Text {
		return "string"
	}
	return "bool"
}

// Expression is a parsed expression: scopes make programs of it. It takes one goroutine at a time.
type Expression struct {
	parsed *cel.Ast
	err    error // why there is none
}

// Parse parses an expression of CEL's standard language. What is wrong with it, its compilation tells.
func Parse(text string) (x *Expression) {
	defer recovered(func(err error) { x = &Expression{err: err} })
	if len(text) > maxExpression {
		return &Expression{err: &CompileError{Faults: []Fault{{1, 1, fmt.Sprintf("the expression has %d bytes; %d are the most", len(text), maxExpression)}}}}
	}
	base, err := baseEnv()
	if err != nil {
		return &Expression{err: err}
	}
	parsed, issues := base.Parse(text)
	if len(issues.Errors()) > 0 { // not Err, which renders them all
		return &Expression{err: (&Scope{}).faults(issues, nil)}
	}
	return &Expression{parsed: parsed}
}

// Words counts the words and the signs of an expression, those in its texts included: how long it takes to compile goes by them.
func Words(text string) int {
	n, within := 0, false
	for _, r := range text {
		word := r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)
		if word && !within || !word && !unicode.IsSpace(r) {
			n++
		}
		within = word
	}
	return n
}

// recovered is for panics of CEL's, for texts that nobody has thought of.
func recovered(fail func(error)) {
	if r := recover(); r != nil {
		fail(&CompileError{Faults: []Fault{{1, 1, clip(fmt.Sprintf("it cannot be compiled: %v", r), maxMessage)}}})
	}
}

// Compile checks an expression of CEL's standard language and makes a program of it. The pattern
// of matches has to be a literal. The error is a [*CompileError].
func (s *Scope) Compile(text string, want Result) (*Program, error) {
	return s.CompileParsed(Parse(text), want)
}

// CompileParsed is Compile for an expression that many scopes share: parsing takes longer than the rest.
func (s *Scope) CompileParsed(x *Expression, want Result) (_ *Program, err error) {
	defer recovered(func(failed error) { err = failed })
	if x.err != nil {
		return nil, x.err
	}
	// Checking writes into the syntax tree, but only what names stand for, which is the same in all scopes that have them.
	checked, issues := s.env.Check(x.parsed)
	if len(issues.Errors()) > 0 {
		return nil, s.faults(issues, x.parsed.NativeRep())
	}
	c := &compiler{scope: s, checked: checked.NativeRep(), top: newSight(s), guarded: map[int64]bool{}}
	if err := c.yields(want); err != nil {
		return nil, err
	}
	if err := c.allowed(); err != nil {
		return nil, err
	}
	return c.program(want)
}

// compiler makes a program of a checked expression.
type compiler struct {
	scope   *Scope
	checked *ast.AST
	top     *sight         // with no comprehension around
	guarded map[int64]bool // comparisons that no schema bounds, by the expression's id
}

// fault is an error at an expression.
func (c *compiler) fault(e ast.Expr, format string, args ...any) error {
	return &CompileError{Faults: []Fault{c.faultAt(e, fmt.Sprintf(format, args...))}}
}

// faultWhole is an error of the whole expression.
func (c *compiler) faultWhole(format string, args ...any) error {
	return &CompileError{Faults: []Fault{{1, 1, fmt.Sprintf(format, args...)}}}
}

func (c *compiler) faultAt(e ast.Expr, message string) Fault {
	at := c.checked.SourceInfo().GetStartLocation(e.ID())
	return Fault{Line: max(1, at.Line()), Column: max(0, at.Column()) + 1, Message: message}
}
