package condition

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func TestNewScope(t *testing.T) {
	t.Parallel()
	a, b := schema(t, "a/1", `{}`, nil), schema(t, "a/1", `{"type": "object"}`, nil)
	for _, c := range []struct {
		want string
		vars []Variable
	}{
		{`a variable cannot be called "case-file"`, []Variable{{"case-file", nil}}},
		{`a variable cannot be called ""`, []Variable{{"", nil}}},
		{`a variable cannot be called "1st"`, []Variable{{"1st", nil}}},
		{"a variable cannot be called event, which means something else already: choose another name", []Variable{{"event", nil}}},
		{"a variable cannot be called in,", []Variable{{"in", nil}}},
		{"a variable cannot be called package,", []Variable{{"package", nil}}},
		{"a variable cannot be called int,", []Variable{{"int", nil}}},
		{"a variable cannot be called timestamp,", []Variable{{"timestamp", nil}}},
		{"there are two variables citizen", []Variable{{"citizen", nil}, {"citizen", nil}}},
		{"there are two schemas a/1: give one another name", []Variable{{"x", a}, {"y", b}}},
		{"more than 1000", make([]Variable, 1001)},
	} {
		if _, err := NewScope(c.vars...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, not %q", c.vars, err, c.want)
		}
	}
	if _, err := NewScope(Variable{"case", nil}, Variable{"office", a}, Variable{"home", a}, Variable{"size", nil}, Variable{"_x1", nil}); err != nil {
		t.Error(err)
	}
	for name := range reserved {
		if name == "event" {
			continue
		}
		if _, err := baseEnv(); err != nil {
			t.Fatal(err)
		}
		if _, err := NewScope(Variable{name, nil}); err == nil {
			t.Errorf("%s is a variable", name)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	scope, _ := caseScope(t)
	for _, c := range []struct {
		text         string
		line, column int
		want         string
	}{
		{`payload.new_statsu == "approved"`, 1, 8, `payload has no field "new_statsu"; did you mean "new_status"?`},
		{"payload.urgent &&\n  payload.changed_by.deputy.roel == 'x'", 2, 28, `payload.changed_by.deputy has no field "roel"; did you mean "role"?`},
		{`payload.recursion == 1`, 1, 8, `payload has no field "recursion"`},
		{`payload.quite_different == 1`, 1, 8, `payload has no field "quite_different"`},
		{`has(payload.amuont)`, 1, 4, `payload has no field "amuont"; did you mean "amount"?`},
		{`payload.signals.exists(s, s.wieght > 1)`, 1, 28, `s has no field "wieght"; did you mean "weight"?`},
		{`payload.signals[0].wieght > 1`, 1, 19, `payload.signals[0] has no field "wieght"; did you mean "weight"?`},
		{`payload.signals.filter(s, true)[0].wieght > 1`, 1, 35, `payload.signals.filter(s, true)[0] has no field "wieght"`},
		{`paylaod.urgent`, 1, 1, `there is no variable "paylaod"; did you mean "payload"?`},
		{`citizen.name == ""`, 1, 1, `there is no variable "citizen"`},
		{`event.typ == "x"`, 1, 6, `event has no field "typ"; did you mean "type"?`},
		{`payload.case_id.startWith("x")`, 1, 26, `there is no function "startWith"; did you mean "startsWith"?`},
		{`now() > event.occurred_at`, 1, 4, `there is no function "now"`},
		{`payload.amount == 5`, 1, 16, `"==" cannot compare a number with a whole number: write a whole number with .0 to use it with a number, as in 5.0`},
		{`payload.score == "5"`, 1, 15, `"==" cannot compare a whole number with a text`},
		{`payload.changed_by == payload.signals`, 1, 20, `"==" cannot compare an object with a list`},
		{`payload.score`, 1, 1, `it yields a whole number, and has to yield true or false`},
		{`payload.score = 5`, 1, 15, `syntax error: there is no =; did you mean "=="?`},
		{`payload.score ==`, 1, 17, `syntax error: the expression ends too early`},
		{``, 1, 1, `syntax error: the expression ends too early`},
		{`"unclosed`, 1, 1, `syntax error: this text does not end`},
		{`payload.urgent and payload.flag`, 1, 16, `syntax error: there is no and; did you mean "&&"?`},
		{`payload.urgent | payload.flag`, 1, 16, `syntax error: there is no |; did you mean "||"?`},
		{`(payload.urgent`, 1, 16, `syntax error: ")" is missing at the end`},
		{`(payload.urgent]`, 1, 16, `syntax error: "]" is not expected here`},
		{`payload.urgent)`, 1, 15, `syntax error: ")" is not expected here`},
		{`payload..note`, 1, 9, `syntax error: ".." cannot be understood`},
		{`payload.note == “a”`, 1, 17, `syntax error: "“" means nothing here`},
		{`payload.note && true`, 1, 8, `a condition is needed here, and a text is none`},
		{`!payload.note`, 1, 1, `"!" is for conditions, and a text is none`},
		{`payload.nick < 1`, 1, 14, `"<" cannot compare a text or null with a whole number`},
		{`payload.note + 1.0 == ""`, 1, 14, `"+" cannot be applied to a text and a number`},
		{`payload.note ? true : false`, 1, 14, `before "?" a condition is needed, and a text is none`},
		{`true ? 1 : "a"`, 1, 6, `"?" has to yield the same type either way, not a whole number or a text`},
		{`1 in payload.tags`, 1, 3, `"in" cannot look for a whole number in a list of texts`},
		{`payload.tags["a"] == ""`, 1, 13, `"[ ]" cannot find a text in a list of texts`},
		{`payload["note"] == ""`, 1, 8, `write the field of an object after a dot`},
		{`payload.note.startsWith(1)`, 1, 24, `"startsWith" cannot be applied to a text and a whole number`},
		{`payload.note.x == 1`, 1, 13, `a text has no fields`},
		{`payload.score.exists(x, true)`, 1, 8, `a whole number has no elements to go through`},
		{`payload.tags.size(1) == 1`, 1, 18, `"size" cannot be applied to a list of texts and a whole number`},
		{`event.occurred_at > "2024"`, 1, 19, `">" cannot compare a time with a text: make a time of the text`},
		{`has(payload)`, 1, 5, `"has" takes a field`},
		{`if`, 1, 1, `"if" is a word of CEL's, and no name`},
		{`99999999999999999999 == 1`, 1, 1, `the number is too large`},
		{`payload.signals.map(1, 2) == []`, 1, 21, `argument is not an identifier`},
		{`int("x") == 1`, 1, 10, "type conversion error"},
		{`case_status_changed{}.x == 1`, 1, 20, "CEL: undeclared reference"},
		{`google.protobuf.Struct{} == null`, 1, 23, "undeclared reference"},
		{`event{} == event`, 1, 6, "undeclared reference"},
		{strings.Repeat("(", 70) + "true" + strings.Repeat(")", 70), 1, 1, "nested too deeply, or a chain of its operators is too long: 64 are the most"},
		{strings.Repeat("x", 4097), 1, 1, "the expression has 4097 bytes; 4096 are the most"},
		{`payload.case_id.matches(payload.note)`, 1, 32, `the pattern of matches has to be a literal, as in event.id.matches("^evt_")`},
		{`matches(payload.case_id, "(")`, 1, 26, "missing closing )"},
		{`payload.case_id.matches("a{900}a{900}a{900}")`, 1, 25, "the pattern compiles to"},
		{`payload.case_id.matches("` + strings.Repeat("x", 1001) + `")`, 1, 25, "the pattern has 1001 bytes, more than 1000"},
		{`event.occurred_at.getHours(payload.note) == 1`, 1, 35, `the time zone has to be a literal`},
	} {
		_, err := scope.Compile(c.text, Bool)
		var faults *CompileError
		if !errors.As(err, &faults) {
			t.Errorf("%.60s: %v", c.text, err)
			continue
		}
		f := faults.Faults[0]
		if f.Line != c.line || f.Column != c.column || !strings.Contains(f.Message, c.want) {
			t.Errorf("%.60s: %s, want %d, %d: %s", c.text, f, c.line, c.column, c.want)
		}
		if !strings.HasPrefix(err.Error(), "the expression does not compile: line ") {
			t.Errorf("the error is %q", err)
		}
	}
	if _, err := scope.Compile(`payload.score`, Text); err == nil || !strings.Contains(err.Error(), "it yields a whole number, and has to yield a text: make one of it with string(…)") {
		t.Error(err)
	}
	var faults *CompileError
	if _, err := scope.Compile(strings.Repeat("x1 == 1 || ", 30)+"true", Bool); !errors.As(err, &faults) || len(faults.Faults) != maxFaults {
		t.Errorf("thirty faults: %v", err)
	}
}

// TestEvaluation shows what conditions mean, whether a shortcut or CEL evaluates them.
func TestEvaluation(t *testing.T) {
	t.Parallel()
	scope, s := caseScope(t)
	v := caseValues(t, s)
	v.Event.OccurredAt = time.Date(2024, 1, 15, 10, 30, 0, 0, time.UTC)
	v.Event.AggregateType, v.Event.AggregateID, v.Event.SchemaVersion = "case", "42", 3
	for text, want := range map[string]bool{
		`payload.new_status == "approved"`:               true,
		`"approved" != payload.new_status`:               false,
		`payload.new_status in ["rejected", "approved"]`: true,
		`!(payload.new_status in ["rejected"])`:          true,
		`payload.urgent`:                                 false,
		`has(payload.amount) && !has(payload.limit) && !has(payload.changed_by.deputy.user_id)`:       true,
		`payload.amount == 1500.0 && payload.amount >= 1500 && payload.amount < 1500.5`:               true,
		`payload.score > 77.5 && 100 > payload.score`:                                                 true,
		`payload.other == "" && payload.nick == null && payload.limit == null`:                        true,
		`payload.approved_by.role == "" && payload.approved_by == null`:                               true,
		`payload.changed_by.deputy.deputy.user_id == ""`:                                              true,
		`payload.tags == ["red", "blue"] && size(payload.numbers) == 2`:                               true,
		`payload.numbers == [1.0, 2.5]`:                                                               true,
		`payload.signals.exists(s, s.kind == "DUPLICATE_ADDRESS" && s.weight == 30)`:                  true,
		`payload.labels.team == "north" && "team" in payload.labels`:                                  true,
		`payload.meta.source == "portal"`:                                                             true,
		"payload.`day-of-week` == ''":                                                                 true,
		`any.amount == 1500 && any.amount == 1500.0`:                                                  true,
		`any.numbers[0] == 1 && any.numbers[1] == 2.5`:                                                true,
		`event.type == "case_status_changed" && event.id.startsWith("evt_")`:                          true,
		`event.severity == "NORMAL" && event.tenant_id == "t1" && event.station_id == ""`:             true,
		`event.ordering_key == "case/42" && event.schema_version == 3`:                                true,
		`event.occurred_at.getHours() == 10 && event.occurred_at < timestamp("2024-01-16T00:00:00Z")`: true,
		`event.occurred_at.getHours("Europe/Berlin") == 11`:                                           true,
		`[event].all(e, e.id == event.id) && event == event && [event] != [null]`:                     true,
		`[1].exists(payload, .payload.score == 78 && payload == 1)`:                                   true,
		`true ? payload.score == 78 : any.none`:                                                       true,
		`any.none || payload.score == 78`:                                                             true,
		`any.none && payload.score == 1`:                                                              false,
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := p.Bool(v); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		`any.none`: "no such key: none", `any.none == "a"`: "no such key: none", `any.case_id`: "not a bool", `payload.tags[7] == "red"`: "index out of bounds: 7",
		`payload.flag`: "no such overload", `any.none && true`: "no such key", `any.none ? true : false`: "no such key", `!any.none`: "no such key",
		`dyn(payload.flag)`: "yields a null_type, not a bool", `1 / (payload.score - 78) == 1`: "division by zero",
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := p.Bool(v); err == nil || got || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	scope, s := caseScope(t)
	v := caseValues(t, s)
	for text, want := range map[string]string{
		`payload.case_id`: "GA-20240115-0042", `payload.changed_by.deputy.user_id`: "", `event.tenant_id`: "t1", `"fixed"`: "fixed", `any.case_id`: "GA-20240115-0042",
		`payload.urgent ? "a" : payload.changed_by.user_id + "!"`: "u1!", `string(payload.score)`: "78", `payload.labels.team`: "north",
	} {
		p, err := scope.Compile(text, Text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := p.Text(v); err != nil || got != want {
			t.Errorf("%s is %q, %v", text, got, err)
		}
		if _, err := p.Bool(v); err == nil {
			t.Error("a text is a bool")
		}
	}
	for text, want := range map[string]string{`payload.nick`: "yields no string", `any.score`: "yields a int, not a string", `any.none`: "no such key", `dyn(payload.nick)`: "not a string"} {
		p, err := scope.Compile(text, Text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := p.Text(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %q, %v", text, got, err)
		}
	}
	p, err := scope.Compile(`true`, Bool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Text(v); err == nil {
		t.Error("a bool is a text")
	}
	// A message may quote a value, but not much of it.
	p, err = scope.Compile(`int(any.case_id) == 1`, Bool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Bool(&Values{Vars: []any{nil, map[string]any{"case_id": strings.Repeat("a", 60_000)}}}); err == nil || len(err.Error()) > 2*maxMessage {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	scope, err := NewScope(Variable{"a", nil}, Variable{"b", nil}, Variable{"c", nil})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int{
		`true`: nil, `event.id == ""`: nil, `c.x == a.y`: {0, 2}, `has(b.x)`: {1}, `[1].exists(a, a == 1)`: nil, `[1].exists(a, .a.x == a)`: {0},
		`c.exists(b, b == a)`: {0, 2}, `{"a": b} == {}`: {1},
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Uses(); len(got) != len(want) || len(got) > 0 && (got[0] != want[0] || got[len(got)-1] != want[len(want)-1]) {
			t.Errorf("%s uses %v, not %v", text, got, want)
		}
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	scope, _ := caseScope(t)
	key := func(text string) string {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Fatal(err)
		}
		return p.Key()
	}
	for _, same := range [][]string{
		{`payload.new_status == "approved"`, ` payload . new_status=='approved' `, "((payload.new_status))\n==\t(\"approved\")", `payload.new_status == "\u0061pproved"`},
		{`payload.urgent && payload.flag && true`, `(payload.urgent && payload.flag) && true`, `payload.urgent && (payload.flag && (true))`},
		{`payload.signals.exists(s, s.weight>1)`, `payload.signals.exists( s,(s.weight > 1) )`},
		{"payload.`day-of-week` == ''", "( payload.`day-of-week` )==\"\""},
		{`!(payload.urgent)`, `!payload.urgent`}, {`payload.score + 1 * 2 == 3`, `(payload.score + (1 * 2)) == 3`},
	} {
		for _, text := range same[1:] {
			if key(text) != key(same[0]) {
				t.Errorf("%s is %s, and %s is %s", same[0], key(same[0]), text, key(text))
			}
		}
	}
	for _, differ := range [][2]string{
		{`payload.amount == 1.0`, `any.amount == 1`}, {`(payload.score + 1) * 2 == 3`, `payload.score + 1 * 2 == 3`}, {`payload.urgent && (payload.flag || true)`, `payload.urgent && payload.flag || true`},
		{`any.a == "1"`, `any.a == 1`}, {`any.a == 1u`, `any.a == 1`}, {`any.a == 1.0`, `any.a == 1`}, {`any.a == b"a"`, `any.a == "a"`},
	} {
		if key(differ[0]) == key(differ[1]) {
			t.Errorf("%s and %s have the same key %s", differ[0], differ[1], key(differ[0]))
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	scope, s := caseScope(t)
	shared, err := scope.Compile(`payload.score + 1 == 79 && payload.changed_by.role == "case_handler"`, Bool)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				v, err := s.Decode([]byte(casePayload))
				if err != nil {
					t.Error(err)
				}
				values := &Values{Event: &eventing.Header{}, Vars: []any{v, v}}
				own, err := scope.Compile(`payload.signals.exists(s, s.weight > 25) && any.new_status == payload.new_status`, Bool)
				if err != nil {
					t.Error(err)
				}
				for _, p := range []*Program{shared, own} {
					if b, err := p.Bool(values); err != nil || !b {
						t.Errorf("%s is %v, %v", p.Key(), b, err)
					}
					p.Explain(values, everything)
				}
			}
		})
	}
	all.Wait()
}

// TestAllocations holds the common shapes to what they are for.
func TestAllocations(t *testing.T) {
	scope, s := caseScope(t)
	v := caseValues(t, s)
	for _, text := range []string{
		`payload.new_status == "approved"`, `payload.new_status in ["a", "b"]`, `!payload.urgent`, `has(payload.amount) && payload.changed_by.role != "x"`, `payload.amount > 5`,
		`event.type == "x" || event.severity == "CRITICAL"`, `any.new_status == "x"`,
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = p.Bool(v) }); n > 0 {
			t.Errorf("%s allocates %v times", text, n)
		}
	}
}
