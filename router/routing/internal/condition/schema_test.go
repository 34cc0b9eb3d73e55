package condition

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"cel.dev/cel-go/cel"
)

// TestTypes shows which type CEL is told of each kind of schema.
func TestTypes(t *testing.T) {
	t.Parallel()
	for schemaText, want := range map[string]string{
		`{"type": "string"}`:                             "string",
		`{"type": "integer"}`:                            "int",
		`{"type": "number"}`:                             "double",
		`{"type": "boolean"}`:                            "bool",
		`{"type": "null"}`:                               "null",
		`{"type": ["string", "null"]}`:                   "wrapper(string)",
		`{"type": ["null", "integer"]}`:                  "wrapper(int)",
		`{"type": ["boolean", "null"]}`:                  "wrapper(bool)",
		`{"type": ["integer", "number"]}`:                "double",
		`{"type": ["string", "integer"]}`:                "dyn",
		`{"type": "array", "items": {"type": "string"}}`: "list(string)",
		`{"type": "array"}`:                              "list(dyn)",
		`{"type": ["array", "null"]}`:                    "dyn",
		`{"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}`: "list(dyn)",
		`{"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}`:         "list(list(int))",
		`{"type": "object"}`: "map(string, dyn)",
		`{"type": "object", "additionalProperties": {"type": "integer"}}`:                                                  "map(string, int)",
		`{"type": "object", "additionalProperties": {"type": "integer"}, "patternProperties": {"^x": {"type": "string"}}}`: "map(string, dyn)",
		`{"type": ["object", "null"]}`:                                      "dyn",
		`{"type": "object", "properties": {"a": {}}}`:                       "x/1#/properties/f",
		`{"type": ["object", "null"], "properties": {"a": {}}}`:             "x/1#/properties/f",
		`{"properties": {"a": {}}}`:                                         "x/1#/properties/f",
		`{"$ref": "#/$defs/actor"}`:                                         "x/1#/$defs/actor",
		`{"$ref": "#/$defs/actor", "description": "who"}`:                   "x/1#/$defs/actor",
		`{"allOf": [{"$ref": "#/$defs/actor"}]}`:                            "x/1#/$defs/actor",
		`{"anyOf": [{"$ref": "#/$defs/actor"}, {"type": "null"}]}`:          "x/1#/$defs/actor",
		`{"allOf": [{"$ref": "#/$defs/actor"}, {"properties": {"b": {}}}]}`: "x/1#/$defs/actor & /properties/f/allOf/1",
		`{"enum": ["a", "b"]}`:                                              "string",
		`{"enum": ["a", null]}`:                                             "wrapper(string)",
		`{"enum": [1, 2]}`:                                                  "int",
		`{"enum": [1, 2.5]}`:                                                "double",
		`{"enum": ["a", 1]}`:                                                "dyn",
		`{"const": true}`:                                                   "bool",
		`{"const": 1.0}`:                                                    "int",
		`{"const": {"a": 1}}`:                                               "map(string, dyn)",
		`{"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}`:         "string",
		`{"anyOf": [{"type": "integer"}, {"type": "number"}]}`:              "double",
		`{"anyOf": [{"type": "integer"}, {"type": "string"}]}`:              "dyn",
		`{"allOf": [{"type": "number"}, {"type": "integer"}]}`:              "int",
		`{"allOf": [{"type": ["string", "null"]}, {"enum": ["a", 1]}]}`:     "string",
		`{"type": "string", "not": {"const": "a"}}`:                         "string",
		`{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/$defs/actor", "type": "string"}`: "x/1#/$defs/actor",
		`true`: "dyn", `{}`: "dyn", `false`: "dyn", `{"allOf": [{"type": "string"}, {"type": "integer"}]}`: "dyn",
	} {
		doc := map[string]any{"type": "object", "properties": map[string]any{"f": decoded(t, schemaText)}}
		if strings.Contains(schemaText, "draft-07") {
			inner := doc["properties"].(map[string]any)["f"].(map[string]any)
			doc["$schema"] = inner["$schema"]
			delete(inner, "$schema")
		}
		s, err := CompileSchema("x/1", doc, map[string]any{"actor": decoded(t, actorSchema)})
		if err != nil {
			t.Errorf("%s: %v", schemaText, err)
			continue
		}
		if got := cel.FormatCELType(s.root.fields["f"].node.celType); got != want {
			t.Errorf("%s is a %s, not a %s", schemaText, got, want)
		}
	}
}

// TestAlternatives shows what is known of fields that not all alternatives have.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	s := schema(t, "x/1", `{
		"type": "object",
		"properties": {"own": {"type": "string"}},
		"oneOf": [
			{"properties": {"kind": {"const": "a"}, "both": {"type": "integer"}, "own": {}, "amount": {"type": "number"}, "differs": {"type": "string"}}},
			{"properties": {"kind": {"const": "b"}, "both": {"type": "integer"}, "reason": {"type": "string"}, "differs": {"type": "integer"}}}
		],
		"if": {"properties": {"asked": {"type": "string"}}}, "then": {"properties": {"then": {"type": "string"}}},
		"dependentSchemas": {"own": {"properties": {"dependent": {"type": "string"}}}}
	}`, nil)
	for name, want := range map[string]string{
		"own": "string", "kind": "string", "both": "int", "amount": "dyn", "reason": "dyn", "differs": "dyn", "then": "dyn", "dependent": "dyn",
	} {
		if f := s.root.fields[name]; f == nil || cel.FormatCELType(f.node.celType) != want {
			t.Errorf("%s is %+v, not a %s", name, f, want)
		}
	}
	either := schema(t, "x/1", `{"anyOf": [
		{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "null"}, {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}
	]}`, nil).root
	if f := either.fields["a"]; f == nil || f.node.kind != textNode || f.node.words != nil || !either.nullable {
		t.Errorf("two objects or null: %+v", either)
	}
	if s.root.fields["asked"] != nil {
		t.Error("a field that is only asked about is known")
	}
	if got := s.root.fields["kind"].node.words; !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("kind is one of %q", got)
	}
}

func TestRecursiveSchemas(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}, "list": {"type": "array", "items": {"$ref": "#"}}}}`,
		`{"$ref": "#/$defs/a", "$defs": {
			"a": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/b"}, "list": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
			"b": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/a"}, "list": {"type": "array", "items": {"$ref": "#/$defs/b"}}}}
		}}`,
		`{"$id": "https://example.com/node.json", "type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "https://example.com/node.json"}, "list": {"type": "array", "items": {"$ref": "#"}}}}`,
	} {
		s := schema(t, "tree/1", text, nil)
		scope, err := NewScope(Variable{"payload", s})
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.Decode([]byte(`{"name": "a", "next": {"next": {"name": "b", "list": [{"name": "c"}]}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for condition, want := range map[string]bool{
			`payload.next.next.name == "b"`: true, `payload.next.next.next.next.name == ""`: true, `payload.next.next.list[0].name == "c"`: true,
			`payload.next.next.list.exists(l, l.next.name == "" && l.name == "c")`: true, `has(payload.next.name)`: false,
		} {
			p, err := scope.Compile(condition, Bool)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.Bool(&Values{Vars: []any{v}}); err != nil || got != want {
				t.Errorf("%s is %v, %v", condition, got, err)
			}
		}
		if _, err := scope.Compile(`payload.next.list[0].nane == ""`, Bool); err == nil {
			t.Error("a misspelt field of a recursive schema compiles")
		}
	}
	// A list of itself has no type that could be written down.
	s := schema(t, "lists/1", `{"type": "array", "items": {"$ref": "#"}}`, nil)
	if _, err := s.Decode([]byte(`[[], [[]]]`)); err != nil {
		t.Error(err)
	}
}

func TestDefinitions(t *testing.T) {
	t.Parallel()
	doc := decoded(t, `{"$defs": {"own": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/own"}, "b": {"$ref": "#/$defs/actor"}}}`)
	actor := decoded(t, `{"type": "object", "properties": {"boss": {"$ref": "#/$defs/actor"}}}`)
	definitions := map[string]any{"actor": actor}
	s, err := CompileSchema("x/1", doc, definitions)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.root.fields["b"].node.fields["boss"].node; got != s.root.fields["b"].node {
		t.Errorf("boss is %+v", got)
	}
	if want := decoded(t, `{"$defs": {"own": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/own"}, "b": {"$ref": "#/$defs/actor"}}}`); !reflect.DeepEqual(doc, want) || len(definitions) != 1 {
		t.Error("the arguments were changed")
	}
	if _, err := CompileSchema("x/1", doc, map[string]any{"own": true, "actor": true}); err == nil || !strings.Contains(err.Error(), "$defs/own is among the definitions for all schemas, too: give it another name") {
		t.Errorf("two definitions have one name: %v", err)
	}
	if _, err := CompileSchema("x/1", decoded(t, `{"$defs": 1}`), map[string]any{"own": true}); err == nil || !strings.Contains(err.Error(), "$defs is no object") {
		t.Errorf("$defs is a number: %v", err)
	}
}

// TestNothingIsLoaded refers to a file that there is.
func TestNothingIsLoaded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(file, []byte(`{"type": "string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"file://" + file, file} {
		if _, err := CompileSchema("x/1", map[string]any{"$ref": ref}, nil); err == nil || !strings.Contains(err.Error(), "only references within the schema are followed") {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestEndlessDocument(t *testing.T) {
	t.Parallel()
	doc := map[string]any{}
	doc["not"] = doc
	if _, err := CompileSchema("x/1", doc, nil); err == nil || !strings.Contains(err.Error(), "nested more than 128 levels") {
		t.Errorf("a document within itself: %v", err)
	}
}

func TestSchemaNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a#b", "a\nb", strings.Repeat("a", 600)} {
		if _, err := CompileSchema(name, true, nil); err == nil {
			t.Errorf("%.20q is a name", name)
		}
	}
	if _, err := CompileSchema("google.protobuf.Duration", decoded(t, caseSchema), map[string]any{"actor": true}); err != nil {
		t.Error(err)
	}
}

// TestHostileSchemas shows that each is refused, or that checking with it ends.
func TestHostileSchemas(t *testing.T) {
	t.Parallel()
	deep := []byte(strings.Repeat(`{"a":`, 90) + `"x"` + strings.Repeat(`}`, 90))
	for _, text := range hostileSchemas() {
		start := time.Now()
		s, err := CompileSchema("hostile/1", decoded(t, text), nil)
		if err == nil {
			_, err = s.Decode(deep)
		}
		if err != nil && len(err.Error()) > 3*maxMessage {
			t.Errorf("the error has %d bytes: %v", len(err.Error()), err)
		}
		if took := time.Since(start); took > slow {
			t.Errorf("%.80s took %s", text, took)
		}
	}
}

func TestSchemaErrors(t *testing.T) {
	t.Parallel()
	deep := `{"a": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`
	var branches []string
	for i := range 15 {
		branches = append(branches, fmt.Sprintf(`"b%d": {"anyOf": [{"$ref": "#/$defs/b%d"}, {"$ref": "#/$defs/b%d"}]}`, i, i+1, i+1))
	}
	for text, want := range map[string]string{
		`{"$ref": "#"}`: "# refers to itself for the same value, without end",
		`{"properties": {"a": {"$ref": "#/properties/a"}}}`:                  "#/properties/a refers to itself for the same value",
		`{"$ref": "#/$defs/none"}`:                                           `"#/$defs/none" not found`,
		`{"$ref": "other.json#/a"}`:                                          `it refers to "other.json": only references within the schema are followed`,
		`{"$ref": "https://example.com/s"}`:                                  `it refers to "https://example.com/s": only`,
		`{"$ref": "file:///etc/passwd"}`:                                     `it refers to "file:///etc/passwd": only`,
		`{"$dynamicRef": "#a", "$dynamicAnchor": "a"}`:                       "dynamic reference, which is not supported: use $ref",
		`{"properties": {"a": {"$dynamicRef": "#"}}}`:                        "#/properties/a has a dynamic reference",
		`{"type": "wrong"}`:                                                  "it is no JSON Schema: at '/type'",
		`{"pattern": "("}`:                                                   "missing closing )",
		`{"pattern": "` + strings.Repeat("x", 1001) + `"}`:                   "1001 bytes, more than 1000",
		`{"pattern": "(a{100}){11}"}`:                                        "invalid repeat count",
		`{"pattern": "a{900}a{900}a{900}"}`:                                  "instructions, more than 2000",
		`{"patternProperties": {"a{900}a{900}a{900}": {}}}`:                  "instructions, more than 2000",
		`{"minimum": 1e5000}`:                                                "a number has more digits or a larger exponent",
		`{"minItems": 1e30}`:                                                 "minItems is 1e30, which is no number of things",
		deep:                                                                 "nested more than 128 levels",
		`{"description": "` + strings.Repeat("x", 2<<20) + `"}`:              "more than 1048576 bytes of text",
		`{"enum": [` + strings.Repeat("0,", 60_000) + `1]}`:                  "more than 50000 values",
		`{"allOf": [` + strings.Repeat(`{"minLength": 1},`, 11_000) + `{}]}`: "more than 10000 subschemas",
		`{"$defs": {` + strings.Join(branches, ",") + `, "b15": {"properties": {"a": {"type": "array"}}}}, "$ref": "#/$defs/b0"}`: "", // all alternatives are one
		`{"$defs": {` + strings.Join(branches, ",") + `, "b15": {}}, "properties": {"a": {"$ref": "#/$defs/b0"}}}`:                "",
	} {
		_, err := CompileSchema("x/1", decoded(t, text), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "schema x/1: ")) {
			t.Errorf("%.80s: %.300v, not %q", text, err, want)
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"enum": ["b", "a", "a"]}`:                                                          {"a", "b"},
		`{"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}`:                            {"b"},
		`{"anyOf": [{"const": "a"}, {"const": 1}, {"enum": ["b", null]}]}`:                   {"a", "b"},
		`{"anyOf": [{"const": "a"}, {"type": "string"}]}`:                                    nil,
		`{"anyOf": [{"const": "a"}, {"type": "integer"}]}`:                                   {"a"},
		`{"type": "string", "oneOf": [{"const": "a"}, {"type": ["string"], "enum": ["b"]}]}`: {"a", "b"},
		`{"type": "string"}`: nil,
	} {
		s := schema(t, "x/1", text, nil)
		if !reflect.DeepEqual(s.root.words, want) {
			t.Errorf("%s is one of %q, not %q", text, s.root.words, want)
		}
	}
}

// TestOlderDrafts shows the keywords that later drafts have replaced.
func TestOlderDrafts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, good, bad string }{
		{`{"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}}`, `{"a": 1}`, `{"a": 0}`},
		{`{"$schema": "http://json-schema.org/draft-06/schema#", "contains": {"const": 1}}`, `[0, 1]`, `[0]`},
		{`{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}], "additionalItems": {"type": "string"}}`, `[1, "a"]`, `[1, 2]`},
		{`{"$schema": "http://json-schema.org/draft-07/schema#", "items": {"type": "integer"}}`, `[1]`, `["a"]`},
		{`{"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}`, `{"a": 1, "b": 1}`, `{"c": 1}`},
		{`{"$schema": "https://json-schema.org/draft/2019-09/schema", "properties": {"a": true}, "unevaluatedProperties": {"type": "string"}}`, `{"a": 1, "b": "x"}`, `{"b": 1}`},
		{`{"prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "unevaluatedItems": false}`, `[1, "a"]`, `["a"]`},
		{`{"dependentSchemas": {"a": {"required": ["b"]}}, "dependentRequired": {"c": ["d"]}, "patternProperties": {"^n": {"type": "integer"}}, "propertyNames": {"maxLength": 3}}`, `{"a": 1, "b": 1, "n": 5}`, `{"n": "x"}`},
		{`{"uniqueItems": true, "contains": {"type": "object"}}`, `[{"a": 1}, {"a": 2}]`, `[{"a": 1}, {"a": 1.0}]`},
		{`{"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"type": "string"}}`, `7`, `true`},
	} {
		s := schema(t, "old/1", c.schema, nil)
		if _, err := s.Decode([]byte(c.good)); err != nil {
			t.Errorf("%s refuses %s: %v", c.schema, c.good, err)
		}
		if _, err := s.Decode([]byte(c.bad)); err == nil {
			t.Errorf("%s admits %s", c.schema, c.bad)
		}
		for _, left := range []int{0, 1, 2, 3, 5, 8} { // wherever the steps end, they end
			var v any
			if v, _ = own(decoded(t, c.good)); (&effort{left: left, weights: s.efforts}).enough(s.compiled, v) && left == 0 {
				t.Errorf("%s takes no step", c.schema)
			}
		}
	}
}

// TestBuilderWork bounds what fields of nested alternatives take.
func TestBuilderWork(t *testing.T) {
	t.Parallel()
	text := `{"$defs": {"b0": {"properties": {"x": {"type": "string"}}}`
	for i := range 30 {
		text += fmt.Sprintf(`, "b%d": {"anyOf": [{"$ref": "#/$defs/b%d"}, {"$ref": "#/$defs/b%d"}]}`, i+1, i, i)
	}
	if _, err := CompileSchema("x/1", decoded(t, text+`}, "$ref": "#/$defs/b30"}`), nil); err == nil || !strings.Contains(err.Error(), "simplify its anyOf and oneOf") {
		t.Errorf("2³⁰ alternatives: %v", err)
	}
	// Fields that several schemas have a say in make as many places as there are combinations.
	var sets []string
	for i := range 14 {
		sets = append(sets, fmt.Sprintf(`{"type": "object", "properties": {"a": {"$ref": "#/allOf/%d"}, "b": {"$ref": "#/allOf/%d"}}}`, i, (i+1)%14))
	}
	start := time.Now()
	_, err := CompileSchema("x/1", decoded(t, `{"allOf": [`+strings.Join(sets, ",")+`]}`), nil)
	if took := time.Since(start); took > slow {
		t.Errorf("it took %s: %v", took, err)
	}
}
