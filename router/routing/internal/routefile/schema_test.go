package routefile

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// subschemas calls f with each subschema of the routing file's schema and its JSON pointer.
func subschemas(at string, v any, f func(at string, sub map[string]any)) {
	sub, is := v.(map[string]any)
	if !is {
		return
	}
	f(at, sub)
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, keyword := range []string{"properties", "patternProperties", "$defs", "dependentSchemas"} {
		several, _ := sub[keyword].(map[string]any)
		for name, s := range several {
			subschemas(at+"/"+keyword+"/"+escape.Replace(name), s, f)
		}
	}
	for _, keyword := range []string{"items", "additionalProperties", "if", "then", "else", "not"} {
		subschemas(at+"/"+keyword, sub[keyword], f)
	}
	alternatives, _ := sub["anyOf"].([]any)
	for i, s := range alternatives {
		subschemas(fmt.Sprintf("%s/anyOf/%d", at, i), s, f)
	}
}

// documented calls f with each key that a file may have, and its subschema.
func documented(t *testing.T, f func(at, key string, sub map[string]any)) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	subschemas("#", doc, func(at string, sub map[string]any) {
		for _, elsewhere := range []string{"/if", "/then", "/else", "/dependentSchemas"} {
			if strings.Contains(at, elsewhere) { // conditions on keys
				return
			}
		}
		properties, _ := sub["properties"].(map[string]any)
		for key, s := range properties {
			f(at+"/properties/"+key, key, s.(map[string]any))
		}
	})
}

// An editor completes and explains each key: it has a title, a description, and examples that are valid.
func TestSchemaExplainsEachKey(t *testing.T) {
	t.Parallel()
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaAddress, schema().doc); err != nil {
		t.Fatal(err)
	}
	keys := 0
	documented(t, func(at, _ string, sub map[string]any) {
		keys++
		for _, keyword := range []string{"title", "description"} {
			s, _ := sub[keyword].(string)
			if s == "" {
				t.Errorf("%s has no %s", at, keyword)
			}
			if keyword == "description" && !strings.ContainsAny(s, ".:") {
				t.Errorf("%s: a description is a sentence: %q", at, s)
			}
		}
		examples, _ := sub["examples"].([]any)
		if len(examples) == 0 {
			t.Errorf("%s has no examples", at)
		}
		compiled, err := c.Compile(schemaAddress + at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range examples {
			if err := compiled.Validate(e); err != nil {
				t.Errorf("%s: example %v: %v", at, e, err)
			}
		}
	})
	if keys < 60 {
		t.Errorf("only %d keys were found", keys)
	}
}

// The file with each key has each key, so that the tests of what becomes of it are complete.
func TestCompleteFileHasEachKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/complete.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 {
				there[child.Value] = true
			}
			walk(child)
		}
	}
	walk(&document)
	documented(t, func(at, key string, _ map[string]any) {
		if !there[key] {
			t.Errorf("%s is not in testdata/complete.yaml", at)
		}
	})
}

// The schema says no more than messages can tell, and tells for itself what is wrong with names.
func TestSchemaIsExplainable(t *testing.T) {
	t.Parallel()
	known := strings.Fields(`$schema $id $ref $defs title description examples errorMessage patternErrorMessage
		type const enum required properties patternProperties additionalProperties dependentRequired dependentSchemas minProperties maxProperties
		items minItems uniqueItems pattern minLength maxLength minimum maximum not if then else anyOf`)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	subschemas("#", doc, func(at string, sub map[string]any) {
		for keyword := range maps.Keys(sub) {
			if !slices.Contains(known, keyword) {
				t.Errorf("%s: there is no message for %s", at, keyword)
			}
		}
		if sub["pattern"] != nil && sub["patternErrorMessage"] == nil {
			t.Errorf("%s has a pattern and no patternErrorMessage", at)
		}
		not, excludes := sub["not"].(map[string]any)
		for keyword, has := range map[string]bool{"not": excludes && len(not) == 0, "anyOf": sub["anyOf"] != nil} {
			if has && sub["errorMessage"] == nil {
				t.Errorf("%s has %s and no errorMessage", at, keyword)
			}
		}
		if least, is := sub["minLength"]; is && fmt.Sprint(least) != "1" {
			t.Errorf("%s: a text that is too short is told to be empty", at)
		}
	})
}
