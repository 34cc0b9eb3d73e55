package routing

import (
	"encoding/json"
	"maps"
	"slices"
)

// Action is something that a consumer is to do about an event: a name, under which a handler is
// registered, and parameters, as the rule has them and modifiers have changed them.
type Action struct {
	Name string
	// Line of the rule in the routing file.
	Line int

	params map[string]any // string, float64, bool or []string; shared, never written to
}

// List returns a list parameter, in its order, or nil if there is none of that name.
func (a Action) List(name string) []string {
	list, _ := a.params[name].([]string)
	return slices.Clone(list)
}

// Text returns a text parameter, or "".
func (a Action) Text(name string) string {
	text, _ := a.params[name].(string)
	return text
}

// Number returns a number parameter, or 0.
func (a Action) Number(name string) float64 {
	number, _ := a.params[name].(float64)
	return number
}

// Bool returns a boolean parameter, or false.
func (a Action) Bool(name string) bool {
	is, _ := a.params[name].(bool)
	return is
}

// Params returns a copy of all parameters: string, float64, bool or []string by name.
func (a Action) Params() map[string]any {
	params := maps.Clone(a.params)
	for name, value := range params {
		params[name] = cloned(value)
	}
	return params
}

// cloned copies a value, and what is in it.
func cloned(value any) any {
	switch v := value.(type) {
	case []string:
		return slices.Clone(v)
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = cloned(e)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, e := range v {
			object[name] = cloned(e)
		}
		return object
	}
	return value
}

type actionJSON struct {
	Do   string         `json:"do"`
	With map[string]any `json:"with,omitempty"`
}

// MarshalJSON encodes an action as routing files write it: {"do": …, "with": {…}}.
func (a Action) MarshalJSON() ([]byte, error) {
	return json.Marshal(actionJSON{a.Name, a.params})
}

// Equal reports whether two actions have the same name and parameters, whatever rules decided on them.
func (a Action) Equal(b Action) bool {
	return a.Name == b.Name && maps.EqualFunc(a.params, b.params, func(v, w any) bool {
		list, is := v.([]string)
		other, too := w.([]string)
		if is || too {
			return is && too && slices.Equal(list, other)
		}
		return v == w
	})
}

// modified returns the action as modifiers leave it: sets and adds in their order, then all removals, which win. They
// change parameters that the rule gives, and never invent one.
func (a Action) modified(applied []*modifier) Action {
	changed := false
	set := func(name string, value any) {
		if !changed {
			a.params, changed = maps.Clone(a.params), true
		}
		a.params[name] = value
	}
	for _, m := range applied {
		for _, p := range m.src.Set {
			if _, given := a.params[p.Text]; given {
				set(p.Text, p.Value)
			}
		}
		for _, p := range m.src.Add {
			if have, given := a.params[p.Text].([]string); given {
				set(p.Text, union(have, p.Value.([]string)))
			}
		}
	}
	for _, m := range applied {
		for _, p := range m.src.Remove {
			if have, given := a.params[p.Text].([]string); given {
				set(p.Text, without(have, p.Value.([]string)))
			}
		}
	}
	return a
}

// union returns a list with what of another it lacks, at the end.
func union(list, more []string) []string {
	sum := list[:len(list):len(list)]
	for _, s := range more {
		if !slices.Contains(sum, s) {
			sum = append(sum, s)
		}
	}
	return sum
}

// without returns a list without what another has.
func without(list, drop []string) []string {
	if !slices.ContainsFunc(list, func(s string) bool { return slices.Contains(drop, s) }) {
		return list
	}
	rest := make([]string, 0, len(list))
	for _, s := range list {
		if !slices.Contains(drop, s) {
			rest = append(rest, s)
		}
	}
	return rest
}
