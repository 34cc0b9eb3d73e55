package routing_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/router/routing"
)

// file is a routing file, as it is generated: a random one that compiles, with all that a program has to add to it.
// The parts have the names that the format gives them.
type file struct {
	Routing   int                               `yaml:"routing"`
	Consumers map[string]*consumerPart          `yaml:"consumers"`
	Events    map[string]*eventPart             `yaml:"events"`
	Matrix    map[string][]string               `yaml:"matrix"`
	Actions   map[string]map[string][]*rulePart `yaml:"actions,omitempty"`
	Modifiers []*modifierPart                   `yaml:"modifiers,omitempty"`
	Lookups   map[string]*lookupPart            `yaml:"lookups,omitempty"`
}

type consumerPart struct {
	Guarantee  string                    `yaml:"guarantee,omitempty"`
	Ordered    bool                      `yaml:"ordered,omitempty"`
	Retry      map[string]any            `yaml:"retry"`
	Parameters map[string]map[string]any `yaml:"parameters,omitempty"`
}

type eventPart struct {
	Critical string                 `yaml:"critical,omitempty"`
	Schemas  map[int]map[string]any `yaml:"schemas,omitempty"`
}

type rulePart struct {
	When     string         `yaml:"when,omitempty"`
	Do       string         `yaml:"do"`
	With     map[string]any `yaml:"with,omitempty"`
	Continue bool           `yaml:"continue,omitempty"`
}

type modifierPart struct {
	Name      string         `yaml:"name"`
	Consumers []string       `yaml:"consumers,omitempty"`
	Events    []string       `yaml:"events,omitempty"`
	Actions   []string       `yaml:"actions,omitempty"`
	When      string         `yaml:"when,omitempty"`
	Set       map[string]any `yaml:"set,omitempty"`
	Add       map[string]any `yaml:"add,omitempty"`
	Remove    map[string]any `yaml:"remove,omitempty"`
}

type lookupPart struct {
	Key     any            `yaml:"key"`
	Schema  map[string]any `yaml:"schema,omitempty"`
	Cache   string         `yaml:"cache,omitempty"`
	OnError string         `yaml:"on_error,omitempty"`
	Default any            `yaml:"default,omitempty"`
}

func (f *file) text() []byte {
	text, err := yaml.Marshal(f)
	if err != nil {
		panic(err) // plain values always encode
	}
	return text
}

// clone returns a copy that shares nothing.
func (f *file) clone() *file {
	var c file
	if err := yaml.Unmarshal(f.text(), &c); err != nil {
		panic(err)
	}
	return &c
}

func (f *file) compile(t *rapid.T) *routing.Table {
	text := f.text()
	table, err := routing.Parse("routes.yaml", text, nil)
	if err != nil {
		t.Fatalf("a generated file does not compile: %v\n%s", err, text)
	}
	return table
}

// The vocabulary. Each parameter is of one kind everywhere, so that modifiers fit.
var (
	typeNames     = []string{"created", "changed", "closed", "noted"}
	consumerNames = []string{"notification", "audit", "workflow"}
	actionNames   = []string{"notify", "record", "hold"}
	lookupNames   = []string{"case", "citizen", "office"} // the key of one may need those before it
	words         = []string{"a", "b", "c", "d"}
	levels        = []string{"LOW", "MEDIUM", "HIGH"}
	statuses      = []string{"new", "open", "shut"}
	lookupKeys    = []string{"k1", "k2", "k3", "none", ""}
)

// generateFile draws a routing file.
func generateFile(t *rapid.T) *file {
	f := &file{
		Routing: 1, Consumers: map[string]*consumerPart{}, Events: map[string]*eventPart{}, Matrix: map[string][]string{},
		Actions: map[string]map[string][]*rulePart{}, Lookups: map[string]*lookupPart{},
	}
	for _, name := range some(t, "consumers", consumerNames, 1) {
		f.Consumers[name] = generateConsumer(t)
	}
	consumers := sorted(f.Consumers)
	for _, name := range some(t, "types", typeNames, 1) {
		f.Events[name] = generateEvent(t)
	}
	for i, name := range lookupNames {
		if !chance(t, "no "+name, 4) {
			f.Lookups[name] = generateLookup(t, f, lookupNames[:i])
		}
	}
	for _, typ := range append(sorted(f.Events), "*") {
		if chance(t, "row", 4) {
			continue
		}
		f.Matrix[typ] = some(t, "row of "+typ, consumers, rapid.IntRange(0, len(consumers)).Draw(t, "ticks"))
	}
	for _, typ := range append(sorted(f.Events), "*") {
		f.Actions[typ] = map[string][]*rulePart{}
		for _, consumer := range consumers {
			if chance(t, "no cell", 4) {
				continue
			}
			for range rapid.IntRange(1, 4).Draw(t, "rules") {
				f.Actions[typ][consumer] = append(f.Actions[typ][consumer], generateRule(t, f, typ))
			}
		}
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "modifiers") {
		f.Modifiers = append(f.Modifiers, generateModifier(t, f, fmt.Sprintf("modifier_%d", i)))
	}
	return f
}

// mend gives each consumer an action for whatever it gets, and each event type a row: without them, a table is not fit to run.
func (f *file) mend() *file {
	for typ := range f.Events {
		if f.Matrix[typ] == nil {
			f.Matrix[typ] = []string{}
		}
	}
	for consumer := range f.Consumers {
		if f.Actions["*"] == nil {
			f.Actions["*"] = map[string][]*rulePart{}
		}
		if len(f.Actions["*"][consumer]) == 0 {
			f.Actions["*"][consumer] = []*rulePart{{Do: "record"}}
		}
	}
	for consumer, part := range f.Consumers {
		if len(actionsOf(f, consumer)) == 0 {
			part.Guarantee = "" // there is no handler to keep it
		}
	}
	return f
}

// actionsOf are those that a consumer may be told to take.
func actionsOf(f *file, consumer string) map[string]bool {
	all := map[string]bool{}
	for typ := range f.Events {
		if !slices.Contains(f.Matrix[typ], consumer) && !slices.Contains(f.Matrix["*"], consumer) {
			continue
		}
		rules := f.Actions[typ][consumer]
		if rules == nil {
			rules = f.Actions["*"][consumer]
		}
		for _, r := range rules {
			all[r.Do] = true
		}
	}
	return all
}

// generateConsumer draws one that tries once: a failure is a dead letter at once.
func generateConsumer(t *rapid.T) *consumerPart {
	c := &consumerPart{Retry: map[string]any{"max_attempts": 1}}
	c.Guarantee = rapid.SampledFrom([]string{"", "at_least_once", "exactly_once"}).Draw(t, "guarantee")
	c.Ordered = chance(t, "ordered", 3)
	if chance(t, "parameters", 2) {
		c.Parameters = map[string]map[string]any{
			"channels": {"list": words}, "recipients": {"list": "any"}, "priority": {"text": words}, "points": {"number": "any"}, "loud": {"bool": "any"},
		}
	}
	return c
}

func generateEvent(t *rapid.T) *eventPart {
	e := &eventPart{}
	switch rapid.IntRange(0, 5).Draw(t, "schemas") {
	case 0: // any payload
	case 1:
		e.Schemas = map[int]map[string]any{1: payloadSchema(false), 2: payloadSchema(true)}
	default:
		e.Schemas = map[int]map[string]any{1: payloadSchema(true)}
	}
	if chance(t, "critical", 3) {
		e.Critical = rapid.SampledFrom([]string{"true", "has(payload.urgent) && payload.urgent", `event.tenant_id == "t1"`, "event.aggregate_id != \"\""}).Draw(t, "critical")
	}
	return e
}

// payloadSchema is that of all types: there is nothing to gain from others. The older version has no status.
func payloadSchema(latest bool) map[string]any {
	required, properties := []string{"key", "amount"}, map[string]any{
		"key":    map[string]any{"type": "string"},
		"amount": map[string]any{"type": "integer"},
		"ratio":  map[string]any{"type": "number"},
		"urgent": map[string]any{"type": "boolean"},
		"note":   map[string]any{"type": "string", "maxLength": 20},
		"tags":   map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "maxItems": 5},
		"by":     map[string]any{"type": "object", "properties": map[string]any{"role": map[string]any{"enum": words}}},
	}
	if latest {
		required, properties["status"] = append(required, "status"), map[string]any{"enum": statuses}
	}
	return map[string]any{"type": "object", "required": required, "properties": properties}
}

func generateLookup(t *rapid.T, f *file, before []string) *lookupPart {
	l := &lookupPart{OnError: rapid.SampledFrom([]string{"retry", "skip", "default"}).Draw(t, "on_error")}
	if l.OnError == "default" {
		l.Default = map[string]any{"id": "k1", "level": "MEDIUM", "sms": true, "points": 3}
	}
	if !chance(t, "no schema", 4) {
		l.Schema = map[string]any{
			"type": "object", "required": []string{"id", "level"},
			"properties": map[string]any{
				"id": map[string]any{"type": "string"}, "level": map[string]any{"enum": levels},
				"sms": map[string]any{"type": "boolean"}, "points": map[string]any{"type": "integer"},
			},
		}
	}
	if chance(t, "cache", 3) {
		l.Cache = "1h"
	}
	keys := []string{"payload.key", "event.aggregate_id", `payload.amount > 1 ? "k1" : payload.key`}
	for _, name := range before {
		if f.Lookups[name] != nil {
			keys = append(keys, name+".id")
		}
	}
	l.Key = rapid.SampledFrom(keys).Draw(t, "key")
	if chance(t, "keys by type", 4) {
		l.Key = map[string]string{"*": rapid.SampledFrom(keys).Draw(t, "key"), sorted(f.Events)[0]: "payload.key"}
	}
	return l
}

func generateRule(t *rapid.T, f *file, typ string) *rulePart {
	r := &rulePart{Do: rapid.SampledFrom(actionNames).Draw(t, "do"), With: generateParams(t, true, 0), Continue: chance(t, "continue", 3)}
	if !chance(t, "always", 3) {
		r.When = generateCondition(t, f, 2)
	}
	return r
}

// generateParams draws parameters whose lists have at least so many elements.
func generateParams(t *rapid.T, scalars bool, least int) map[string]any {
	p := map[string]any{}
	for _, name := range []string{"channels", "recipients"} {
		if chance(t, name, 2) {
			p[name] = some(t, name, words, least)
		}
	}
	if scalars && chance(t, "scalars", 2) {
		p["priority"] = rapid.SampledFrom(words).Draw(t, "priority")
		p["points"] = rapid.IntRange(0, 3).Draw(t, "points")
		p["loud"] = rapid.Bool().Draw(t, "loud")
	}
	return p
}

func generateModifier(t *rapid.T, f *file, name string) *modifierPart {
	m := &modifierPart{Name: name, Set: generateParams(t, true, 0), Add: generateParams(t, false, 1), Remove: generateParams(t, false, 1)}
	if len(m.Set)+len(m.Add)+len(m.Remove) == 0 {
		m.Remove = map[string]any{"channels": []string{"a"}}
	}
	if chance(t, "some consumers", 3) {
		m.Consumers = some(t, "consumers", sorted(f.Consumers), 1)
	}
	if chance(t, "some events", 3) {
		m.Events = some(t, "events", sorted(f.Events), 1)
	}
	if chance(t, "some actions", 3) {
		m.Actions = some(t, "actions", actionNames, 1)
	}
	if !chance(t, "always", 3) {
		m.When = generateCondition(t, f, 1)
	}
	return m
}

// generateCondition draws a condition. Some fail on some events: by an index out of range, a division by zero, or
// a field that a payload without a schema does not have.
func generateCondition(t *rapid.T, f *file, depth int) string {
	if depth > 0 && chance(t, "compound", 2) {
		left, right := generateCondition(t, f, depth-1), generateCondition(t, f, depth-1)
		return rapid.SampledFrom([]string{
			fmt.Sprintf("(%s) && (%s)", left, right), fmt.Sprintf("(%s) || (%s)", left, right), fmt.Sprintf("!(%s)", left),
			fmt.Sprintf("payload.amount > 1 ? (%s) : (%s)", left, right),
		}).Draw(t, "compound")
	}
	atoms := []string{
		`payload.status == "open"`, `payload.status in ["new", "shut"]`, `payload.amount > 1`, `payload.amount == 2`, `payload.urgent`,
		`payload.ratio < 0.5`, `has(payload.note)`, `payload.note.startsWith("a")`, `"a" in payload.tags`, `payload.tags.exists(x, x == "b")`,
		`payload.by.role == "c"`, `size(payload.tags) > 1`, `payload.tags[0] == "a"`, `10 / payload.amount > 3`,
		`event.severity == "CRITICAL"`, `event.tenant_id == "t1"`, `event.schema_version == 2`, `event.type == "created"`, `event.id.endsWith("1")`,
	}
	for _, name := range sorted(f.Lookups) {
		atoms = append(atoms, name+`.level == "HIGH"`, "has("+name+".sms) && "+name+".sms", name+".points > 2")
	}
	return rapid.SampledFrom(atoms).Draw(t, "condition")
}

// chance is true once in so many times.
func chance(t *rapid.T, what string, in int) bool {
	return rapid.IntRange(1, in).Draw(t, what) == in
}

// some draws a part of a list, in its order.
func some(t *rapid.T, what string, list []string, least int) []string {
	part := []string{}
	for i, s := range list {
		if len(list)-i <= least-len(part) || rapid.Bool().Draw(t, what) {
			part = append(part, s)
		}
	}
	return part
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

var errNotThere = errors.New("there is nothing under this key")

// generateLookups draws what lookups find, under all keys that events can have.
func generateLookups(t *rapid.T) routing.Lookups {
	l := routing.Lookups{}
	for _, name := range lookupNames {
		l[name] = map[string]json.RawMessage{"*": json.RawMessage(fmt.Sprintf(`{"$error": %q}`, errNotThere))}
		for _, key := range lookupKeys {
			value := map[string]any{"id": rapid.SampledFrom(lookupKeys).Draw(t, "id"), "level": rapid.SampledFrom(levels).Draw(t, "level")}
			if rapid.Bool().Draw(t, "more") {
				value["sms"], value["points"] = rapid.Bool().Draw(t, "sms"), rapid.IntRange(0, 4).Draw(t, "points")
			}
			switch rapid.IntRange(0, 7).Draw(t, "result") {
			case 0:
				value = map[string]any{"$error": "out of reach"}
			case 1:
				value = map[string]any{"$error": "gone for ever", "$reason": "GONE"}
			case 2:
				value["level"] = "NONE" // not as the schema has it
			case 3:
				continue
			}
			l[name][key], _ = json.Marshal(value) // plain values always encode
		}
	}
	return l
}
