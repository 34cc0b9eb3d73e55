package routefile

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
)

// explainer says what is wrong with the structure of a document in the words of who writes it.
type explainer struct {
	root   *yaml.Node
	find   finder
	faults []Fault
}

// check returns what a schema has against a document.
func check(s *jsonschema.Schema, root *yaml.Node, value any) []Fault {
	var invalid *jsonschema.ValidationError
	err := s.Validate(value)
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []Fault{{Message: "the structure cannot be checked"}}
	}
	x := explainer{root: root, find: finder{keys: map[*yaml.Node]map[string]int{}}}
	x.explain(invalid)
	return x.faults
}

// explain walks to what is at fault in particular. Of alternatives it takes the one that is nearest.
func (x *explainer) explain(e *jsonschema.ValidationError) {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if message := text(schema().at(e.SchemaURL), "errorMessage"); message != "" {
			x.fault(e, message)
			return
		}
		if len(e.Causes) > 0 {
			x.explain(nearest(e))
			return
		}
	}
	if len(e.Causes) == 0 {
		x.leaf(e)
	}
	for _, cause := range e.Causes {
		if len(x.faults) >= maxFaults {
			return
		}
		x.explain(cause)
	}
}

// nearest returns the first alternative that is of the right type.
func nearest(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	var wrongType func(cause *jsonschema.ValidationError) bool
	wrongType = func(cause *jsonschema.ValidationError) bool {
		if len(cause.InstanceLocation) == len(e.InstanceLocation) {
			switch k := cause.ErrorKind.(type) {
			case *kind.Type:
				return true
			case *kind.Enum:
				_, list := k.Got.([]any)
				_, mapping := k.Got.(map[string]any)
				return list || mapping
			}
		}
		return slices.ContainsFunc(cause.Causes, wrongType)
	}
	for _, cause := range e.Causes {
		if !wrongType(cause) {
			return cause
		}
	}
	return e.Causes[0]
}

// place is what an error is about.
type place struct {
	key, node *yaml.Node
	subject   string
	of        map[string]any // the subschema that is not satisfied, if it is the routing file's
}

func (x *explainer) place(e *jsonschema.ValidationError) place {
	p := place{subject: "the file", of: schema().at(e.SchemaURL)}
	p.key, p.node = x.find.find(x.root, e.InstanceLocation)
	path := e.InstanceLocation
	switch {
	case p.key != nil:
		p.subject = quote(keyText(p.key))
	case len(path) > 1:
		p.subject = "an element of " + quote(path[len(path)-2])
	case len(path) == 1:
		p.subject = "an element"
	}
	return p
}

func (x *explainer) fault(e *jsonschema.ValidationError, message string) {
	_, n := x.find.find(x.root, e.InstanceLocation)
	x.faultAt(n, message)
}

func (x *explainer) faultAt(n *yaml.Node, message string) {
	x.faults = append(x.faults, Fault{Pos{n.Line, n.Column}, message})
}

func (x *explainer) leaf(e *jsonschema.ValidationError) {
	p := x.place(e)
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		x.unknownKeys(p, k.Properties)
	case *kind.Not: // only keys are excluded so
		if p.key != nil {
			p.node = p.key
		}
		x.faultAt(p.node, text(p.of, "errorMessage"))
	case *kind.UniqueItems:
		first, second := p.node.Content[k.Duplicates[0]], p.node.Content[k.Duplicates[1]]
		x.faultAt(second, fmt.Sprintf("%s is in the list twice: first at %s", quote(deref(second).Value), Pos{first.Line, first.Column}))
	default:
		x.faultAt(p.node, p.message(e.ErrorKind))
	}
}

func (x *explainer) unknownKeys(p place, unknown []string) {
	properties, _ := p.of["properties"].(map[string]any)
	known := slices.Sorted(maps.Keys(properties))
	where := make(map[string]int, len(unknown))
	for _, name := range unknown {
		where[name], _ = x.find.step(p.node, name)
	}
	slices.SortFunc(unknown, func(a, b string) int { return where[a] - where[b] })
	for _, name := range unknown[:min(len(unknown), maxFaults-min(len(x.faults), maxFaults))] {
		message := "unknown key " + quote(name)
		if meant := suggest(name, known); meant != "" {
			message += meant
		} else {
			message += ": it may be " + quoteAll(known)
		}
		x.faultAt(p.node.Content[where[name]-1], message)
	}
}

// message says what is wrong with the value at a place.
func (p place) message(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return p.wrongType(k)
	case *kind.Enum:
		message := p.subject + " has to be " + quoteAll(texts(k.Want))
		if _, text := k.Got.(string); !text && slices.Contains(texts(k.Want), p.node.Value) {
			return message + ": put it in quotes"
		}
		return message + suggest(p.node.Value, texts(k.Want))
	case *kind.Const:
		return p.subject + " has to be " + quoteAll(texts([]any{k.Want}))
	case *kind.Pattern:
		if message := text(p.of, "patternErrorMessage"); message != "" {
			return p.subject + " is " + quote(k.Got) + ": " + message
		}
		return p.subject + " cannot be " + quote(k.Got)
	case *kind.Required:
		return p.subject + " lacks the key " + strings.ReplaceAll(quoteAll(k.Missing), " or ", " and ")
	case *kind.DependentRequired:
		return p.subject + " has " + quote(k.Prop) + ", which needs " + strings.ReplaceAll(quoteAll(k.Missing), " or ", " and ")
	case *kind.MinLength:
		return p.subject + " is empty"
	case *kind.MaxLength:
		return fmt.Sprintf("%s has %d characters: %d are the most", p.subject, k.Got, k.Want)
	case *kind.MinItems:
		return p.subject + " is an empty list: leave it out, or say what is in it"
	case *kind.MinProperties, *kind.MaxProperties:
		if p.of["maxProperties"] != nil {
			properties, _ := p.of["properties"].(map[string]any)
			return p.subject + " has to have one key: " + quoteAll(slices.Sorted(maps.Keys(properties)))
		}
		return p.subject + " is an empty mapping: leave it out, or say what is in it"
	case *kind.Minimum:
		return p.subject + " has to be at least " + k.Want.RatString()
	case *kind.Maximum:
		return p.subject + " has to be at most " + k.Want.RatString()
	}
	return p.subject + " cannot be this"
}

// typeNames are JSON's types in the words of YAML.
var typeNames = map[string]string{
	"object": "a mapping", "array": "a list", "string": "a text", "number": "a number", "integer": "a whole number", "boolean": "true or false",
}

func (p place) wrongType(k *kind.Type) string {
	want := make([]string, 0, len(k.Want))
	for _, name := range []string{"string", "integer", "number", "boolean", "array", "object"} {
		if slices.Contains(k.Want, name) {
			want = append(want, typeNames[name])
		}
	}
	all := strings.Join(want, ", ")
	if n := len(want); n > 1 {
		all = strings.Join(want[:n-1], ", ") + " or " + want[n-1]
	}
	if k.Got == "null" {
		return p.subject + " is empty: it has to be " + all + ", or not there"
	}
	got := typeNames[k.Got]
	if k.Got == "boolean" {
		got = quote(p.node.Value)
	}
	return p.subject + " has to be " + all + ", not " + got + p.hint(k)
}

// hint tells how what was written for one type becomes another.
func (p place) hint(k *kind.Type) string {
	value := p.node.Value
	switch {
	case k.Got == "string" && slices.Contains(k.Want, "boolean") && slices.Contains([]string{"yes", "no", "on", "off", "y", "n"}, strings.ToLower(value)):
		return ": " + quote(value) + " is a text in YAML 1.2, write true or false"
	case k.Got == "string" && p.node.Style != 0 && slices.Contains([]string{"true", "false"}, value) && slices.Contains(k.Want, "boolean"),
		k.Got == "string" && jsonNumber.MatchString(value) && (slices.Contains(k.Want, "integer") || slices.Contains(k.Want, "number")):
		return ": take it out of the quotes"
	case slices.Contains(k.Want, "string") && (k.Got == "number" || k.Got == "boolean"):
		if fits, err := regexp.MatchString(text(p.of, "pattern"), value); fits && err == nil {
			return ": put it in quotes"
		}
		return ": " + text(p.of, "patternErrorMessage")
	}
	return ""
}

// texts returns values of an enumeration as a file has them.
func texts(values []any) []string {
	list := make([]string, len(values))
	for i, v := range values {
		if list[i] = fmt.Sprint(v); v == nil {
			list[i] = "null"
		}
	}
	return list
}
