package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	manyKeys := func(last string) string {
		var b strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		return "{" + b.String() + `"` + last + `":0}`
	}
	for _, tc := range []struct {
		name, text string
		kind       Kind // 0: accepted
		offset     int
	}{
		{"scalar", ` "a" `, 0, 0},
		{"everything", `{"a":[1,-0.5e+10,true,false,null,"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é"],"":{}}`, 0, 0},
		{"same key in siblings", `[{"a":1},{"a":{"a":1}}]`, 0, 0},
		{"many keys", manyKeys("other"), 0, 0},
		{"empty", ``, Syntax, 0},
		{"only space", " \n", Syntax, 2},
		{"not JSON", `hello`, Syntax, 0},
		{"byte order mark", "\ufeff{}", Syntax, 0},
		{"unterminated object", `{"a":1`, Syntax, 6},
		{"unterminated string", `"abc`, Syntax, 4},
		{"unterminated escape", `"abc\`, Syntax, 5},
		{"trailing comma", `[1,]`, Syntax, 3},
		{"single quotes", `{'a':1}`, Syntax, 1},
		{"leading zero", `01`, TrailingData, 1},
		{"bare minus", `-`, Syntax, 1},
		{"no fraction", `1.`, Syntax, 2},
		{"no exponent", `1e+`, Syntax, 3},
		{"NaN", `NaN`, Syntax, 0},
		{"comment", `{}//`, TrailingData, 2},
		{"second value", `{} {}`, TrailingData, 3},
		{"nul after the value", "{}\x00", TrailingData, 2},
		{"raw control character", "\"a\nb\"", Syntax, 2},
		{"unknown escape", `"\x"`, Syntax, 1},
		{"short unicode escape", `"\u12"`, Syntax, 1},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", InvalidUTF8, 6},
		{"UTF-8 of a surrogate", "\"\xed\xa0\x80\"", InvalidUTF8, 1},
		{"overlong UTF-8", "\"\xc0\xaf\"", InvalidUTF8, 1},
		{"duplicate key", `{"a":1,"b":2,"a":3}`, DuplicateKey, 13},
		{"duplicate after unescaping", `{"a":1,"\u0061":2}`, DuplicateKey, 7},
		{"duplicate in depth", `{"x":[{"a":1,"a":1}]}`, DuplicateKey, 13},
		{"duplicate behind a nested object", `{"a":{"b":1},"a":1}`, DuplicateKey, 13},
		{"duplicate among many", manyKeys("k17"), DuplicateKey, len(manyKeys("k17")) - len(`"k17":0}`)},
		{"lone high surrogate", `"\ud800"`, LoneSurrogate, 1},
		{"lone low surrogate", `"\udc00"`, LoneSurrogate, 1},
		{"high surrogate twice", `"\ud800\ud800"`, LoneSurrogate, 1},
		{"lone surrogate in a key", `{"\ud800":1}`, LoneSurrogate, 2},
		{"too deep by one", strings.Repeat("[", 65) + strings.Repeat("]", 65), TooDeep, 64},
		{"10,000 deep", strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000), TooDeep, 64 * 5},
		{"as deep as allowed", strings.Repeat("[", 64) + strings.Repeat("]", 64), 0, 0},
		{"long number", "1" + strings.Repeat("0", MaxNumberLength), NumberTooLong, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := Check([]byte(tc.text), 64)
			if tc.kind == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			var fault *Error
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want %v", err, tc.kind)
			}
			if fault.Kind != tc.kind || fault.Offset != tc.offset {
				t.Fatalf("got %v at %d, want %v at %d", fault.Kind, fault.Offset, tc.kind, tc.offset)
			}
			if !strings.Contains(err.Error(), tc.kind.String()) {
				t.Fatalf("message %q does not name %v", err, tc.kind)
			}
		})
	}
}

func TestMembersAreExact(t *testing.T) {
	t.Parallel()
	raw := []byte(` { "a" : [1,{"b":"]}"}] ,"A":"x\"y", "\u00e9": -1.5e3 , "n":null,"o":{}} `)
	if err := Check(raw, 8); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for k, v := range Members(raw) {
		got[k] = string(v)
	}
	want := map[string]string{"a": `[1,{"b":"]}"}]`, "A": `"x\"y"`, "é": "-1.5e3", "n": "null", "o": "{}"}
	if !maps.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for range Members([]byte(`[{"a":1}]`)) {
		t.Fatal("an array has no members")
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	same := [][]string{
		{`1`, `1.0`, `1e0`, `10e-1`, `0.1E1`, ` 1 `},
		{`0`, `-0`, `0.000`, `0e99999999999999999999`},
		{`1200`, `12e2`, `1.2e3`, `1.2e+03`},
		{`1e100000000000000000000`, `10e99999999999999999999`},
		{`9007199254740993`, `9007199254740993.0`},
		{`9007199254740992`},
		{`0.1`, `1e-1`},
		{`-5`, `-5.0`},
		{`"é"`, `"\u00e9"`, `"\u00E9"`},
		{`"😀"`, `"\ud83d\ude00"`},
		{`"a/b\n"`, `"a\/b\u000a"`},
		{`{"a":1,"b":[true,null]}`, "{ \"b\" : [ true , null ],\n\"\\u0061\":1.0 }"},
		{`{"b":[{"y":1,"x":2}],"a":{}}`, `{"a":{},"b":[{"x":2,"y":1}]}`},
		{`["1"]`}, {`[1]`}, {`[1,2]`}, {`[2,1]`}, {`[[1],2]`}, {`[]`}, {`{}`}, {`""`}, {`null`},
	}
	owner := map[string]int{}
	for i, group := range same {
		for _, text := range group {
			if err := Check([]byte(text), 8); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			canonical := string(AppendCanonical(nil, []byte(text)))
			if j, known := owner[canonical]; known && j != i {
				t.Errorf("%s has the canonical text %s of another value", text, canonical)
			} else if !known && text != group[0] {
				t.Errorf("%s became %s, unlike %s", text, canonical, group[0])
			}
			owner[canonical] = i
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `[1,-0.5e+10,true,null]`, `{"a":{"b":"\ud83d\ude00"}}`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"", `1 2`, `[[[[[[]]]]]]`,
	} {
		f.Add([]byte(seed))
	}
	beyond := []Kind{InvalidUTF8, DuplicateKey, TooDeep, LoneSurrogate, NumberTooLong}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := Check(raw, 16)
		var fault *Error
		if err != nil {
			if !errors.As(err, &fault) || fault.Offset < 0 || fault.Offset > len(raw) {
				t.Fatalf("bad error %#v", err)
			}
			if json.Valid(raw) && !slices.Contains(beyond, fault.Kind) {
				t.Fatalf("refused valid JSON: %v", err)
			}
			for range Members(raw) { // arbitrary, but no panic and no hang
			}
			AppendCanonical(nil, raw)
			return
		}
		if !json.Valid(raw) {
			t.Fatal("accepted what encoding/json refuses")
		}
		canonical := AppendCanonical(nil, raw)
		if err := Check(canonical, 16); err != nil {
			t.Fatalf("canonical text %s: %v", canonical, err)
		}
		if again := AppendCanonical(nil, canonical); string(again) != string(canonical) {
			t.Fatalf("canonical text changes: %s, then %s", canonical, again)
		}
		checkMembers(t, raw)
	})
}

// What is compact, encoding/json compacts to itself; and what it does so, is, but for what [IsCompact] names.
func FuzzIsCompact(f *testing.F) {
	for _, seed := range []string{``, `{}`, ` {}`, `{} `, `{"a": 1}`, `{"a":1,"a":2}`, `["a b",1e5,-0]`, "\"\xff\"", `"\ud800"`, `[`, `1 2`, `{"a":[true,false,null,"\u0020"]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var b bytes.Buffer
		same := json.Compact(&b, raw) == nil && bytes.Equal(b.Bytes(), raw)
		switch compact := IsCompact(raw); {
		case compact && !same:
			t.Error("compact, but not for encoding/json")
		case !compact && same:
			var fault *Error
			s := scanner{raw: raw, compact: true}
			if errors.As(s.value(100), &fault); fault == nil || !slices.Contains([]Kind{TooDeep, LoneSurrogate, NumberTooLong}, fault.Kind) {
				t.Errorf("not compact: %v", fault)
			}
		}
	})
}

// checkMembers compares Members and String with encoding/json.
func checkMembers(t *testing.T, raw []byte) {
	t.Helper()
	var want map[string]json.RawMessage
	if !IsObject(raw) || json.Unmarshal(raw, &want) != nil {
		return
	}
	got := 0
	for k, v := range Members(raw) {
		got++
		if string(v) != string(want[k]) {
			t.Fatalf("member %q: got %s, want %s", k, v, want[k])
		}
		var s string
		if text, ok := String(v); ok && (json.Unmarshal(v, &s) != nil || s != text) {
			t.Fatalf("string %s: got %q, want %q", v, text, s)
		}
	}
	if got != len(want) {
		t.Fatalf("%d members, want %d", got, len(want))
	}
}

var body = []byte(`{"eventId":"evt_123","eventType":"shipment.status.updated","occurredAt":"2026-02-26T12:00:00Z","source":"courier-x","idempotencyKey":"courier-x:evt_123",` +
	`"payload":{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery","raw":{"notes":"` + strings.Repeat("left at the depot; ", 30) + `","scans":[{"at":"2026-02-26T11:00:00Z","place":"Lisboa","weight":1.25},` +
	`{"at":"2026-02-26T11:30:00Z","place":"Sacavém","weight":1.25}]}}}`)

func BenchmarkCheck(b *testing.B) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Check(body, 64); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIsCompact(b *testing.B) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if !IsCompact(body) {
			b.Fatal("it is")
		}
	}
}

func BenchmarkCheckTooDeep(b *testing.B) {
	deep := []byte(strings.Repeat(`[`, 10_000))
	b.ReportAllocs()
	for b.Loop() {
		if err := Check(deep, 64); err == nil {
			b.Fatal("accepted")
		}
	}
}

func BenchmarkAppendCanonical(b *testing.B) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = AppendCanonical(dst[:0], body)
	}
}
