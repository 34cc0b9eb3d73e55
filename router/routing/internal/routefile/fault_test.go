package routefile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What is wrong with the structure is said in the words of the file, at its place.
func TestStructureFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no version":        {"consumers: {}", []string{"1:1: the file lacks the key `routing`"}},
		"another version":   {"routing: 2", []string{"1:10: `routing` has to be `1`"}},
		"a version in text": {"routing: '1'", []string{"1:10: `routing` has to be a whole number, not a text: take it out of the quotes"}},
		"a list":            {"- routing: 1", []string{"1:1: a routing file is a mapping that begins with `routing: 1`"}},
		"unknown section":   {"routing: 1\nconsumer: {}", []string{"2:1: unknown key `consumer` (did you mean `consumers`?)"}},
		"unknown key of a rule": {
			"routing: 1\nactions:\n  a:\n    b:\n      - whne: x\n        do: y",
			[]string{"5:9: unknown key `whne` (did you mean `when`?)"},
		},
		"unknown key, nothing like it": {
			"routing: 1\nactions: {a: {b: [{do: x, frequency: 1}]}}",
			[]string{"2:27: unknown key `frequency`: it may be `continue`, `do`, `when` or `with`"},
		},
		"several, in the file's order": {
			"routing: 1\nconsumers:\n  b: {x: 1, concurrency: many}\n  a: {retry: {max_atempts: 3}}\nmatrix: [a]",
			[]string{
				"3:7: unknown key `x`: it may be `breaker`, `concurrency`, `dead_letter_retention`, `guarantee`, `inbox_retention`, `on_exhausted`, `ordered`, `parameters`, `refuse_force`, `retry`, `timeout` or `topic`",
				"3:26: `concurrency` has to be a whole number, not a text",
				"4:15: unknown key `max_atempts` (did you mean `max_attempts`?)",
				"5:9: `matrix` has to be a mapping, not a list",
			},
		},
		"a missing key":             {"routing: 1\nactions: {a: {b: [{when: x}]}}", []string{"2:19: an element of `b` lacks the key `do`"}},
		"nothing where a list is":   {"routing: 1\nmodifiers:\n", []string{"2:11: `modifiers` is empty: it has to be a list, or not there"}},
		"nothing for a number":      {"routing: 1\nconsumers: {a: {concurrency: }}", []string{"2:30: `concurrency` is empty: it has to be a whole number, or not there"}},
		"a fraction":                {"routing: 1\nconsumers: {a: {concurrency: 1.5}}", []string{"2:30: `concurrency` has to be a whole number, not a number"}},
		"a quoted boolean":          {"routing: 1\nconsumers: {a: {ordered: 'true'}}", []string{"2:26: `ordered` has to be true or false, not a text: take it out of the quotes"}},
		"too small":                 {"routing: 1\nconsumers: {a: {concurrency: 0}}", []string{"2:30: `concurrency` has to be at least 1"}},
		"too large":                 {"routing: 1\nconsumers: {a: {retry: {jitter: 1.5}}}", []string{"2:33: `jitter` has to be at most 1"}},
		"a period without its unit": {"routing: 1\nconsumers: {a: {timeout: 30}}", []string{"2:26: `timeout` has to be a text, not a number: a period is written 250ms, 30s, 5m, 12h, 90d, 2w or 7y"}},
		"no period":                 {"routing: 1\nconsumers: {a: {timeout: 30 seconds}}", []string{"2:26: `timeout` is `30 seconds`: a period is written 250ms, 30s, 5m, 12h, 90d, 2w or 7y"}},
		"a period of nothing":       {"routing: 1\nconsumers: {a: {timeout: 0s}}", []string{"2:26: `timeout` has to be longer than nothing; leave it out for its default"}},
		"a period of ages": {
			"routing: 1\nconsumers: {a: {inbox_retention: 201y, timeout: 9999999h, dead_letter_retention: 2000000h}}",
			[]string{"2:34: `inbox_retention` is `201y`: 200y are the most", "2:49: `timeout` is `9999999h`: 200y are the most", "2:82: `dead_letter_retention` is `2000000h`: 200y are the most"},
		},
		"not allowed":               {"routing: 1\nconsumers: {a: {retry: {jitter_of: bse}}}", []string{"2:36: `jitter_of` has to be `delay` or `base` (did you mean `base`?)"}},
		"not allowed, nothing like": {"routing: 1\nlookups: {a: {key: x, on_error: ignore}}", []string{"2:33: `on_error` has to be `retry`, `skip` or `default`"}},
		"a number in a list":        {"routing: 1\nmatrix: {a: [b, 1]}", []string{"2:17: an element of `a` has to be a text, not a number: put it in quotes"}},
		"a name twice":              {"routing: 1\nmatrix:\n  a: [b, c, b]", []string{"3:13: `b` is in the list twice: first at 3:7"}},
		"an empty name":             {"routing: 1\nmatrix: {a: [''], '': []}", []string{"2:14: an element of `a` is ``: a name has 1 to 255 characters, and no control characters", "2:19: the name of an event type has 1 to 255 characters and no control characters"}},
		"a comma in a consumer":     {"routing: 1\nconsumers: {'a,b': {}}", []string{"2:13: the name of a consumer has 1 to 255 characters, and neither commas nor control characters"}},
		"any event declared":        {"routing: 1\nevents: {'*': {}}", []string{"2:10: the name of an event type has 1 to 255 characters, no control characters, and is not *"}},
		"a lookup with a hyphen":    {"routing: 1\nlookups: {a-b: {key: x}}", []string{"2:11: the name of a lookup is a name in conditions: a letter or underscore, then letters, digits and underscores, 255 at most"}},
		"a nested list":             {"routing: 1\nactions: {a: {b: [{do: x, with: {l: [[a]]}}]}}", []string{"2:38: an element of `l` has to be a text, not a list"}},
		"a mixed list":              {"routing: 1\nactions: {a: {b: [{do: x, with: {l: [a, true]}}]}}", []string{"2:41: an element of `l` has to be a text, not `true`: put it in quotes"}},
		"a mapping for a value":     {"routing: 1\nactions: {a: {b: [{do: x, with: {l: {a: b}}}]}}", []string{"2:37: `l` has to be a text, a number, true or false or a list, not a mapping"}},
		"a number of many digits":   {"routing: 1\nactions: {a: {b: [{do: x, with: {n: 9007199254740993}}]}}", []string{"2:37: `n` has more digits than a number keeps: put it in quotes"}},
		"an empty list":             {"routing: 1\nmodifiers: [{name: a, events: [], set: {x: y}}]", []string{"2:31: `events` is an empty list: leave it out, or say what is in it"}},
		"an empty mapping":          {"routing: 1\nmodifiers: [{name: a, set: {}}]", []string{"2:28: `set` is an empty mapping: leave it out, or say what is in it"}},
		"a text to be added":        {"routing: 1\nmodifiers: [{name: a, add: {x: y}}]", []string{"2:32: `x` has to be a list, not a text"}},
		"a modifier of nothing":     {"routing: 1\nmodifiers: [{name: a}]", []string{"2:13: a modifier needs add, remove or set: it would change nothing"}},
		"a modifier twice": {
			"routing: 1\nmodifiers:\n  - {name: a, set: {x: y}}\n  - {name: b, set: {x: y}}\n  - {name: a, set: {x: y}}",
			[]string{"5:12: there are two modifiers `a`: the first at 3:12"},
		},
		"two kinds of a parameter": {
			"routing: 1\nconsumers: {a: {parameters: {x: {list: any, text: any}, y: {}, z: {list: some}}}}",
			[]string{
				"2:33: `x` has to have one key: `bool`, `list`, `number` or `text`", "2:60: `y` has to have one key: `bool`, `list`, `number` or `text`",
				"2:74: `list` is `some`: write any, or a list of the texts that are allowed",
			},
		},
		"a kind of parameter": {"routing: 1\nconsumers: {a: {parameters: {x: {bool: true}}}}", []string{"2:40: `bool` has to be `any`"}},
		"both schemas": {
			"routing: 1\nevents:\n  a:\n    schema: {}\n    schemas: {1: {}}",
			[]string{"5:5: schema and schemas exclude each other: schema is that of version 1, schemas those of several versions"},
		},
		"a version of a schema":    {"routing: 1\nevents: {a: {schemas: {0: {}, v2: {}}}}", []string{"2:24: a schema version is a whole number from 1", "2:31: a schema version is a whole number from 1"}},
		"a default without":        {"routing: 1\nlookups: {a: {key: x, default: {}}}", []string{"2:23: default is for on_error: default"}},
		"without a default":        {"routing: 1\nlookups: {a: {key: x, on_error: default}}", []string{"2:14: `a` lacks the key `default`"}},
		"a cache without a time":   {"routing: 1\nlookups: {a: {key: x, cache_entries: 3}}", []string{"2:14: `a` has `cache_entries`, which needs `cache`"}},
		"a key that is a number":   {"routing: 1\nlookups: {a: {key: 3}}", []string{"2:20: `key` has to be a text or a mapping, not a number: put it in quotes"}},
		"an empty expression":      {"routing: 1\nlookups: {a: {key: ''}, b: {key: {c: ' '}}}", []string{"2:20: `key` is empty"}},
		"a blank expression":       {"routing: 1\nlookups: {b: {key: {c: ' '}}}", []string{"2:24: `c` is empty"}},
		"retention of a number":    {"routing: 1\nretention: {a: 7}", []string{"2:16: `a` has to be a text or a mapping, not a number: a period is written 250ms, 30s, 5m, 12h, 90d, 2w or 7y"}},
		"unless without after":     {"routing: 1\nretention: {a: {keep: 1y, unless: [b]}}", []string{"2:16: `a` has `unless`, which needs `after`"}},
		"retention without a time": {"routing: 1\nretention: {a: {after: [b]}}", []string{"2:16: `a` lacks the key `keep`"}},
		"a faulty payload schema": {
			"routing: 1\nevents:\n  a:\n    schema:\n      type: objct\n      properties: {b: {minLength: -1, required: x}}",
			[]string{
				"5:13: `type` has to be `array`, `boolean`, `integer`, `null`, `number`, `object` or `string` (did you mean `object`?)",
				"6:35: `minLength` has to be at least 0", "6:49: `required` has to be a list, not a text",
			},
		},
		"a list of types": {
			"routing: 1\nevents: {a: {schema: {type: [string, nul], properties: {b: {type: [null, 'null']}, c: {type: {}}, d: {type: [string, string]}}}}}",
			[]string{
				"2:38: an element of `type` has to be `array`, `boolean`, `integer`, `null`, `number`, `object` or `string` (did you mean `null`?)",
				"2:68: an element of `type` has to be `array`, `boolean`, `integer`, `null`, `number`, `object` or `string`: put it in quotes",
				"2:94: `type` has to be `array`, `boolean`, `integer`, `null`, `number`, `object` or `string`",
				"2:118: `string` is in the list twice: first at 2:110",
			},
		},
		"a duplicate key": {
			"routing: 1\nmatrix:\n  a: [b]\n  \"a\": [c]\nmatrix: {}",
			[]string{"4:3: the key `a` is there twice: first at 3:3", "5:1: the key `matrix` is there twice: first at 2:1"},
		},
		"duplicate cells and rules' keys": {
			"routing: 1\nactions:\n  a:\n    b:\n      - do: x\n        do: y\n    b: []",
			[]string{"6:9: the key `do` is there twice: first at 5:9", "7:5: the key `b` is there twice: first at 4:5"},
		},
		"values are cut": {
			"routing: 1\nconsumers: {a: {timeout: " + strings.Repeat("x", 1000) + "}}",
			[]string{"2:26: `timeout` is `" + strings.Repeat("x", 60) + "…`: a period is written 250ms, 30s, 5m, 12h, 90d, 2w or 7y"},
		},
		"control characters are not shown": {
			"routing: 1\nconsumers: {a: {\"x\\e[1m\\u202e\": 1, timeout: \"\\a\"}}",
			[]string{
				"2:17: unknown key `x\uFFFD[1m\uFFFD`: it may be `breaker`, `concurrency`, `dead_letter_retention`, `guarantee`, `inbox_retention`, `on_exhausted`, `ordered`, `parameters`, `refuse_force`, `retry`, `timeout` or `topic`",
				"2:45: `timeout` is `\uFFFD`: a period is written 250ms, 30s, 5m, 12h, 90d, 2w or 7y",
			},
		},
	} {
		faulty(t, name, c.text, c.want...)
	}
}

// Of very many faults the first ones are told.
func TestVeryManyFaults(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range maxFaults + 100 {
		fmt.Fprintf(&b, "\n    x%d: 1", i)
	}
	got := faultsOf(t, "routing: 1\nconsumers:\n  a:"+b.String(), nil)
	if last := got[len(got)-1]; len(got) != maxFaults || !strings.HasPrefix(last, fmt.Sprintf("%d:5: unknown key `x%d`: ", maxFaults+3, maxFaults-1)) {
		t.Errorf("got %d, the last one %s", len(got), last)
	}
	for text, first := range map[string]string{
		"routing: 1\nmatrix: {a: [" + strings.Repeat(".inf,", maxFaults+100) + "]}":                              "2:14: `.inf` is no number",
		"routing: 1\nmodifiers: [" + strings.Repeat("{name: a, when: ' ', set: {b: c}},", maxFaults/2+100) + "]": "2:29: `when` is empty",
	} {
		if got := faultsOf(t, text, nil); len(got) != maxFaults || !strings.HasPrefix(got[0], first) {
			t.Errorf("got %d, the first one %s", len(got), got[0])
		}
	}
}

// Another draft has other rules; its schemas are for who compiles them.
func TestSchemasOfOtherDrafts(t *testing.T) {
	t.Parallel()
	parse(t, "routing: 1\nevents: {a: {schema: {$schema: 'http://json-schema.org/draft-04/schema#', minimum: 3, exclusiveMinimum: true}}}")
	faulty(t, "2020-12", "routing: 1\nevents: {a: {schema: {minimum: 3, exclusiveMinimum: true}}}", "2:53: `exclusiveMinimum` has to be a number, not `true`")
}

// What is no YAML is said with its line, and in other words than the parser's.
func TestSyntaxFaults(t *testing.T) {
	t.Parallel()
	const context = "this does not go with what is before it: check the indentation; a text that only begins with a quote or a bracket has to be in quotes as a whole"
	for _, c := range []struct{ text, want string }{
		{"a:\n  b: c\n d: e\nx: y\n", "3:2: " + context},
		{"a: 1\n- b\nc: d\n", "2:1: " + context},
		{"a: 1\nb:\n  - x\n - y\nc: 3\n", "4:2: " + context},
		{"a: 1\nwhen: \"x\" == y\nc: 3\n", "2:1: " + context},
		{"a: 1\nwhen: [1,2].exists(x, y)\nc: 3\n", "2:1: " + context},
		{"a: 1\nb: 'it's'\nc: 3\n", "2:1: " + context},
		{"a:\n - b: c\n   d: e\n  f: g\nh: i\n", "4:3: the list does not go on here: check the indentation"},
		{"a: 1\nwhen: x ? y : z\nc: 3\n", "2:1: a key, or a colon and a space, cannot stand here: check the indentation, and put texts with `: ` in quotes"},
		{"a: 1\n\tb: 2\n", "2:2: a tab: indent with spaces"},
		{"a: 1\nb: [1, 2\nc: 3\nd: 4\n", "2:1: a list in brackets has commas between its elements and ends with `]`; put texts with any of [ ] { } , in quotes"},
		{"a: {\n  b: 1,\n  c: 2\nd: [x]\ne: f\n", "3:3: a mapping in braces has commas between its entries and ends with `}`; put texts with any of [ ] { } , in quotes"},
		{"a: [x,\n y]\nb: ]\nc: 3\n", "3:1: a value is missing here; a text that begins with any of , ] } has to be in quotes"},
		{"a: 1\n  \nb: \"foo\nc: 3\n", "3:1: the quote that begins here does not end"},
		{"b: \"foo\nc: 3\n", "1:1: the quote that begins here does not end"},
		{"a: 'x\n y'\nb: 'z\n", "3:1: the quote that begins here does not end"},
		{"a: 1\nwhen: *foo\nc: 3\n", "2:1: there is no such anchor before; a text that begins with * has to be in quotes"},
		{"matrix:\n  *: [a]\n", "2:3: a text that begins with any of * & ! has to be in quotes"},
		{"a: !b.c && d\n", "1:1: a text that begins with any of * & ! has to be in quotes"},
		{"a: !(b || c)\n", "1:1: a text that begins with any of | > ! has to be in quotes"},
		{"a: @b\n", "1:1: a text that begins with any of % @ ` ! has to be in quotes; tabs cannot indent"},
		{"a: - b\n", "1:1: a list cannot begin here: begin it on a line of its own, or put a text that begins with - in quotes"},
		{"a: 1\nfoo\nc: 3\n", "2:1: a key needs a colon after it; a text goes on only in lines that are indented further"},
		{"a: 1\nb: \"\\q\"\n", "2:1: an unknown escape: in double quotes a backslash is written twice, in single quotes once"},
		{"a: \"\\ud83d\\ude00\"\n", "1:1: an escape that is no character: from U+10000 on, write \\U and eight digits"},
		{"a: \"x\n---\ny\"\n", "2:1: found unexpected document indicator"},
		{"a: !<x\n", "1:1: a text that begins with ! has to be in quotes"},
		{strings.Repeat("[", 20_000), "1:1: it is nested too deeply"},
	} {
		line, want, _ := strings.Cut(c.want, ": ")
		faulty(t, "syntax", c.text, line+": not valid YAML: "+want)
	}
}

// In a large file a problem's line may be later than where it begins, but it is found in time.
func TestSyntaxFaultsInLargeFiles(t *testing.T) {
	t.Parallel()
	filler := strings.Repeat("x: y\n", 40_000)
	for text, want := range map[string]string{
		filler + "a: \"b\" c\nd: e\n": "40001:1: ",
		filler + "a: *b\nd: e\n":      "40001:1: ",
		"a: b\nc: \"d\n" + filler:     "2:1: ",
		"a: b\nc: [d\n" + filler:      "2:1: ",
	} {
		if got := faultsOf(t, text, nil); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	if err := NewError("x", nil); err != nil {
		t.Errorf("nothing is wrong, and the error is %v", err)
	}
	given := []Fault{{Pos{2, 1}, "b"}, {Pos{1, 10}, "a"}, {Pos{1, 9}, "a"}, {Pos{2, 1}, "a"}, {Pos{}, "whole"}, {Pos{2, 1}, "b"}}
	before := slices.Clone(given)
	err := NewError("routes.yaml", given)
	const want = "routes.yaml has 5 faults:\nroutes.yaml: whole\nroutes.yaml:1:9: a\nroutes.yaml:1:10: a\nroutes.yaml:2:1: a\nroutes.yaml:2:1: b"
	if err.Error() != want {
		t.Errorf("got\n%v\nnot\n%s", err, want)
	}
	if !slices.Equal(given, before) {
		t.Error("the faults that were given were changed")
	}
	many := make([]Fault, 53)
	for i := range many {
		many[i] = Fault{Pos{i + 1, 1}, "x"}
	}
	lines := strings.Split(NewError("r", many).Error(), "\n")
	if len(lines) != 52 || lines[0] != "r has 53 faults:" || lines[50] != "r:50:1: x" || lines[51] != "and 3 more" {
		t.Errorf("got %d lines, the last ones %v", len(lines), lines[50:])
	}
	if last := NewError("r", many[:50]).Error(); strings.Contains(last, "more") {
		t.Errorf("50 faults are all there: %s", last)
	}
	if one := NewError("r", many[:1]).Error(); one != "r:1:1: x" {
		t.Errorf("one fault is %q", one)
	}
	var all *Error
	if !errors.As(fmt.Errorf("routing: %w", NewError("r", many)), &all) || len(all.Faults) != 53 {
		t.Error("all faults are in the error")
	}
}

// What is meant differs by a third of its letters at most, or by one.
func TestSuggest(t *testing.T) {
	t.Parallel()
	known := []string{"to", "when", "concurrency", "on_exhausted"}
	for text, want := range map[string]string{
		"on": "", "ot": "to", "whne": "when", "hen": "when", "what": "", "w": "", "concurency": "concurrency", "cuncurrrencie": "concurrency", "onexhausted": "on_exhausted", "exhausted": "on_exhausted", "exhaust": "",
		strings.Repeat("when", 100): "", "": "",
	} {
		if want != "" {
			want = " (did you mean `" + want + "`?)"
		}
		if got := suggest(text, known); got != want {
			t.Errorf("for %q it is %q, not %q", text, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"when", "whne", 1}, {"when", "wen", 1}, {"when", "wheen", 1}, {"when", "what", 2}, {"kitten", "sitting", 3}, {"äöü", "äöu", 1}, {"ca", "abc", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q it is %d, not %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("from %q to %q it is %d, not %d", c.b, c.a, got, c.want)
		}
	}
}
