package routefile

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/eventing"
)

// TestFile is a file of tests of a routing file, as it was written.
type TestFile struct {
	Name    string // for messages
	Lookups []TestLookup
	Tests   []Test
}

// Test is an event, and what is to become of it.
type Test struct {
	Name
	Event     eventing.Envelope
	EventPos  Pos
	Lookups   []TestLookup
	Expect    []Expectation
	ExpectPos Pos
	Lane      *eventing.Lane // nil: of no interest
	LanePos   Pos
}

// TestLookup is what a lookup finds, by the key that it is asked for; Any is any other. The values are decoded JSON.
type TestLookup struct {
	Name
	Results map[string]any
}

// Expectation is what one consumer is to do.
type Expectation struct {
	Consumer Name
	Actions  []Rule // without conditions
	Error    Name   // why the attempt is to fail: a reason code, or Retry; zero: it does not
}

// The keys of a test file that are no names.
const (
	keyError = "$error"
	keyKeys  = "$keys"
)

// What an event has of which a test says nothing.
const (
	testEventID    = "test"
	testOccurredAt = "2026-01-01T00:00:00Z"
)

// ParseTests reads a file of tests, within the bounds of [Parse]. Whether names refer to something is for others to check. The error
// is an [*Error].
func ParseTests(name string, text []byte) (*TestFile, error) {
	src, fault := readText(text, MaxBytes)
	if fault != nil {
		return nil, NewError(name, []Fault{*fault})
	}
	root, fault := parseYAML(src)
	if fault != nil {
		return nil, NewError(name, []Fault{*fault})
	}
	t := newTree(src, 0)
	value, _ := t.value(root, 0)
	if len(t.faults) > 0 {
		return nil, NewError(name, t.faults)
	}
	if root.Kind != yaml.MappingNode {
		return nil, NewError(name, []Fault{{Pos{root.Line, root.Column}, "a file of tests is a mapping with the key `tests`"}})
	}
	d := testDecoder{decoder: decoder{src: src}, root: root, file: &TestFile{Name: name}}
	d.tests(item{node: root, value: value})
	if len(d.faults) > 0 {
		return nil, NewError(name, d.faults)
	}
	return d.file, nil
}

// testDecoder makes a TestFile, and checks its structure on the way.
type testDecoder struct {
	decoder

	root *yaml.Node
	file *TestFile
}

// is reports whether an item is a mapping, a list or a text, as what says, and complains if it is not.
func (d *testDecoder) is(i item, what string) bool {
	var is bool
	switch what {
	case "a mapping":
		_, is = i.value.(map[string]any)
	case "a list":
		_, is = i.value.([]any)
	default:
		is = i.text() != ""
	}
	if !is && len(d.faults) < maxFaults {
		d.fault(i.pos(), "%s has to be %s", d.subjectOf(i), what)
	}
	return is
}

func (d *testDecoder) subjectOf(i item) string {
	switch {
	case i.key != nil:
		return quote(keyText(i.key))
	case i.node == d.root:
		return "the file"
	}
	return "this"
}

// read calls a function for each key of a mapping, and complains about others, and about those that are missing.
func (d *testDecoder) read(i item, required []string, keys map[string]func(item)) {
	if !d.is(i, "a mapping") {
		return
	}
	seen := map[string]bool{}
	for f := range i.fields() {
		name := f.name()
		seen[name.Text] = true
		if decode := keys[name.Text]; decode != nil {
			decode(f)
		} else if known := slices.Sorted(maps.Keys(keys)); len(d.faults) < maxFaults {
			meant := suggest(name.Text, known)
			if meant == "" {
				meant = ": it may be " + quoteAll(known)
			}
			d.fault(name.Pos, "unknown key %s%s", quote(name.Text), meant)
		}
	}
	for _, name := range required {
		if !seen[name] {
			d.fault(i.pos(), "%s lacks the key %s", d.subjectOf(i), quote(name))
		}
	}
}

func (d *testDecoder) tests(root item) {
	names := map[string]Pos{}
	d.read(root, []string{"tests"}, map[string]func(item){
		"lookups": func(i item) { d.file.Lookups = d.lookups(i) },
		"tests": func(i item) {
			if !d.is(i, "a list") {
				return
			}
			for e := range i.elements() {
				t := d.test(e)
				if first, twice := names[t.Text]; twice && t.Text != "" {
					d.fault(t.Pos, "the name %s is there twice: first at %s", quote(t.Text), first)
				}
				names[t.Text] = t.Pos
				d.file.Tests = append(d.file.Tests, t)
			}
		},
	})
}

func (d *testDecoder) test(i item) Test {
	t := Test{Name: Name{Pos: i.pos()}}
	d.read(i, []string{"name", "event", "expect"}, map[string]func(item){
		"name": func(f item) {
			if d.is(f, "a text") {
				t.Name = f.textName()
			}
		},
		"event": func(f item) {
			t.EventPos = f.pos()
			d.envelope(f, &t)
		},
		"lookups": func(f item) { t.Lookups = d.lookups(f) },
		"expect": func(f item) {
			t.ExpectPos = f.name().Pos
			if !d.is(f, "a mapping") {
				return
			}
			for c := range f.fields() {
				t.Expect = append(t.Expect, d.expectation(c))
			}
		},
		"lane": func(f item) {
			lane := map[string]eventing.Lane{"critical": eventing.Critical, "normal": ""}
			if l, known := lane[f.text()]; known {
				t.Lane, t.LanePos = &l, f.pos()
			} else {
				d.fault(f.pos(), "`lane` has to be `critical` or `normal`")
			}
		},
	})
	return t
}

// headerFields are the texts of an envelope, by their names in it.
var headerFields = []string{
	"event_id", "event_type", "occurred_at", "correlation_id", "causation_id", "tenant_id", "station_id", "aggregate_type", "aggregate_id",
	"ordering_key", "idempotency_key", "traceparent", "tracestate",
}

// envelope reads an event: an envelope, of which much may be left out.
func (d *testDecoder) envelope(i item, t *Test) {
	wire, places := map[string]any{"event_id": testEventID, "occurred_at": testOccurredAt, "payload": map[string]any{}}, map[string]Pos{}
	set := func(name string, f item) {
		if _, twice := places[name]; twice {
			d.fault(f.name().Pos, "`type` and `event_type` are the same: write one of them")
		}
		wire[name], places[name] = f.value, f.pos()
	}
	keys := map[string]func(item){
		"payload": func(f item) { set("payload", f) },
		"schema_version": func(f item) {
			if n, is := f.value.(json.Number); !is || strings.Trim(n.String(), "0123456789") != "" {
				d.fault(f.pos(), "`schema_version` has to be a whole number")
				return
			}
			set("schema_version", f)
		},
		"type": func(f item) {
			if d.is(f, "a text") {
				set("event_type", f)
			}
		},
	}
	for _, name := range headerFields {
		keys[name] = func(f item) {
			if d.is(f, "a text") {
				set(name, f)
			}
		}
	}
	before := len(d.faults)
	d.read(i, nil, keys)
	if len(d.faults) > before {
		return
	}
	text, err := json.Marshal(wire)
	if err == nil {
		t.Event, err = eventing.DecodeEnvelope(text)
	}
	var invalid *eventing.InvalidEventError
	switch {
	case err == nil:
	case !errors.As(err, &invalid):
		d.fault(i.pos(), "%v", err)
	case invalid.Field == "event_type" && wire["event_type"] == nil:
		d.fault(i.pos(), "%s lacks the key `type`", d.subjectOf(i))
	case places[invalid.Field] != Pos{}:
		d.fault(places[invalid.Field], "%s %s", quote(invalid.Field), invalid.Problem)
	default:
		d.fault(i.pos(), "%s", strings.Trim(quote(invalid.Problem), "`"))
	}
}

func (d *testDecoder) lookups(i item) []TestLookup {
	if !d.is(i, "a mapping") {
		return nil
	}
	var list []TestLookup
	for f := range i.fields() {
		l := TestLookup{Name: f.name(), Results: map[string]any{Any: f.value}}
		if m, is := f.value.(map[string]any); is && m[keyKeys] != nil {
			l.Results, is = m[keyKeys].(map[string]any)
			if !is || len(m) > 1 {
				d.fault(f.pos(), "%s goes alone, with a mapping of keys to results", quote(keyKeys))
			}
		}
		list = append(list, l)
	}
	return list
}

func (d *testDecoder) expectation(i item) Expectation {
	e := Expectation{Consumer: i.name()}
	switch i.value.(type) {
	case map[string]any:
		d.read(i, []string{keyError}, map[string]func(item){keyError: func(f item) {
			if d.is(f, "a text") {
				e.Error = f.textName()
			}
		}})
	case []any:
		for a := range i.elements() {
			e.Actions = append(e.Actions, d.action(a))
		}
	default:
		d.fault(i.pos(), "%s has to be a list of actions, [] if it takes none, or {%s: retry}, or {%s: CODE} with the reason of the dead letter", d.subjectOf(i), keyError, keyError)
	}
	return e
}

func (d *testDecoder) action(i item) Rule {
	r := Rule{Pos: i.pos()}
	d.read(i, []string{"do"}, map[string]func(item){
		"do": func(f item) {
			if d.is(f, "a text") {
				r.Do = f.textName()
			}
		},
		"with": func(f item) {
			if d.is(f, "a mapping") && d.areParams(f) {
				r.With = d.params(f)
			}
		},
	})
	return r
}

// areParams reports whether all values are ones that actions can have.
func (d *testDecoder) areParams(i item) bool {
	before := len(d.faults)
	for p := range i.fields() {
		switch v := p.value.(type) {
		case string, bool, json.Number:
		case []any:
			if slices.ContainsFunc(v, func(e any) bool { _, is := e.(string); return !is }) {
				d.fault(p.pos(), "%s has to be a list of texts: put numbers, true and false in quotes", quote(p.name().Text))
			}
		default:
			d.fault(p.pos(), "%s has to be a text, a number, true or false, or a list of texts", quote(p.name().Text))
		}
	}
	return len(d.faults) == before
}
