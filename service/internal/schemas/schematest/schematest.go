// Package schematest holds documents to the gateway's schemas, in tests.
package schematest

import (
	"bytes"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/waybill-go/waybill/service/internal/schemas"
)

// Validate returns why a document does not satisfy the schema of a type's version; nil, if it does. Formats are checked.
func Validate(eventType string, version int, document []byte) error {
	s, ok := schemas.Find(eventType, version)
	if !ok {
		return fmt.Errorf("there is no schema of %s version %d", eventType, version)
	}
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(s.Text))
	if err != nil {
		return err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(s.ID, text); err != nil {
		return err
	}
	compiled, err := c.Compile(s.ID)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}
