package condition

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// slow is far beyond what anything takes here, on a machine with other things to do.
const slow = 10 * time.Second

// FuzzCompile compiles any text, and evaluates what compiles.
func FuzzCompile(f *testing.F) {
	for _, text := range append(bombs(), expressions...) {
		f.Add(text)
	}
	scope, s := caseScope(f)
	values := caseValues(f, s)
	f.Fuzz(func(t *testing.T, text string) {
		start := time.Now()
		p, err := scope.Compile(text, Bool)
		if took := time.Since(start); took > slow {
			t.Fatalf("compiling %q took %s", text, took)
		}
		var faults *CompileError
		if err != nil {
			if !errors.As(err, &faults) || len(faults.Faults) == 0 || faults.Faults[0].Line < 1 || faults.Faults[0].Column < 1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		start = time.Now()
		b, err := p.Bool(values)
		if took := time.Since(start); took > slow/10 {
			t.Fatalf("evaluating %q took %s", text, took)
		}
		agree(t, scope, text, values, b, err)
		if again, err := scope.Compile(p.Key(), Bool); err != nil || again.Key() != p.Key() {
			t.Fatalf("%q has the key %q, which is not its own key: %v", text, p.Key(), err)
		}
		if value, is := p.Constant(); is && err == nil && value != b {
			t.Fatalf("%q is always %v, but it was %v", text, value, b)
		}
		if _, err := json.Marshal(p.Explain(values, everything)); err != nil {
			t.Fatalf("explaining %q: %v", text, err)
		}
	})
}

// FuzzDecode compiles any schema, and decodes any payload with it.
func FuzzDecode(f *testing.F) {
	for _, schema := range append(hostileSchemas(), caseSchema, actorSchema, `{}`, `true`, `{"type": ["array", "null"], "items": {"type": "integer"}}`) {
		if len(schema) < 1000 {
			f.Add([]byte(schema), []byte(casePayload))
		}
	}
	f.Add([]byte(`{"type":"integer"}`), []byte(`1e3`))
	f.Add([]byte(`{}`), []byte(`10.0000000000000001`))
	f.Add([]byte(`{"anyOf":[{"const":"a"},{"type":"object","properties":{"a":{"$ref":"#"}}}]}`), []byte(`{"a":{"a":"a"}}`))
	f.Fuzz(func(t *testing.T, schema, payload []byte) {
		var doc any
		d := json.NewDecoder(bytes.NewReader(schema))
		d.UseNumber()
		if d.Decode(&doc) != nil {
			return
		}
		start := time.Now()
		s, err := CompileSchema("fuzz/1", doc, map[string]any{"actor": decoded(t, `{"type": "object", "properties": {"id": {"type": "string"}}}`)})
		if took := time.Since(start); took > slow {
			t.Fatalf("compiling %q took %s", schema, took)
		}
		if err != nil {
			return
		}
		start = time.Now()
		v, err := s.Decode(payload)
		if took := time.Since(start); took > slow {
			t.Fatalf("decoding %q by %q took %s", payload, schema, took)
		}
		var violation *ViolationError
		if err != nil {
			if !errors.As(err, &violation) {
				t.Fatalf("%q by %q: %v", payload, schema, err)
			}
			return
		}
		conforms(t, v, s.root, "")
		if again, err := s.Normalise(v); err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("%q by %q is %v, and %v, %v again", payload, schema, v, again, err)
		}
		if _, err := NewScope(Variable{"payload", s}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzParse compares with encoding/json.
func FuzzParse(f *testing.F) {
	for _, text := range []string{casePayload, `"\ud800"`, "\"\xff\"", `-0`, `01`, `1.`, `1e`, `[1,]`, `{"a":1,}`, `"a` + "\n" + `"`, `{"\u0061":1,"a":2}`, ` null `, `nulll`, `"\"`, `[]]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parse(text)
		var want any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		wantErr := d.Decode(&want)
		if wantErr == nil && !json.Valid(text) {
			wantErr = errNoJSON // something follows
		}
		switch {
		case err == nil && wantErr != nil:
			t.Fatalf("%q is no JSON: %v", text, wantErr)
		case err == nil && !reflect.DeepEqual(got, want):
			t.Fatalf("%q is %#v, not %#v", text, want, got)
		case err != nil && wantErr == nil && (errors.Is(err, errNoJSON) || strings.Contains(err.Error(), "follows")):
			t.Fatalf("%q is JSON: %v", text, err)
		}
	})
}
