package routing_test

import (
	"slices"

	"pgregory.net/rapid"
)

// changed draws another version of a file: with a few changes as people make them.
func (f *file) changed(t *rapid.T) *file {
	c := f.clone()
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		changes := []func(*rapid.T){c.changeMatrix, c.changeRules, c.changeRules, c.changeModifiers, c.changeEvent, c.changeConsumer, c.changeLookup, c.dropEvent, c.dropConsumer}
		rapid.SampledFrom(changes).Draw(t, "change")(t)
	}
	return c.mend()
}

func one[V any](t *rapid.T, what string, m map[string]V) (name string, ok bool) {
	if len(m) == 0 {
		return "", false
	}
	return rapid.SampledFrom(sorted(m)).Draw(t, what), true
}

func (f *file) changeMatrix(t *rapid.T) {
	row := rapid.SampledFrom(append(sorted(f.Events), "*")).Draw(t, "row")
	f.Matrix[row] = some(t, "ticks", sorted(f.Consumers), 0)
}

func (f *file) changeRules(t *rapid.T) {
	typ, _ := one(t, "rules of", f.Actions)
	consumer, ok := one(t, "rules at", f.Actions[typ])
	if !ok {
		return
	}
	rules := f.Actions[typ][consumer]
	i := rapid.IntRange(0, len(rules)-1).Draw(t, "rule")
	switch rapid.IntRange(0, 5).Draw(t, "change of rules") {
	case 0:
		if rules = slices.Delete(rules, i, i+1); len(rules) == 0 {
			delete(f.Actions[typ], consumer)
			return
		}
	case 1:
		rules[0], rules[i] = rules[i], rules[0]
	case 2:
		rules[i].When = generateCondition(t, f, 1)
	case 3:
		rules[i].With = generateParams(t, true, 0)
	case 4:
		rules[i].Do = rapid.SampledFrom(actionNames).Draw(t, "do")
	default:
		rules[i].Continue = !rules[i].Continue
	}
	f.Actions[typ][consumer] = rules
}

func (f *file) changeModifiers(t *rapid.T) {
	if len(f.Modifiers) == 0 || chance(t, "one more modifier", 4) {
		f.Modifiers = append(f.Modifiers, generateModifier(t, f, "modifier_new"))
		for i, m := range f.Modifiers[:len(f.Modifiers)-1] {
			if m.Name == "modifier_new" {
				f.Modifiers = slices.Delete(f.Modifiers, i, i+1)
				break
			}
		}
		return
	}
	i := rapid.IntRange(0, len(f.Modifiers)-1).Draw(t, "modifier")
	switch rapid.IntRange(0, 3).Draw(t, "change of modifiers") {
	case 0:
		f.Modifiers = slices.Delete(f.Modifiers, i, i+1)
	case 1:
		f.Modifiers[0], f.Modifiers[i] = f.Modifiers[i], f.Modifiers[0]
	case 2:
		f.Modifiers[i].When = generateCondition(t, f, 1)
	default:
		f.Modifiers[i] = generateModifier(t, f, f.Modifiers[i].Name)
	}
}

func (f *file) changeEvent(t *rapid.T) {
	name, _ := one(t, "event", f.Events)
	switch e := f.Events[name]; rapid.IntRange(0, 2).Draw(t, "change of event") {
	case 0:
		f.Events[name] = generateEvent(t)
	case 1:
		e.Critical = map[bool]string{true: "true", false: ""}[e.Critical == ""]
	default:
		for _, schema := range e.Schemas {
			schema["required"] = []string{"key"}
		}
	}
}

func (f *file) changeConsumer(t *rapid.T) {
	name, _ := one(t, "consumer", f.Consumers)
	f.Consumers[name].Ordered = !f.Consumers[name].Ordered
}

func (f *file) changeLookup(t *rapid.T) {
	name, ok := one(t, "lookup", f.Lookups)
	if !ok {
		return
	}
	f.Lookups[name] = generateLookup(t, f, lookupNames[:slices.Index(lookupNames, name)])
}

func (f *file) dropEvent(t *rapid.T) {
	name, _ := one(t, "event", f.Events)
	if len(f.Events) == 1 {
		return
	}
	delete(f.Events, name)
	delete(f.Matrix, name)
	delete(f.Actions, name)
	for _, l := range f.Lookups {
		if keys, is := l.Key.(map[string]any); is {
			delete(keys, name)
		}
		if keys, is := l.Key.(map[string]string); is {
			delete(keys, name)
		}
	}
	for _, m := range f.Modifiers {
		m.Events = slices.DeleteFunc(m.Events, func(s string) bool { return s == name })
	}
}

func (f *file) dropConsumer(t *rapid.T) {
	name, _ := one(t, "consumer", f.Consumers)
	if len(f.Consumers) == 1 {
		return
	}
	is := func(s string) bool { return s == name }
	delete(f.Consumers, name)
	for row := range f.Matrix {
		f.Matrix[row] = slices.DeleteFunc(f.Matrix[row], is)
	}
	for _, cells := range f.Actions {
		delete(cells, name)
	}
	for _, m := range f.Modifiers {
		m.Consumers = slices.DeleteFunc(m.Consumers, is)
	}
}
