package condition

import (
	"encoding/json"
	"math/big"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// kindSet is a set of JSON's types; numbers are whole ones and others.
type kindSet uint8

const (
	nullKind kindSet = 1 << iota
	boolKind
	wholeKind
	brokenKind
	textKind
	arrayKind
	objectKind
	anyKind = 1<<iota - 1
)

// shape is what a value can be.
type shape struct {
	kinds kindSet
	words []string // all texts that it can be, sorted; nil: any
}

// together are the schemas that apply when some do: what they refer to, and their allOf, without
// those that only refer.
func (b *builder) together(schemas ...*jsonschema.Schema) []*jsonschema.Schema {
	if len(schemas) == 1 {
		if all, known := b.sets[schemas[0]]; known {
			return all
		}
	}
	var all []*jsonschema.Schema
	seen := map[*jsonschema.Schema]bool{}
	var add func(*jsonschema.Schema)
	add = func(s *jsonschema.Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		if says(s) {
			all = append(all, s)
		}
		add(s.Ref)
		for _, one := range s.AllOf {
			add(one)
		}
	}
	for _, s := range schemas {
		add(s)
	}
	if len(schemas) == 1 {
		b.sets[schemas[0]] = all
	}
	return all
}

// says reports whether a schema has anything to do with the type of its values.
func says(s *jsonschema.Schema) bool {
	return s.Bool != nil && !*s.Bool || s.Types != nil || s.Enum != nil || s.Const != nil || s.AnyOf != nil || s.OneOf != nil || s.Then != nil || s.Else != nil ||
		s.Properties != nil || s.PatternProperties != nil || s.AdditionalProperties != nil || s.Required != nil || s.DependentSchemas != nil ||
		s.Dependencies != nil || s.Items != nil || s.Items2020 != nil || s.PrefixItems != nil ||
		s.MaxLength != nil || s.MaxItems != nil || s.MaxProperties != nil
}

// shapeOf is that of the values that satisfy all of the schemas.
func (b *builder) shapeOf(all []*jsonschema.Schema) shape {
	sh := shape{kinds: anyKind}
	for _, s := range all {
		sh = sh.and(b.own(s))
	}
	return sh
}

func (a shape) and(b shape) shape {
	both := shape{kinds: a.kinds & b.kinds, words: a.words}
	switch {
	case a.words == nil:
		both.words = b.words
	case b.words != nil:
		both.words = slices.DeleteFunc(slices.Clone(a.words), func(w string) bool { _, in := slices.BinarySearch(b.words, w); return !in })
	}
	return both
}

func (a shape) or(b shape) shape {
	either := shape{kinds: a.kinds | b.kinds}
	if (a.words != nil || a.kinds&textKind == 0) && (b.words != nil || b.kinds&textKind == 0) {
		either.words = append(append([]string{}, a.words...), b.words...)
		slices.Sort(either.words)
		either.words = slices.Compact(either.words)
	}
	return either
}

// own is the shape that a schema gives by itself: its type, enum, const and alternatives. That it
// ends is checked before: see inspect.
func (b *builder) own(s *jsonschema.Schema) shape {
	if sh, known := b.shapes[s]; known {
		return sh
	}
	sh := shape{kinds: anyKind}
	if s.Bool != nil && !*s.Bool {
		return shape{}
	}
	if s.Types != nil {
		sh.kinds = kindsOf(s.Types)
	}
	if s.Enum != nil {
		sh = sh.and(valuesShape(s.Enum.Values))
	}
	if s.Const != nil {
		sh = sh.and(valuesShape([]any{*s.Const}))
	}
	for _, branches := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if len(branches) == 0 {
			continue
		}
		var either shape
		for _, branch := range branches {
			either = either.or(b.shapeOf(b.together(branch)))
		}
		sh = sh.and(either)
	}
	b.shapes[s] = sh
	return sh
}

func kindsOf(t *jsonschema.Types) kindSet {
	var kinds kindSet
	for _, name := range t.ToStrings() {
		switch name {
		case "null":
			kinds |= nullKind
		case "boolean":
			kinds |= boolKind
		case "integer":
			kinds |= wholeKind
		case "number":
			kinds |= wholeKind | brokenKind
		case "string":
			kinds |= textKind
		case "array":
			kinds |= arrayKind
		case "object":
			kinds |= objectKind
		}
	}
	return kinds
}

// valuesShape is the shape of one of some values.
func valuesShape(values []any) shape {
	sh := shape{words: []string{}}
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			sh.kinds |= nullKind
		case bool:
			sh.kinds |= boolKind
		case string:
			sh.kinds |= textKind
			sh.words = append(sh.words, v)
		case []any:
			sh.kinds |= arrayKind
		case map[string]any:
			sh.kinds |= objectKind
		case json.Number:
			if n, ok := new(big.Rat).SetString(string(v)); ok && n.IsInt() {
				sh.kinds |= wholeKind
			} else {
				sh.kinds |= brokenKind
			}
		default: // numbers of a document that was not decoded with UseNumber
			sh.kinds |= wholeKind | brokenKind
		}
	}
	slices.Sort(sh.words)
	sh.words = slices.Compact(sh.words)
	return sh
}

// kind is the node's that holds all of a shape's values.
func (a shape) kind() (_ nodeKind, nullable bool) {
	nullable = a.kinds&nullKind != 0
	switch a.kinds &^ nullKind {
	case 0:
		if nullable {
			return nullNode, true
		}
	case boolKind:
		return boolNode, nullable
	case wholeKind:
		return intNode, nullable
	case brokenKind, wholeKind | brokenKind:
		return doubleNode, nullable
	case textKind:
		return textNode, nullable
	case arrayKind:
		return listNode, nullable
	case objectKind:
		return mapNode, nullable
	}
	return dynNode, false
}

// fieldNames are the fields that the schemas name, always or in alternatives.
func fieldNames(all []*jsonschema.Schema) map[string]bool {
	names := map[string]bool{}
	seen := map[*jsonschema.Schema]bool{}
	var add func(*jsonschema.Schema)
	add = func(s *jsonschema.Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		for name := range s.Properties {
			names[name] = true
		}
		for _, next := range sameValue(s) {
			if next != s.Not && next != s.If {
				add(next)
			}
		}
	}
	for _, s := range all {
		add(s)
	}
	return names
}

// itemsOf are the schemas that all elements of a list satisfy.
func itemsOf(all []*jsonschema.Schema) []*jsonschema.Schema {
	var items []*jsonschema.Schema
	for _, s := range all {
		if len(s.PrefixItems) > 0 {
			continue // its first elements are others
		}
		if s.Items2020 != nil {
			items = append(items, s.Items2020)
		}
		if one, is := s.Items.(*jsonschema.Schema); is {
			items = append(items, one)
		}
	}
	return items
}
