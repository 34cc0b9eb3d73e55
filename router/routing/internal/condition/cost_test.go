package condition

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// openSchema bounds nothing, and boundSchema everything.
const (
	openSchema = `{"type": "object", "properties": {
		"text": {"type": "string"}, "texts": {"type": "array", "items": {"type": "string"}}, "map": {"type": "object", "additionalProperties": {"type": "string"}},
		"objects": {"type": "array", "items": {"type": "object", "properties": {"kind": {"type": "string"}, "n": {"type": "number"}}}},
		"lists": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "whole": {"type": "integer"}
	}}`
	boundSchema = `{"type": "object", "additionalProperties": false, "properties": {
		"text": {"type": "string", "maxLength": 20}, "texts": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}},
		"map": {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "string", "maxLength": 20}},
		"objects": {"type": "array", "maxItems": 10, "items": {"type": "object", "additionalProperties": false, "properties": {"kind": {"type": "string", "maxLength": 20}, "n": {"type": "number"}}}},
		"lists": {"type": "array", "maxItems": 10, "items": {"type": "array", "maxItems": 10, "items": {"type": "integer"}}}, "whole": {"type": "integer"}
	}}`
)

func boundsScope(tb testing.TB) (*Scope, *Schema) {
	tb.Helper()
	large := schema(tb, "open/1", openSchema, nil)
	scope, err := NewScope(Variable{"open", large}, Variable{"small", schema(tb, "small/1", boundSchema, nil)}, Variable{"any", nil})
	if err != nil {
		tb.Fatal(err)
	}
	return scope, large
}

// TestCosts shows what is refused, and why.
func TestCosts(t *testing.T) {
	t.Parallel()
	scope, _ := boundsScope(t)
	for text, want := range map[string]string{
		// One loop over what is not bounded is nothing to worry about.
		`open.objects.exists(o, o.kind == "x" && o.n > 5.0)`:                  "",
		`open.texts.exists(x, x == open.text || x.contains("y"))`:             "",
		`open.texts.filter(x, x != "a").map(x, x + "b").size() > 1`:           "",
		`any.list.exists(x, x.kind == any.kind)`:                              "",
		`any.a == any.b && open.objects == any.c`:                             "",
		`open.text.contains(open.text) && open.text + open.text != open.text`: "",
		`open.text == small.text && size(open.text) > 5`:                      "",
		`open.map.exists(k, open.map[k] == "x")`:                              "",
		`"x" in open.texts && "x" in open.map && any.x in any.list`:           "",
		`timestamp(open.text) > timestamp("2024-01-01T00:00:00Z")`:            "",
		// Nested ones take bounds.
		`open.texts.exists(x, open.texts.exists(y, x == y))`:                                                 "declare maxItems of open.texts",
		`open.lists.exists(l, l.exists(i, i == 1))`:                                                          "declare maxItems of open.lists, maxItems of l",
		`any.a.exists(x, any.b.exists(y, x == y))`:                                                           "declare a schema of any",
		`open.texts.all(x, open.map.exists(k, k == x))`:                                                      "declare maxItems of open.texts, maxProperties of open.map",
		`small.texts.exists(x, small.texts.exists(y, small.texts.exists(z, x == y && y == z)))`:              "",
		`small.objects.exists(o, small.objects.exists(p, o == p))`:                                           "",
		`small.lists.exists(l, small.lists.exists(m, l == m && l.size() > 2))`:                               "",
		`small.texts.exists(a, small.texts.exists(b, small.texts.exists(c, small.texts.exists(d, a == b))))`: "declare maxItems",
		// Patterns take bounds.
		`small.text.matches("^[A-Z]{2}-[0-9]{8}-[0-9]{4}$")`:                     "",
		`small.texts.exists(x, x.matches("^[A-Z]{2}-[0-9]{4}$"))`:                "",
		`open.text.matches("^[A-Z]{2}-[0-9]{8}-[0-9]{4}$")`:                      "evaluating it may take about 7.9ms, and at most 2ms is allowed: declare maxLength of open.text",
		`any.text.matches("a+b+c+d+")`:                                           "declare a schema of any",
		`small.text.matches("(a?){300}a{300}")`:                                  "",
		`event.id.matches("^evt_")`:                                              "",
		`open.map.exists(k, k.matches("a+b"))`:                                   "may take",
		`any.exists(k, k.matches("a+b"))`:                                        "may take",
		`open.texts.exists(x, event.occurred_at.getHours("Europe/Berlin") == 1)`: "declare maxItems of open.texts",
		// So do lists that are concatenated, in which finding an element takes long.
		`(open.texts + open.texts + open.texts + open.texts).exists(x, true)`:                                "may take",
		`(small.whole > 1 ? open.texts + open.texts + open.texts + open.texts : open.texts).exists(x, true)`: "may take",
		`(open.texts + open.texts).exists(x, x == "a")`:                                                      "",
		// What is compared under guard costs what the guard lets through.
		`open.objects.exists(o, o.kind == "x" && o.n > 5.0) || open.objects.exists(o, o.kind == "x" && o.n > 5.0)`:                   "",
		`open.objects.exists(o, o.kind == "x" && o.n > 5.0) || open.objects.exists(o, o.kind == "x" && o.n > 5.0) || any.a in any.b`: "may take about 2.2ms",
		// What grows.
		`open.objects.map(o, open.text + o.kind) == []`: "declare maxItems of open.objects, maxLength of open.text",
		`[open.text + open.text].map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x)[0] == ""`: "declare maxLength of open.text",
		`["12345678"].map(x, x + x).map(x, x + x).map(x, x + x)[0] == ""`:                                                                    "",
		`open.objects.map(o, open.objects).exists(p, p == open.objects)`:                                                                     "declare maxItems of open.objects",
		`open.objects.map(o, open.objects.map(p, o)).size() == 1`:                                                                            "declare maxItems of open.objects",
		`(open.texts + open.texts + open.texts + open.texts + open.texts + open.texts + open.texts + open.texts).exists(x, x == "a")`:        "declare maxItems",
		`(small.texts + small.texts + small.texts).exists(x, x == "a")`:                                                                      "",
		`[[1, 2], [3, 4]].exists(l, l.exists(i, i == small.whole))`:                                                                          "",
		`{"a": small.objects}.a.exists(o, o.kind == "x") && {"a": 1}.exists(k, k == "a")`:                                                    "",
		`small.objects.map(o, {"k": o.kind}).exists(m, m.k == "x" && m == {"k": "x"})`:                                                       "",
		`(small.whole > 1 ? open.texts : small.texts).exists(x, (small.whole > 1 ? open.texts : small.texts).exists(y, x == y))`:             "may take",
		`small.texts.exists(x, timestamp(x).getHours("Europe/Berlin") == 1)`:                                                                 "",
		`[event, event].exists(e, e.type == open.text)`:                                                                                      "",
		`open.objects.exists(o, dyn(o) == small)`:                                                                                            "",
		`bytes(open.text) == b"a" && string(bytes(open.text)) == string(small.whole)`:                                                        "",
		`type(open.text) == string && dyn(open.text) == 1 && -small.whole % 2 == 0 && double(small.whole) < 1.5`:                             "",
	} {
		_, err := scope.Compile(text, Bool)
		var faults *CompileError
		if want == "" && err != nil || want != "" && (!errors.As(err, &faults) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "at most 2ms is allowed")) {
			t.Errorf("%s: %v, not %q", text, err, want)
		}
	}
}

// largest are values of the sizes that the estimates assume.
func largest(tb testing.TB, large *Schema) *Values {
	tb.Helper()
	const many = 1000
	texts, objects, lists, words := make([]any, many), make([]any, many), make([]any, many), map[string]any{}
	for i := range many {
		word := strings.Repeat("a", 300) + strings.Repeat("b", i%7)
		texts[i], words[word+string(rune('a'+i%26))+strings.Repeat("x", i)] = word, word
		objects[i] = map[string]any{"kind": word, "n": float64(i), "more": map[string]any{"a": []any{int64(i)}}}
		lists[i] = []any{int64(i), int64(2), int64(3), int64(4), int64(5), int64(6)}
	}
	v, err := large.Normalise(map[string]any{"text": strings.Repeat("a", 65_000), "texts": texts, "map": map[string]any{"a": "b"}, "objects": objects, "lists": lists, "whole": 1})
	if err != nil {
		tb.Fatal(err)
	}
	return &Values{Vars: []any{v, map[string]any{"texts": texts[:10]}, map[string]any{
		"a": lists, "b": lists, "c": objects, "list": objects, "kind": "x", "x": objects, "text": strings.Repeat("a", 65_000), "map": words,
	}}}
}

// TestEstimates shows that what is allowed ends in time, with the largest values: the estimates, which are for a machine with nothing else
// to do and without the race detector, are logged beside what it took.
func TestEstimates(t *testing.T) {
	const patience = 100 * time.Millisecond
	scope, large := boundsScope(t)
	v := largest(t, large)
	texts := []string{
		`open.objects.exists(o, o.kind == "x" && o.n > 5000.0)`, `open.texts.exists(x, x == open.text || x.contains("c"))`, `open.texts.filter(x, x != "a").map(x, x + "b").size() > 1`,
		`any.list.exists(x, x.kind == any.kind)`, `any.a == any.b`, `any.c == open.objects`, `open.objects == open.objects`, `open.lists == open.lists`, `[open.objects] == [open.objects]`,
		`open.text.contains(open.text)`, `open.text + open.text != open.text`, `size(open.text) > 5`, `any.map.exists(k, any.map[k] == "x")`, `"x" in open.texts`, `any.x in any.list`,
		`{"k": open.objects} in [{"k": any.c}, {"k": open.objects}]`, `open.lists.exists(l, l == [1, 2])`, `open.objects.exists_one(o, o == any.list[3])`, `open.objects.all(o, o != any.list)`,
		`timestamp(open.text) > timestamp(0)`, `duration(open.text) == duration("1s")`, `int(open.text) == 1`, `bytes(open.text) == b"a"`, `open.text < open.text`, `open.text.endsWith(open.text)`,
		`open.text.matches("x")`, `open.texts.exists(x, x in ["a", "b"])`, `open.texts.map(x, x + x) == open.texts`, `(open.texts + open.texts).exists(x, x == "x")`,
		`(open.lists + open.lists) == (open.lists + open.lists)`, `timestamp(0).getHours("America/New_York") == 1`, `open.objects.map(o, o.kind).exists(k, k == "x")`,
		`open.lists.map(l, l[0]).exists(i, i > 5000)`, `["12345678"].map(x, x + x).map(x, x + x).map(x, x + x)[0] == ""`, `string(open.whole) + string(1.5) == ""`,
	}
	for _, text := range append(append(texts, bombs()...), expressions...) {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			continue
		}
		checked, _ := scope.env.Compile(text)
		c := &compiler{scope: scope, checked: checked.NativeRep(), top: newSight(scope), guarded: map[int64]bool{}}
		estimate, err := (&coster{compiler: c, locals: map[string][]*extent{}}).estimate()
		if err != nil {
			t.Fatal(err)
		}
		least := time.Duration(math.MaxInt64)
		for range 5 {
			start := time.Now()
			_, _ = p.Bool(v) // an error takes time, too
			least = min(least, time.Since(start))
		}
		t.Logf("%8s of %8s: %.90s", least.Round(time.Microsecond), time.Duration(estimate).Round(time.Microsecond), text)
		if least > patience {
			t.Errorf("%s took %s", text, least)
		}
	}
}

// TestComplicated shows that an estimate ends, whatever it is of.
func TestComplicated(t *testing.T) {
	t.Parallel()
	scope, _ := boundsScope(t)
	text := "x0"
	for i := range 14 {
		text = fmt.Sprintf("[any.a%d ? x%d : any.b, any.c ? x%d : any.d].exists(x%d, %s == 1)", i, i+1, i+1, i, text)
	}
	start := time.Now()
	_, err := scope.Compile("any.a.exists(x14, "+text+")", Bool)
	if took := time.Since(start); err == nil || took > slow {
		t.Errorf("it took %s: %v", took, err)
	}
	k := &coster{compiler: &compiler{scope: scope}, work: maxWork}
	if deep := k.either(scalar(), scalar()); len(deep.parts) > 0 {
		t.Error("it goes on")
	}
}

// TestBombs shows that none compiles to something that takes long.
func TestBombs(t *testing.T) {
	t.Parallel()
	scope, s := caseScope(t)
	v := caseValues(t, s)
	for _, text := range bombs() {
		start := time.Now()
		if p, err := scope.Compile(text, Bool); err == nil {
			_, _ = p.Bool(v)
		}
		if took := time.Since(start); took > slow {
			t.Errorf("%.80s took %s", text, took)
		}
	}
}

// TestGuards shows that comparing what no schema bounds ends early, and that it is right until then.
func TestGuards(t *testing.T) {
	t.Parallel()
	scope, _ := boundsScope(t)
	list := func(n int) []any {
		l := make([]any, n)
		for i := range l {
			l[i] = map[string]any{"a": []any{int64(i)}}
		}
		return l
	}
	for _, c := range []struct {
		text string
		a, b any
		want any // a bool, or an error's text
	}{
		{`any.a == any.b`, list(10), list(10), true},
		{`any.a == any.b`, list(10), list(11), false},
		{`any.a != any.b`, list(10), list(11), true},
		{`any.a != any.b`, list(10), list(10), false},
		{`any.a == any.b`, list(900), list(900), true},
		{`any.a == any.b`, map[string]any{"x": list(900)}, map[string]any{"x": list(900)}, true},
		{`[any.a] == [any.b] && {"x": any.a} == {"x": any.b}`, list(400), list(400), true},
		{`any.a == any.b`, list(1000), list(1000), errCompared.Error()},
		{`any.a == any.b`, list(2000), list(1999), false},
		{`any.a == any.b`, "a", "a", true},
		{`any.a == any.b`, nil, list(3000), false},
		{`any.a in any.b`, list(1)[0], list(100), true},
		{`any.a in any.b`, list(101)[100], list(100), false},
		{`any.a in any.b`, list(1)[0], list(1000), errCompared.Error()},
		{`any.a in any.b`, "x", []any{"y", "x"}, true},
		{`any.a in any.b`, "x", map[string]any{"x": 1}, true},
		{`any.a in any.b`, "x", "y", "no such overload"},
		{`any.a == any.b || any.a == any.b`, list(400), append(list(399), nil), false},
		{`any.a == any.b || any.b == any.a`, list(700), append(list(699), nil), errCompared.Error()}, // what is compared adds up
		{`any.none == any.b`, nil, nil, "no such key: none"},
		{`any.a == any.none`, nil, nil, "no such key: none"},
		{`any.a == any.b || true`, list(1000), list(1000), true},
	} {
		p, err := scope.Compile(c.text, Bool)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time with nothing used up
			got, err := p.Bool(&Values{Vars: []any{nil, nil, map[string]any{"a": c.a, "b": c.b}}})
			if text, is := c.want.(string); is && (err == nil || !strings.Contains(err.Error(), text)) || !is && (err != nil || got != c.want) {
				t.Errorf("%s is %v, %v; want %v", c.text, got, err, c.want)
			}
		}
	}
}

// TestMeasures shows how large values can be by the structure of their schema.
func TestMeasures(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for text, want := range map[string][2]float64{ // bytes and values
		`{"type": "integer"}`:                 {24, 1},
		`{"type": "string", "maxLength": 20}`: {82, 1},
		`{"type": "string"}`:                  {65538, 1},
		`{"enum": ["four", "a"]}`:             {6, 1},
		`{}`:                                  {inf, inf},
		`{"type": "array", "maxItems": 10, "items": {"type": "integer"}}`:                                                     {262, 11},
		`{"type": "array", "items": {"type": "boolean"}}`:                                                                     {26002, 1001},
		`{"type": "array", "maxItems": 10}`:                                                                                   {inf, inf},
		`{"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}}`:                                 {inf, 6},
		`{"type": "object", "properties": {"a": {"type": "integer"}}}`:                                                        {inf, inf},
		`{"type": "object", "properties": {"ab": {"type": "integer"}, "c": {"type": "null"}}, "additionalProperties": false}`: {61, 3},
		`{"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": false}`:                               {inf, inf},
		`{"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#"}}}, "additionalProperties": false}`:   {inf, inf},
	} {
		n := schema(t, "x/1", text, nil).root
		if n.maxBytes != want[0] || n.maxNodes != want[1] {
			t.Errorf("%s has %v bytes and %v values, not %v", text, n.maxBytes, n.maxNodes, want)
		}
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	l := loops{{rounds: 10, whole: fixed(1000)}, {rounds: 5, whole: share(0).times(0.5)}}
	f := fixed(3).plus(share(0).times(2), share(1).times(4)) // 3 + 2a + 4b
	if got := l.total(fixed(1)); got != 50 {
		t.Errorf("once in each round is %v times", got)
	}
	if got := l.total(share(0)); got != 5*1000 { // five times each of the outer elements, which are 1000 together
		t.Errorf("all outer elements, in each inner round, are %v", got)
	}
	if got := l.total(share(1)); got != 500 { // all inner elements are half of the outer ones
		t.Errorf("all inner elements are %v", got)
	}
	if got := l.total(f); got != 3*50+2*5000+4*500 {
		t.Errorf("the total is %v", got)
	}
	if got := l.single(f); got.fixed != 3 || got.at(0) != 2+4*0.5 || got.at(1) != 0 {
		t.Errorf("one round is %+v", got)
	}
	if got := l.less(fixed(100), share(1)); got.fixed != 0 {
		t.Errorf("the lesser is %+v", got)
	}
	if got := fixed(1).or(share(1)); got.fixed != 1 || got.at(1) != 1 || got.at(7) != 0 {
		t.Errorf("either is %+v", got)
	}
}
