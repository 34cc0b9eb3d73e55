package condition

import (
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// inspect walks all that a compiled schema refers to, and refuses what cannot be bounded. It
// returns how many steps comparing with the enum and const of each schema takes, where there are
// many.
func inspect(root *jsonschema.Schema) (map[*jsonschema.Schema]int, error) {
	in := inspection{state: map[*jsonschema.Schema]visit{}, efforts: map[*jsonschema.Schema]int{}}
	queue := []*jsonschema.Schema{root}
	seen := map[*jsonschema.Schema]bool{root: true}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return nil, fmt.Errorf("%s has a dynamic reference, which is not supported: use $ref", place(s))
		}
		if err := in.place(s); err != nil {
			return nil, err
		}
		in.weigh(s)
		for _, next := range append(sameValue(s), children(s)...) {
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
		if len(seen) > maxSubschemas {
			return nil, fmt.Errorf("it has more than %d subschemas", maxSubschemas)
		}
	}
	return in.efforts, nil
}

type visit int

const (
	unseen visit = iota
	open
	done
)

type inspection struct {
	state   map[*jsonschema.Schema]visit
	efforts map[*jsonschema.Schema]int
}

// place refuses a schema that applies to a value what applies itself to the same value. It is no deeper
// than the schema's subschemas are many, which is bounded.
func (in *inspection) place(s *jsonschema.Schema) error {
	switch in.state[s] {
	case done:
		return nil
	case open:
		return fmt.Errorf("%s refers to itself for the same value, without end", place(s))
	}
	in.state[s] = open
	for _, next := range sameValue(s) {
		if err := in.place(next); err != nil {
			return err
		}
	}
	in.state[s] = done
	return nil
}

// weigh adds up what comparing with an enum and a const takes, in steps: numbers are compared exactly, which is
// slow.
func (in *inspection) weigh(s *jsonschema.Schema) {
	weight := 0
	if s.Enum != nil {
		for _, v := range s.Enum.Values {
			weight += weightOf(v)
		}
	}
	if s.Const != nil {
		weight += weightOf(*s.Const)
	}
	if weight >= weightPerStep {
		in.efforts[s] = weight / weightPerStep
	}
}

const weightPerStep = 8

func weightOf(v any) int {
	const plain, number = 1, 32
	switch v := v.(type) {
	case []any:
		n := plain
		for _, v := range v {
			n += weightOf(v)
		}
		return n
	case map[string]any:
		n := plain
		for _, v := range v {
			n += plain + weightOf(v)
		}
		return n
	case nil, bool, string:
		return plain
	}
	return number
}

// place is where a schema is in its document.
func place(s *jsonschema.Schema) string {
	_, fragment, _ := strings.Cut(s.Location, "#")
	return "#" + clip(fragment, maxPointerBytes)
}

// sameValue are the schemas that a schema applies to the value that it is applied to itself.
func sameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	var list []*jsonschema.Schema
	for _, one := range []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else} {
		if one != nil {
			list = append(list, one)
		}
	}
	list = append(list, s.AllOf...)
	list = append(list, s.AnyOf...)
	list = append(list, s.OneOf...)
	for _, one := range s.DependentSchemas {
		list = append(list, one)
	}
	for _, one := range s.Dependencies {
		if one, is := one.(*jsonschema.Schema); is {
			list = append(list, one)
		}
	}
	return list
}

// children are the schemas that a schema applies to parts of its value.
func children(s *jsonschema.Schema) []*jsonschema.Schema {
	var list []*jsonschema.Schema
	for _, one := range s.Properties {
		list = append(list, one)
	}
	for _, one := range s.PatternProperties {
		list = append(list, one)
	}
	list = append(list, s.PrefixItems...)
	for _, one := range []*jsonschema.Schema{
		s.PropertyNames, s.UnevaluatedProperties, s.UnevaluatedItems, s.Contains, s.Items2020, s.ContentSchema,
	} {
		if one != nil {
			list = append(list, one)
		}
	}
	for _, one := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} {
		switch one := one.(type) {
		case *jsonschema.Schema:
			list = append(list, one)
		case []*jsonschema.Schema:
			list = append(list, one...)
		}
	}
	return list
}
