package condition

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	s := schema(t, "x/1", `{"type": "object", "properties": {
		"i": {"type": "integer"}, "n": {"type": "number"}, "s": {"type": "string"}, "d": {}, "l": {"type": "array", "items": {"type": "number"}},
		"m": {"type": "object", "additionalProperties": {"type": "integer"}}, "o": {"type": "object", "properties": {"n": {"type": "number"}}}, "z": {"type": ["integer", "null"]}
	}}`, nil)
	for raw, want := range map[string]map[string]any{
		`{"i": 1, "n": 1, "d": 1}`:                                 {"i": int64(1), "n": 1.0, "d": int64(1)},
		`{"i": 1.0, "n": 1.5, "d": 1.5}`:                           {"i": int64(1), "n": 1.5, "d": 1.5},
		`{"i": 1e3, "n": 1e3, "d": 1e3}`:                           {"i": int64(1000), "n": 1000.0, "d": int64(1000)},
		`{"i": -0, "n": -0, "d": -0.0}`:                            {"i": int64(0), "n": math.Copysign(0, -1), "d": int64(0)},
		`{"i": 9223372036854775807, "d": 9223372036854775808}`:     {"i": int64(math.MaxInt64), "d": 9223372036854775808.0},
		`{"i": 9.223372036854775807e18, "d": 12345678901234567e1}`: {"i": int64(math.MaxInt64), "d": int64(123456789012345670)},
		`{"l": [1, 2.5], "m": {"a": 1.0}, "o": {"n": 1, "other": 1}, "z": null, "unknown": [1.0]}`: {
			"l": []any{1.0, 2.5}, "m": map[string]any{"a": int64(1)}, "o": map[string]any{"n": 1.0, "other": int64(1)}, "z": nil, "unknown": []any{int64(1)},
		},
		`{"s": "\u00e9\n\ud83d\ude00 é"}`: {"s": "é\n😀 é"},
		` {} `:                            {},
	} {
		got, err := s.Decode([]byte(raw))
		if err != nil || !reflect.DeepEqual(got, any(want)) {
			t.Errorf("%s is %#v, %v; want %#v", raw, got, err, want)
		}
	}
}

func TestDecodeAny(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]any{
		`null`: nil, `1`: int64(1), `1.0`: int64(1), `1.5`: 1.5, `10.0000000000000001`: int64(10), `-9223372036854775809`: int64(math.MinInt64), `1e400`: nil, `"a"`: "a", `[]`: []any{}, `true`: true,
		`9223372036854775808`: 9223372036854775808.0, `{"a": [1, {"b": -2.50}]}`: map[string]any{"a": []any{int64(1), map[string]any{"b": -2.5}}},
	} {
		got, err := DecodeAny([]byte(raw))
		if !reflect.DeepEqual(got, want) || (err != nil) != (raw == `1e400`) {
			t.Errorf("%s is %#v, %v", raw, got, err)
		}
	}
}

// TestViolations shows the messages. None has a value in it.
func TestViolations(t *testing.T) {
	t.Parallel()
	s := schema(t, "x/1", `{"type": "object", "required": ["i"], "additionalProperties": false, "properties": {
		"i": {"type": "integer", "minimum": 1}, "n": {"type": "number"}, "s": {"type": "string", "format": "date"}, "l": {"type": "array", "items": {"type": "string"}},
		"short": {"type": "string", "maxLength": 3}, "few": {"maxItems": 2}, "d": {}, "a/b": {"const": "secret"}, "m": {"type": "object"}, "never": false,
		"long": {"type": "string", "maxLength": 100000}, "many": {"type": "array", "maxItems": 2000}
	}}`, nil)
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }
	words := strings.Repeat(`"secret",`, 20)
	for raw, want := range map[string]string{
		`secret`:                               "it is no JSON",
		``:                                     "it is no JSON",
		`{"i": 1} secret`:                      "something follows the value",
		`{"i": 1, "i": 2}`:                     "an object has a key twice",
		`{"i": 1, "d": {"a": 1, "\u0061": 2}}`: "an object has a key twice",
		strings.Repeat("[", 200) + strings.Repeat("]", 200): "it is nested more than 100 levels deep",
		`{"i": 1e1001}`: "a number has more digits or a larger exponent than can be checked",
		`{"i": ` + strings.Repeat("1", 1001) + `}`: "a number has more digits or a larger exponent than can be checked",
		`"` + strings.Repeat("a", 2<<20) + `"`:     "it has 2097154 bytes, more than 1048576",
		`{}`:                                       `it lacks "i", which is required`,
		`[]`:                                       "it is a list, and has to be an object",
		`{"i": "secret"}`:                          "/i is a text, and has to be a whole number",
		`{"i": 0}`:                                 "/i has to be at least 1",
		`{"i": 1.5}`:                               "/i is a number, and has to be a whole number",
		`{"i": 1e30}`:                              "/i is a whole number of more than 64 bits",
		`{"i": 1, "n": 1e400}`:                     "/n is a number that is too large",
		`{"i": 1, "d": 1e400}`:                     "/d is a number that is too large",
		`{"i": 1, "secret": 1}`:                    "it has 1 property that the schema does not name",
		`{"i": 1, "s": "secret"}`:                  "/s is not in the format date",
		`{"i": 1, "short": "secret"}`:              "/short has 6 characters, and 3 are the most",
		`{"i": 1, "few": [1, 2, 3]}`:               "/few has 3 elements, and 2 are the most",
		`{"i": 1, "a/b": 1}`:                       "/a~1b is none of the values that the schema allows",
		`{"i": 1, "never": "secret"}`:              "/never is not allowed",
		`{"i": "secret", "l": [1, "a", 2]}`:        "/i is a text, and has to be a whole number; /l/0 is a number, and has to be a text; /l/2 is a number, and has to be a text",
		`{"i": 1, "l": [` + strings.Repeat("1,", 14) + `1]}`:         "/l/10 is a number, and has to be a text; /l/11 is a number, and has to be a text; /l/12 is a number, and has to be a text; /l/13 is a number, and has to be a text; /l/14 is a number, and has to be a text; /l/2 is a number, and has to be a text; /l/3 is a number, and has to be a text; /l/4 is a number, and has to be a text; and 5 more",
		`{"i": 1, "l": [` + strings.Repeat("1,", 5000) + `1]}`:       "and many more",
		`{"i": 1, "d": "` + strings.Repeat("a", 65537) + `"}`:        "/d has more than 65536 bytes of text; to allow more, declare maxLength",
		`{"i": 1, "d": {"a": [` + list(1001) + `]}}`:                 "/d/a/0 has more than 1000 elements; to allow more, declare maxItems",
		`{"i": 1, "l": [` + strings.Repeat(words, 60) + `"secret"]}`: "/l has more than 1000 elements; to allow more, declare maxItems",
		`{"i": 1, "many": ` + list(2001) + `}`:                       "/many has 2001 elements, and 2000 are the most",
		`{"i": 1, "m": {` + properties(1001) + `}}`:                  "/m has more than 1000 properties; to allow more, declare maxProperties",
	} {
		_, err := s.Decode([]byte(raw))
		var violation *ViolationError
		if !errors.As(err, &violation) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || len(err.Error()) > 3*maxMessage {
			t.Errorf("%.80s: %v, not %q", raw, err, want)
		}
	}
	for _, raw := range []string{
		`{"i": 1, "d": "` + strings.Repeat("a", 65536) + `", "few": [1, 2]}`, `{"i": 1, "long": "` + strings.Repeat("a", 100_000) + `"}`,
		`{"i": 1, "many": ` + list(2000) + `}`, `{"i": 1, "d": ` + list(1000) + `, "m": {` + properties(1000) + `}}`,
	} {
		if _, err := s.Decode([]byte(raw)); err != nil {
			t.Errorf("%.80s: %v", raw, err)
		}
	}
}

// The names, numbers and patterns in a message are the schema's.
func TestViolationsOfEachKeyword(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2000)
	for _, c := range []struct{ schema, raw, want string }{
		{`{"required": ["a", "b", "c"]}`, `{"b": 1}`, `it lacks "a" and "c", which are required`},
		{`{"required": ["a", "b", "c", "d", "e", "f", "g"]}`, `{}`, `it lacks "a", "b", "c", "d", "e" and 2 more, which are required`},
		{`{"required": ["` + long + `"]}`, `{}`, `it lacks "` + long[:30] + `…", which is required`},
		{`{"dependentRequired": {"a": ["b"]}}`, `{"a": 1}`, `it lacks "b", which is required`},
		{`{"properties": {"o": {"properties": {"n": {"type": ["string", "null"]}}}}}`, `{"o": {"n": 1}}`, `/o/n is a number, and has to be null or a text`},
		{`{"anyOf": [{"type": "string"}, {"type": "integer"}]}`, `[]`, `it is a list, and has to be a whole number or a text`},
		{`{"oneOf": [{"type": "number"}, {"type": "integer"}]}`, `1`, `it satisfies more than one alternative of oneOf`},
		{`{"enum": ["secret"]}`, `"other secret"`, `it is none of the values that the schema allows`},
		{`{"pattern": "^[a-z]+$"}`, `"Secret"`, `it does not match the pattern "^[a-z]+$"`},
		{`{"minLength": 7}`, `"secret"`, `it has 6 characters, and 7 are the least`},
		{`{"minItems": 2}`, `["secret"]`, `it has 1 element, and 2 are the least`},
		{`{"minProperties": 2}`, `{"secret": 1}`, `it has 1 property, and 2 are the least`},
		{`{"maxProperties": 1}`, `{"secret": 1, "b": 2}`, `it has 2 properties, and 1 are the most`},
		{`{"uniqueItems": true}`, `["secret", "secret"]`, `it has an element twice`},
		{`{"maximum": 1.5}`, `77`, `it has to be at most 1.5`},
		{`{"exclusiveMinimum": 0}`, `-77`, `it has to be more than 0`},
		{`{"exclusiveMaximum": 0}`, `77`, `it has to be less than 0`},
		{`{"multipleOf": 2}`, `77`, `it has to be a multiple of 2`},
		{`{"not": {}}`, `"secret"`, `it is not allowed`},
	} {
		_, err := schema(t, "x/1", c.schema, nil).Decode([]byte(c.raw))
		if err == nil || err.Error() != c.want {
			t.Errorf("%.60s by %.60s: %v; want %s", c.raw, c.schema, err, c.want)
		}
	}
}

func properties(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"p%d": 0`, i)
	}
	return strings.Join(list, ",")
}

func TestNormalise(t *testing.T) {
	t.Parallel()
	s := schema(t, "x/1", `{"type": "object", "properties": {"n": {"type": "number"}, "i": {"type": "integer"}, "s": {"type": "string"}, "at": {"type": "string", "format": "date-time"}, "l": {"type": "array", "items": {"type": "string"}}}}`, nil)
	type result struct {
		N  float64   `json:"n"`
		I  uint8     `json:"i"`
		At time.Time `json:"at"`
		L  []string  `json:"l"`
	}
	at := time.Date(2024, 1, 15, 10, 30, 0, 0, time.UTC)
	want := map[string]any{"n": 1.0, "i": int64(2), "at": "2024-01-15T10:30:00Z", "l": []any{"a"}}
	plain := map[string]any{"n": 1, "i": 2.0, "at": "2024-01-15T10:30:00Z", "l": []any{"a"}}
	for _, v := range []any{
		result{1, 2, at, []string{"a"}}, &result{1, 2, at, []string{"a"}}, plain, map[string]any{"n": int64(1), "i": json.Number("2"), "at": at, "l": []string{"a"}},
		json.RawMessage(`{"n": 1, "i": 2, "at": "2024-01-15T10:30:00Z", "l": ["a"]}`),
	} {
		got, err := s.Normalise(v)
		if err != nil || !reflect.DeepEqual(got, any(want)) {
			t.Errorf("%#v is %#v, %v", v, got, err)
		}
	}
	if plain["n"] != 1 || plain["i"] != 2.0 {
		t.Error("the argument was changed")
	}
	if got, err := s.Normalise(map[string]any{"s": "a\xff"}); err != nil || got.(map[string]any)["s"] != "a\uFFFD" {
		t.Errorf("bytes that are no UTF-8: %q, %v", got, err)
	}
	loop := map[string]any{}
	loop["a"] = loop
	deep := any(1)
	for range 200 {
		deep = []any{deep}
	}
	big := make([]any, 0, 1000)
	for range 1000 {
		big = append(big, strings.Repeat("a", 60_000))
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{map[string]any{"n": math.NaN()}, "a number is not finite"},
		{map[string]any{"n": math.Inf(1)}, "a number is not finite"},
		{map[string]any{"n": func() {}}, "it cannot be encoded as JSON"},
		{struct{ N float64 }{math.NaN()}, "it cannot be encoded as JSON"},
		{loop, "it is nested more than 100 levels deep"},
		{deep, "it is nested more than 100 levels deep"},
		{big, "it has more than 1048576 bytes"},
		{map[string]any{"n": json.Number("1x")}, "it is no JSON"},
		{map[string]any{"n": json.Number("")}, "it is no JSON"},
		{map[string]any{"n": json.Number("1e5000")}, "a number has more digits"},
		{map[string]any{"n": "secret"}, "/n is a text, and has to be a number"},
		{json.RawMessage(`{"n": 1, "n": 2}`), "a key twice"},
		{nil, "it is null, and has to be an object"},
	} {
		_, err := s.Normalise(c.v)
		var violation *ViolationError
		if !errors.As(err, &violation) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60v: %v, not %q", c.v, err, c.want)
		}
	}
}

// TestUntypedObjects shows that a schema with properties and without a type admits what JSON Schema says it
// does, and that such a value reads as an object without fields.
func TestUntypedObjects(t *testing.T) {
	t.Parallel()
	s := schema(t, "x/1", `{"properties": {"a": {"type": "string"}, "o": {"properties": {"b": {"type": "integer"}}}}}`, nil)
	scope, err := NewScope(Variable{"payload", s})
	if err != nil {
		t.Fatal(err)
	}
	p, err := scope.Compile(`payload.a == "" && payload.o.b == 0 && !has(payload.a) && payload.o.b + 1 == 1`, Bool)
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{`{}`, `1`, `"a"`, `[1]`, `null`, `{"o": 1}`, `{"o": {}}`, `{"o": null}`} {
		v, err := s.Decode([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := p.Bool(&Values{Vars: []any{v}}); err != nil || !b {
			t.Errorf("%s: %v, %v", raw, b, err)
		}
	}
}

// TestEffort shows that values whose alternatives double with each level are refused, and others are not.
func TestEffort(t *testing.T) {
	t.Parallel()
	union := schema(t, "union/1", `{"oneOf": [
		{"type": "object", "required": ["kind"], "properties": {"kind": {"const": "and"}, "of": {"$ref": "#"}}},
		{"type": "object", "required": ["kind"], "properties": {"kind": {"const": "or"}, "of": {"$ref": "#"}}}
	]}`, nil)
	nest := func(n int) []byte {
		return []byte(strings.Repeat(`{"kind": "or", "of": `, n) + `{"kind": "and"}` + strings.Repeat("}", n))
	}
	if _, err := union.Decode(nest(6)); err != nil {
		t.Error(err)
	}
	start := time.Now()
	if _, err := union.Decode(nest(40)); err == nil || !strings.Contains(err.Error(), "takes too long") {
		t.Errorf("2⁴⁰ alternatives: %v", err)
	}
	if took := time.Since(start); took > slow {
		t.Errorf("it took %s", took)
	}
	for _, c := range []struct{ schema, payload string }{
		{`{"patternProperties": {"(a|b)+c{900}$": {"type": "string"}}, "maxProperties": 100000}`, `{` + properties(50_000) + `}`},
		{`{"additionalProperties": {"pattern": "(a?){300}b"}}`, `{"a": "` + strings.Repeat("a", 60_000) + `", "b": "` + strings.Repeat("a", 60_000) + `"}`},
		{`{"propertyNames": {"pattern": "(a?){300}b"}}`, `{"` + strings.Repeat("a", 900_000) + `": 1}`},
		{`{"items": {"enum": [` + strings.Repeat("[0,0,0,0,0,0,0,0],", 4000) + `1]}, "maxItems": 100000}`, `[` + strings.Repeat(`[0,0,0,0,0,0,0,1],`, 900) + `1]`},
	} {
		s := schema(t, "slow/1", c.schema, nil)
		start := time.Now()
		_, err := s.Decode([]byte(c.payload))
		if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "takes too long") || took > slow {
			t.Errorf("%.60s: %v in %s", c.schema, err, took)
		}
	}
	if s := schema(t, "unique/1", `{"uniqueItems": true, "maxItems": 200000}`, nil); true {
		if _, err := s.Decode([]byte(`[` + strings.Repeat(`1,`, 100_000) + `1]`)); err == nil || !strings.Contains(err.Error(), "has an element twice") {
			t.Error(err)
		}
	}
}
