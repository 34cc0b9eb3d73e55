package routefile

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The one description of the structure: what it says is not checked again. patternErrorMessage and errorMessage are for
// people, here as in editors.
//
//go:embed routing.schema.json
var schemaText []byte

// JSONSchema returns the JSON Schema (draft 2020-12) of routing files. It is shared: do not write to it.
func JSONSchema() []byte { return schemaText }

const schemaAddress = "urn:waybill:schema:routing:1"

// structure is the schema, compiled, and as a document.
type structure struct {
	file    *jsonschema.Schema
	payload *jsonschema.Schema // of files that are JSON Schemas
	doc     any
}

var schema = sync.OnceValue(func() structure {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaText))
	if err != nil {
		panic(err) // it is embedded, and tested
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is ever loaded
	if err := c.AddResource(schemaAddress, doc); err != nil {
		panic(err)
	}
	return structure{file: c.MustCompile(schemaAddress), payload: c.MustCompile(schemaAddress + "#/$defs/json_schema"), doc: doc}
})

// at returns the subschema at the address of a compiled one, nil if it is not of the routing file's schema.
func (s structure) at(address string) map[string]any {
	path, ours := strings.CutPrefix(address, schemaAddress+"#")
	if !ours {
		return nil
	}
	v := s.doc
	for _, step := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		m, _ := v.(map[string]any)
		if step != "" {
			v = m[pointerStep(step)]
		}
	}
	sub, _ := v.(map[string]any)
	return sub
}

// pointerStep decodes a step of a JSON pointer in an address.
func pointerStep(step string) string {
	if decoded, err := url.PathUnescape(step); err == nil {
		step = decoded
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
}

// text returns a keyword's text, or "".
func text(sub map[string]any, keyword string) string {
	if sub[keyword] == nil {
		return ""
	}
	return fmt.Sprint(sub[keyword])
}
