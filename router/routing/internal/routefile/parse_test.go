package routefile

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// parse parses a file that there is nothing against.
func parse(t testing.TB, text string) *File {
	t.Helper()
	f, err := Parse("routes.yaml", []byte(text), nil)
	if err != nil {
		t.Fatalf("%v\n\n%.2000s", err, text)
	}
	return f
}

// faultsOf returns what is wrong with a file, each as LINE:COLUMN: MESSAGE.
func faultsOf(t testing.TB, text string, open func(string) ([]byte, error)) []string {
	t.Helper()
	f, err := Parse("routes.yaml", []byte(text), open)
	var faulty *Error
	if f != nil || !errors.As(err, &faulty) || faulty.File != "routes.yaml" {
		t.Fatalf("an *Error with the file's name is due, and no file; got %v and %v of\n%.2000s", err, f, text)
	}
	var list []string
	for _, f := range faulty.Faults {
		if f.Pos == (Pos{}) {
			list = append(list, f.Message)
		} else {
			list = append(list, f.Pos.String()+": "+f.Message)
		}
	}
	return list
}

// faulty checks what is wrong with a file.
func faulty(t *testing.T, name, text string, want ...string) {
	t.Helper()
	if got := faultsOf(t, text, nil); !slices.Equal(got, want) {
		t.Errorf("%s: got\n\t%s\nnot\n\t%s\nfor\n%.1000s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"), text)
	}
}

// complete is a file with each key.
func complete(t testing.TB) *File {
	t.Helper()
	text, err := os.ReadFile("testdata/complete.yaml")
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot("testdata")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := Parse("testdata/complete.yaml", text, root.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	want := []Consumer{
		{
			Name: Name{"notification_engine", Pos{4, 3}}, Topic: "notification_engine",
			Policy: eventing.Policy{
				Guarantee: eventing.AtLeastOnce, Concurrency: 8, Timeout: 30 * time.Second,
				Retry: eventing.RetryPolicy{
					MaxAttempts: 6, Base: time.Second, Multiplier: 2, FirstExponent: 1, Max: 5 * time.Minute, Jitter: 0.1, JitterBasis: eventing.JitterOfBase,
				},
				Breaker: eventing.BreakerPolicy{Failures: 10, OpenFor: 30 * time.Second}, OnExhausted: []string{"fallback"},
				InboxRetention: 30 * 24 * time.Hour, DeadLetterRetention: 90 * 24 * time.Hour,
			},
			Parameters: []Parameter{
				{Name{"recipients", Pos{17, 7}}, List, []string{"citizen", "case_handler", "supervisor"}},
				{Name{"channels", Pos{18, 7}}, List, nil},
				{Name{"notification", Pos{19, 7}}, Text, nil},
				{Name{"priority", Pos{20, 7}}, Text, []string{"normal", "immediate"}},
				{Name{"weight", Pos{21, 7}}, Number, nil},
				{Name{"silent", Pos{22, 7}}, Bool, nil},
			},
		},
		{
			Name:   Name{"audit_log", Pos{23, 3}},
			Policy: eventing.Policy{Guarantee: eventing.ExactlyOnce, Ordered: true, RefuseForce: true, Retry: eventing.RetryPolicy{JitterBasis: eventing.JitterOfDelay}},
		},
	}
	if got := complete(t).Consumers; !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nnot\n%+v", got, want)
	}
	if p := parse(t, "routing: 1\nconsumers: {a: {parameters: {}}}").Consumers[0].Parameters; p == nil || len(p) != 0 {
		t.Errorf("an empty mapping of parameters allows none, so it is not nil: %#v", p)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	file := complete(t)
	changed := file.Events[1]
	if changed.Name != (Name{"case_status_changed", Pos{30, 3}}) || changed.Category != (Name{"case", Pos{31, 15}}) || changed.Critical != nil {
		t.Errorf("got %+v", changed)
	}
	wantPlaces := []Schema{
		{Version: 1, Pos: Pos{32, 18}},
		{Version: 2, Pos: Pos{32, 61}, Path: "schemas/case_status_changed.2.json"},
		{Version: 3, Pos: Pos{32, 100}, Path: "schemas/case_status_changed.3.yaml"},
	}
	wantDocs := []any{
		map[string]any{"type": "object", "required": []any{"new_status"}},
		map[string]any{
			"type": "object", "required": []any{"new_status"},
			"properties": map[string]any{
				"new_status": map[string]any{"type": "string", "examples": []any{"approved 😀"}},
				"weight":     map[string]any{"type": "number", "maximum": json.Number("1e3")},
			},
		},
		map[string]any{
			"type": "object", "required": []any{"new_status", "changed_by"},
			"properties": map[string]any{"new_status": map[string]any{"type": "string"}, "changed_by": map[string]any{"$ref": "#/$defs/actor"}},
		},
	}
	for i, s := range changed.Schemas {
		if doc := s.Doc; !reflect.DeepEqual(doc, wantDocs[i]) {
			t.Errorf("schema %d is\n%v, not\n%v", i+1, doc, wantDocs[i])
		}
		if s.Doc = nil; s != wantPlaces[i] {
			t.Errorf("schema %d is %+v, not %+v", i+1, s, wantPlaces[i])
		}
	}
	critical := []*Expr{{Text: `payload.severity == "X"`, Pos: Pos{28, 15}}, nil, nil, {Text: "true", Pos: Pos{34, 29}}}
	for i, want := range critical {
		if got := file.Events[i].Critical; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: critical is %+v, not %+v", file.Events[i].Text, got, want)
		}
	}
	definitions := map[string]any{"actor": map[string]any{
		"type":       "object",
		"properties": map[string]any{"user_id": map[string]any{"type": "string"}, "weight": map[string]any{"type": "number", "maximum": json.Number("1.50")}},
	}}
	if !reflect.DeepEqual(file.Definitions, definitions) {
		t.Errorf("the definitions are %v", file.Definitions)
	}
}

func TestMatrixAndActions(t *testing.T) {
	t.Parallel()
	file := complete(t)
	matrix := []Row{
		{Name{"case_created", Pos{40, 3}}, []Name{{"notification_engine", Pos{40, 18}}, {"audit_log", Pos{40, 39}}}},
		{Name{"*", Pos{41, 3}}, []Name{{"audit_log", Pos{41, 9}}}},
	}
	if !reflect.DeepEqual(file.Matrix, matrix) {
		t.Errorf("the matrix is\n%+v, not\n%+v", file.Matrix, matrix)
	}
	cells := []Cell{
		{
			Type: Name{"case_status_changed", Pos{44, 3}}, Consumer: Name{"notification_engine", Pos{45, 5}},
			Rules: []Rule{
				{
					Pos: Pos{46, 9}, When: &Expr{Text: `payload.new_status == "approved"`, Pos: Pos{46, 15}}, Do: Name{"notify", Pos{47, 13}}, Continue: true,
					With: []Param{
						{Name{"notification", Pos{48, 16}}, "approval", Pos{48, 30}},
						{Name{"recipients", Pos{48, 40}}, []string{"citizen"}, Pos{48, 52}},
						{Name{"channels", Pos{48, 63}}, []string{"portal", "email", "sms"}, Pos{48, 73}},
						{Name{"weight", Pos{48, 95}}, 0.5, Pos{48, 103}},
						{Name{"silent", Pos{48, 108}}, true, Pos{48, 116}},
					},
				},
				{Pos: Pos{50, 9}, Do: Name{"record", Pos{50, 13}}},
			},
		},
		{Type: Name{"*", Pos{51, 3}}, Consumer: Name{"audit_log", Pos{52, 5}}, Rules: []Rule{{Pos: Pos{52, 17}, Do: Name{"record", Pos{52, 22}}}}},
	}
	if !reflect.DeepEqual(file.Cells, cells) {
		t.Errorf("the cells are\n%+v, not\n%+v", file.Cells, cells)
	}
}

func TestModifiers(t *testing.T) {
	t.Parallel()
	want := []Modifier{
		{
			Name: Name{"sms_switched_off", Pos{55, 11}}, Consumers: []Name{{"notification_engine", Pos{56, 17}}}, Events: []Name{{"case_created", Pos{57, 14}}},
			Actions: []Name{{"notify", Pos{58, 15}}}, When: &Expr{Text: "!citizen.notification_preferences.sms", Pos: Pos{59, 12}},
			Remove: []Param{{Name{"channels", Pos{60, 14}}, []string{"sms"}, Pos{60, 24}}},
		},
		{
			Name: Name{"high_risk", Pos{61, 11}},
			Add:  []Param{{Name{"recipients", Pos{62, 11}}, []string{"fraud_officer"}, Pos{62, 23}}},
			Set:  []Param{{Name{"priority", Pos{63, 11}}, "immediate", Pos{63, 21}}, {Name{"channels", Pos{63, 32}}, []string{}, Pos{63, 42}}},
		},
	}
	if got := complete(t).Modifiers; !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, not\n%+v", got, want)
	}
}

func TestLookupsAndRetention(t *testing.T) {
	t.Parallel()
	file := complete(t)
	lookups := []Lookup{
		{
			Name: Name{"citizen", Pos{66, 3}}, Keys: []Key{{Name{"*", Pos{67, 10}}, Expr{Text: "payload.citizen_id", Pos: Pos{67, 10}}}},
			Schema:  &Schema{Version: 1, Pos: Pos{68, 13}, Doc: map[string]any{"type": "object", "properties": map[string]any{"notification_preferences": map[string]any{"type": "object"}}}},
			Timeout: eventing.Period{Rest: 100 * time.Millisecond}, Cache: eventing.Period{Rest: 30 * time.Second}, CacheEntries: 10000,
			OnError: Default, DefaultPos: Pos{73, 14},
			Default: map[string]any{"notification_preferences": map[string]any{"sms": false}, "score": json.Number("10.50"), "none": nil},
		},
		{
			Name: Name{"case", Pos{74, 3}}, OnError: Skip,
			Keys: []Key{
				{Name{"case_created", Pos{75, 11}}, Expr{Text: "payload.case_id", Pos: Pos{75, 25}}},
				{Name{"*", Pos{75, 42}}, Expr{Text: "citizen.case_id", Pos: Pos{75, 47}}},
			},
		},
	}
	if !reflect.DeepEqual(file.Lookups, lookups) {
		t.Errorf("the lookups are\n%+v, not\n%+v", file.Lookups, lookups)
	}
	retention := []Retention{
		{Category: Name{"audit", Pos{79, 3}}, Keep: eventing.Period{Years: 7}},
		{Category: Name{"case", Pos{80, 3}}, Keep: eventing.Period{Years: 5}, After: []Name{{"case_closed", Pos{80, 28}}}, Unless: []Name{{"case_reopened", Pos{80, 51}}}},
	}
	if !reflect.DeepEqual(file.Retention, retention) {
		t.Errorf("the retention is\n%+v, not\n%+v", file.Retention, retention)
	}
	if l := parse(t, "routing: 1\nlookups: {a: {key: b, on_error: default, default: null}}").Lookups[0]; l.Default != nil || l.DefaultPos != (Pos{2, 51}) {
		t.Errorf("null is a default: %+v", l)
	}
}

// JSON is YAML, and so is a file that a program writes in one line.
func TestJSONFile(t *testing.T) {
	t.Parallel()
	f := parse(t, "{\"routing\":1,\"matrix\":{\"a\":[\"b\"],\n\t\"*\":[]},\"actions\":{\"a\":{\"b\":[{\"do\":\"x\",\"with\":{\"n\":1e3}}]}}}")
	if len(f.Matrix) != 2 || f.Matrix[1].Type != (Name{"*", Pos{2, 2}}) || f.Cells[0].Rules[0].With[0].Value != 1000.0 {
		t.Errorf("got %+v", f)
	}
}

// What YAML 1.1 takes for a boolean is a text: as a key, a name, a value, in a schema; where a boolean is needed, a fault.
func TestYAML11Booleans(t *testing.T) {
	t.Parallel()
	f := parse(t, `
routing: 1
events:
  on: {schema: {enum: [on, off, yes, no, y, n, true]}}
  no: {}
matrix: {on: [yes]}
actions: {off: {y: [{do: no, with: {on: yes, list: [on, off], is: true}}]}}
`)
	if f.Events[0].Text != "on" || f.Events[1].Text != "no" || f.Matrix[0].Type.Text != "on" || f.Matrix[0].Consumers[0].Text != "yes" {
		t.Errorf("got %+v", f)
	}
	enum := f.Events[0].Schemas[0].Doc.(map[string]any)["enum"]
	if want := []any{"on", "off", "yes", "no", "y", "n", true}; !reflect.DeepEqual(enum, want) {
		t.Errorf("the enumeration is %v", enum)
	}
	with := f.Cells[0].Rules[0].With
	if f.Cells[0].Rules[0].Do.Text != "no" || with[0].Text != "on" || with[0].Value != "yes" || !reflect.DeepEqual(with[1].Value, []string{"on", "off"}) || with[2].Value != true {
		t.Errorf("got %+v", f.Cells)
	}
	faulty(t, "ordered: yes", "routing: 1\nconsumers: {a: {ordered: yes}}",
		"2:26: `ordered` has to be true or false, not a text: `yes` is a text in YAML 1.2, write true or false")
	faulty(t, "true as a key", "routing: 1\nmatrix: {true: [a]}", "2:10: the key `true` is no text: put it in quotes")
}

// Numbers keep their digits; what looks like a time is a text.
func TestScalars(t *testing.T) {
	t.Parallel()
	f := parse(t, `
routing: 1.0
lookups:
  a:
    key: b
    on_error: default
    default:
      - [1.50, 1E2, -0, 123456789012345678901234567890, 1e-400]
      - [2024-01-15, 12:30, 0.1.2, -, <<, '1', "true", 1.x]
      - [~, null, Null, NULL, true, True, TRUE, false, False, FALSE, ]
      - >-
        5
      - |-
        true
      -
`)
	want := []any{
		[]any{json.Number("1.50"), json.Number("1E2"), json.Number("-0"), json.Number("123456789012345678901234567890"), json.Number("1e-400")},
		[]any{"2024-01-15", "12:30", "0.1.2", "-", "<<", "1", "true", "1.x"},
		[]any{nil, nil, nil, nil, true, true, true, false, false, false},
		"5", "true", nil,
	}
	if got := f.Lookups[0].Default; !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v", got)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"a.json": {Data: []byte(`{"type": "object"}`)}, "b.yaml": {Data: []byte("{}")}}
	version := func(text string) string {
		t.Helper()
		f, err := Parse("routes.yaml", []byte(text), files.ReadFile)
		if err != nil {
			t.Fatal(err)
		}
		return f.Version
	}
	const text = "routing: 1\nevents: {a: {schemas: {1: a.json, 2: b.yaml, 3: a.json}}}\n"
	if got, want := version("routing: 1\n"), "23041b1153de"; got != want {
		t.Errorf("the version of a file without others is the beginning of its SHA-256, %s, not %s", want, got)
	}
	first := version(text)
	if again := version(text); first != again || len(first) != 12 {
		t.Errorf("%s and %s of one file", first, again)
	}
	seen := map[string]string{first: "as it was"}
	change := func(what, version string) {
		t.Helper()
		if as, known := seen[version]; known {
			t.Errorf("%s has the version of %s: %s", what, as, version)
		}
		seen[version] = what
	}
	change("a comment", version(text+"# x\n"))
	files["b.yaml"].Data = []byte("{} ")
	change("another schema file", version(text))
	files["a.json"].Data, files["b.yaml"].Data = []byte(`{"type": "object"}{`)[:18], []byte(" {}")
	change("a blank elsewhere", version(text))
	files["a.json"].Data, files["b.yaml"].Data = []byte(`{"type": "object"} `), []byte("{}")
	change("the blank in the file before", version(text))
}
