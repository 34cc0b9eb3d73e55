package condition

import (
	"encoding/json"
	"math/big"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxEffort bounds what one validation takes, in steps of the validator: about a tenth of a
// second.
const maxEffort = 1_000_000

// effort counts the validator's steps before it takes them, as it cannot be stopped: a schema
// that refers to itself in two of its alternatives doubles them with each level of the value. The
// count is of the worst case, in which no alternative is left out.
type effort struct {
	left    int
	weights map[*jsonschema.Schema]int
}

// enough reports whether the steps suffice to apply a schema to a value.
func (e *effort) enough(s *jsonschema.Schema, v any) bool {
	if s == nil || s.Bool != nil {
		return e.take(1)
	}
	if !e.take(1 + e.weights[s]) {
		return false
	}
	switch v := v.(type) {
	case json.Number:
		if !e.number(s) {
			return false
		}
	case string:
		if !e.text(s, v) {
			return false
		}
	case []any:
		if !e.list(s, v) {
			return false
		}
	case map[string]any:
		if !e.object(s, v) {
			return false
		}
	}
	return e.all(v, s.Ref, s.Not, s.If, s.Then, s.Else) && e.all(v, s.AllOf...) && e.all(v, s.AnyOf...) && e.all(v, s.OneOf...)
}

func (e *effort) take(steps int) bool {
	e.left -= steps
	return e.left >= 0
}

func (e *effort) all(v any, schemas ...*jsonschema.Schema) bool {
	for _, s := range schemas {
		if s != nil && !e.enough(s, v) {
			return false
		}
	}
	return true
}

// number is computed with exactly, once it is to be compared with anything.
func (e *effort) number(s *jsonschema.Schema) bool {
	const each = 4
	steps := 0
	for _, with := range []*big.Rat{s.Minimum, s.Maximum, s.ExclusiveMinimum, s.ExclusiveMaximum, s.MultipleOf} {
		if with != nil {
			steps += each
		}
	}
	if s.Types != nil {
		steps++
	}
	return e.take(steps)
}

func (e *effort) text(s *jsonschema.Schema, v string) bool {
	const perStep = 256 // bytes that are looked at in the time of a step
	steps := 0
	if s.MaxLength != nil || s.MinLength != nil || s.Format != nil {
		steps += len(v) / perStep
	}
	if s.Pattern != nil {
		steps += matchSteps(s.Pattern, len(v))
	}
	return e.take(steps)
}

// matchSteps is what it takes to match a text with a pattern: each byte may move all of its
// instructions.
func matchSteps(p jsonschema.Regexp, bytes int) int {
	size := maxPatternSize
	if p, is := p.(pattern); is {
		size = p.size
	}
	const perStep = 16
	return bytes * size / perStep
}

func (e *effort) list(s *jsonschema.Schema, v []any) bool {
	if s.UniqueItems {
		for _, one := range v {
			if !e.take(1 + weightOf(one)/weightPerStep) {
				return false
			}
		}
	}
	if s.UnevaluatedItems != nil && !e.take(len(v)) {
		return false
	}
	items, _ := s.Items.(*jsonschema.Schema)
	tuple, _ := s.Items.([]*jsonschema.Schema)
	additional, _ := s.AdditionalItems.(*jsonschema.Schema)
	for i, one := range v {
		if i < len(tuple) && !e.enough(tuple[i], one) || i < len(s.PrefixItems) && !e.enough(s.PrefixItems[i], one) {
			return false
		}
		if !e.all(one, items, additional, s.Items2020, s.Contains, s.UnevaluatedItems) {
			return false
		}
	}
	return true
}

func (e *effort) object(s *jsonschema.Schema, v map[string]any) bool {
	if !e.take(len(s.Required) + len(s.Dependencies) + len(s.DependentSchemas) + len(s.DependentRequired) + len(v)) {
		return false
	}
	for _, names := range s.DependentRequired {
		if !e.take(len(names)) {
			return false
		}
	}
	additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for name, one := range v {
		for p, sub := range s.PatternProperties {
			if !e.take(1+matchSteps(p, len(name))) || !e.enough(sub, one) {
				return false
			}
		}
		if s.PropertyNames != nil && !e.enough(s.PropertyNames, name) {
			return false
		}
		if !e.all(one, s.Properties[name], additional, s.UnevaluatedProperties) {
			return false
		}
	}
	for _, sub := range s.DependentSchemas {
		if !e.enough(sub, v) {
			return false
		}
	}
	for _, sub := range s.Dependencies {
		switch sub := sub.(type) {
		case *jsonschema.Schema:
			if !e.enough(sub, v) {
				return false
			}
		case []string:
			if !e.take(len(sub)) {
				return false
			}
		}
	}
	return true
}
