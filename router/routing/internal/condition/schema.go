package condition

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a schema, and of what is compiled from it.
const (
	maxSchemaName  = 512     // bytes
	maxSchemaDepth = 128     // levels of the document
	maxSchemaNodes = 50_000  // values in the document
	maxSchemaBytes = 1 << 20 // of all texts in the document
	maxSubschemas  = 10_000
	maxPattern     = 1000 // bytes
	maxPatternSize = 2000 // instructions
	maxPatterns    = 200_000
)

// Schema validates JSON and tells CEL its type. It is safe for concurrent use.
type Schema struct {
	name     string
	compiled *jsonschema.Schema
	root     *node
	types    map[string]*node // by the name of their CEL type
	patterns int              // instructions in all of them
	efforts  map[*jsonschema.Schema]int
}

// CompileSchema compiles a schema: decoded JSON of any draft from 4 to 2020-12, which is the
// default. The definitions are reachable as #/$defs/NAME, like the document's own. Formats are
// checked. References have to stay within the schema: nothing is ever loaded. The arguments are
// not changed. The name appears in messages, and has to be unique among the schemas of a [Scope].
func CompileSchema(name string, doc any, definitions map[string]any) (*Schema, error) {
	bad := func(err error) (*Schema, error) { return nil, fmt.Errorf("schema %s: %w", name, err) }
	if name == "" || len(name) > maxSchemaName || strings.ContainsAny(name, "#\n") {
		return nil, fmt.Errorf("a schema's name has 1 to %d bytes, and neither # nor a line break; %.40q is none", maxSchemaName, name)
	}
	whole, err := withDefinitions(doc, definitions)
	if err != nil {
		return bad(err)
	}
	var size documentSize
	if err := size.add(whole, 0); err != nil {
		return bad(err)
	}
	var all patterns
	compiled, err := compileDocument(whole, all.compile)
	if err != nil {
		return bad(err)
	}
	s := &Schema{name: name, compiled: compiled, patterns: all.size}
	if s.efforts, err = inspect(compiled); err != nil {
		return bad(err)
	}
	b := newBuilder(name)
	if s.root, err = b.node([]*jsonschema.Schema{compiled}); err != nil {
		return bad(err)
	}
	b.finish()
	s.types = b.types
	return s, nil
}

// Patterns is what the schema's regular expressions compile to, in instructions.
func (s *Schema) Patterns() int { return s.patterns }

// ValuesIn counts the values of a decoded document, itself among them.
func ValuesIn(doc any) int {
	n := 1
	switch doc := doc.(type) {
	case map[string]any:
		for _, v := range doc {
			n += ValuesIn(v)
		}
	case []any:
		for _, v := range doc {
			n += ValuesIn(v)
		}
	}
	return n
}

// withDefinitions adds definitions to a document, which stays as it is.
func withDefinitions(doc any, definitions map[string]any) (any, error) {
	object, is := doc.(map[string]any)
	if !is || len(definitions) == 0 {
		return doc, nil // true, false, or what the compiler refuses
	}
	all := maps.Clone(definitions)
	if own, has := object["$defs"]; has {
		defs, is := own.(map[string]any)
		if !is {
			return nil, errors.New("$defs is no object")
		}
		for name, def := range defs {
			if _, double := all[name]; double {
				return nil, fmt.Errorf("$defs/%s is among the definitions for all schemas, too: give it another name", name)
			}
			all[name] = def
		}
	}
	whole := maps.Clone(object)
	whole["$defs"] = all
	return whole, nil
}

// documentSize adds up what there is in a document.
type documentSize struct{ nodes, bytes int }

func (d *documentSize) add(v any, depth int) error {
	d.nodes++
	if depth > maxSchemaDepth {
		return fmt.Errorf("it is nested more than %d levels deep", maxSchemaDepth)
	}
	switch v := v.(type) {
	case string:
		d.bytes += len(v)
	case json.Number:
		if !boundedNumber(string(v)) {
			return errors.New("a number has more digits or a larger exponent than can be computed with")
		}
	case map[string]any:
		for k, v := range v {
			d.bytes += len(k)
			if n, is := v.(json.Number); is && counts[k] && !countable(n) {
				return fmt.Errorf("%s is %.40s, which is no number of things", k, n)
			}
			if err := d.add(v, depth+1); err != nil {
				return err
			}
		}
	case []any:
		for _, v := range v {
			if err := d.add(v, depth+1); err != nil {
				return err
			}
		}
	}
	switch {
	case d.nodes > maxSchemaNodes:
		return fmt.Errorf("it has more than %d values", maxSchemaNodes)
	case d.bytes > maxSchemaBytes:
		return fmt.Errorf("it has more than %d bytes of text", maxSchemaBytes)
	}
	return nil
}

// counts are the keywords whose numbers the library takes for 64 bits.
var counts = map[string]bool{
	"minLength": true, "maxLength": true, "minItems": true, "maxItems": true, "minProperties": true, "maxProperties": true, "minContains": true, "maxContains": true,
}

func countable(n json.Number) bool {
	if !boundedNumber(string(n)) {
		return false
	}
	exact, ok := new(big.Rat).SetString(string(n))
	return ok && exact.IsInt() && exact.Num().IsInt64()
}

const address = "waybill:///schema" // hierarchical, so that a relative reference is another address

func compileDocument(doc any, pattern jsonschema.RegexpEngine) (_ *jsonschema.Schema, err error) {
	defer func() { // of the library, for documents that nobody has thought of
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be compiled: %v", r)
		}
	}()
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // no scheme: it refuses all
	c.UseRegexpEngine(pattern)
	c.AssertFormat()
	if err := c.AddResource(address, doc); err != nil {
		return nil, explainCompilation(err)
	}
	s, err := c.Compile(address)
	if err != nil {
		return nil, explainCompilation(err)
	}
	return s, nil
}

// explainCompilation makes a line of the library's error.
func explainCompilation(err error) error {
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var places *jsonschema.ValidationError
		if errors.As(invalid.Err, &places) {
			return fmt.Errorf("it is no JSON Schema: %s", whatIsWrong(places))
		}
	}
	var load *jsonschema.LoadURLError
	if errors.As(err, &load) {
		return fmt.Errorf("it refers to %.200q: only references within the schema are followed, such as #/$defs/NAME", strings.TrimPrefix(load.URL, "waybill:///"))
	}
	return errors.New(oneLine(strings.ReplaceAll(err.Error(), address+"#", "#")))
}

// whatIsWrong names the places of a document that is no schema, and says why. There is nothing to hide in it.
func whatIsWrong(e *jsonschema.ValidationError) string {
	const most, long, head = 3, 250, 80
	var list []string
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) > 0 || len(list) == most {
			return
		}
		text := strings.Join(strings.Fields(e.Error()), " ")
		if len(text) > long { // the reason is at the end
			text = clip(text, head) + strings.ToValidUTF8(text[len(text)-long+head:], "")
		}
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	walk(e)
	return strings.Join(list, "; ")
}

func oneLine(text string) string { return clip(strings.Join(strings.Fields(text), " "), maxMessage) }

// pattern is a regular expression that knows how much work a byte is for it.
type pattern struct {
	*regexp.Regexp
	size int // instructions
}

// patterns are those of a schema.
type patterns struct{ size int }

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	one, err := compilePattern(text)
	if is, ok := one.(pattern); ok {
		p.size += is.size
	}
	if err == nil && p.size > maxPatterns {
		return nil, fmt.Errorf("the patterns of the schema compile to more than %d instructions together", maxPatterns)
	}
	return one, err
}

func compilePattern(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, more than %d", len(text), maxPattern)
	}
	size, err := patternSize(text)
	if err != nil {
		return nil, err
	}
	if size > maxPatternSize {
		return nil, fmt.Errorf("the pattern compiles to %d instructions, more than %d", size, maxPatternSize)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return pattern{re, size}, nil
}

// patternSize is the number of instructions of a compiled pattern.
func patternSize(text string) (int, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	return len(program.Inst), nil
}
