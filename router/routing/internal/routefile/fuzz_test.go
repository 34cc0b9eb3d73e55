package routefile

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// Whatever a file has, there is a file or an *Error, soon; places are in the text, and messages bounded.
func FuzzParse(f *testing.F) {
	complete, err := os.ReadFile("testdata/complete.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(complete, []byte(`{"type": "object"}`))
	for _, text := range []string{
		"", "routing: 1\n", laughs(3), laughs(9), nested(60), nested(70), million(0)[:5000],
		strings.Repeat("[", 500), strings.Repeat("- ", 500), strings.Repeat("? ", 500), strings.Repeat("{a: ", 500),
		"routing: 1\nmatrix: {a: &a [b, *a]}", "routing: 1\nmatrix: &m\n  a: {b: *m}", "routing: 1\n<<: *x\n",
		"routing: 1\nmatrix: {a: !!binary " + strings.Repeat("aGk=", 100) + "}", "routing: 1e999999999", "routing: " + strings.Repeat("9", 1000),
		"routing: 1\nevents: {a: {critical: '" + strings.Repeat("x", 5000) + "'}}", "\xFF\xFE\x00", "\uFEFFrouting: 1", "routing: 1\r\nmatrix: {}\r\n",
		"routing: 1\nevents:\n  é: {critical: \"a == \\\"b\\\" \\\n   && \\u00e9\"}\n  b: {critical: 'it''s\n\n  x'}\n  c:\n    critical: >+\n      a\n\n       b\n      c\n\n",
		"routing: 1\nevents: {a: {critical: ! x, schema: {$ref: '#', type: [1], properties: {a: true, b: 3}}}}",
		"routing: 1\nevents: {a: {schemas: {1: a.json, 2: ../b.yaml, 3: c.yml, 4: d}}}\nlookups: {x: {key: {a: b}, schema: a.json}}\n",
		"a: # b\n\n\n# c\n  - d # e\n # f\n- g\n", "%YAML 1.1\n--- !x\n...\n", "? \n: \n- \n", "a: |2-\n   b\n  c\n",
	} {
		f.Add([]byte(text), []byte("properties: {a: &a {not: *a}}\n"))
	}
	f.Fuzz(func(t *testing.T, text, file []byte) {
		begin := time.Now()
		parsed, err := Parse("routes.yaml", text, func(string) ([]byte, error) { return file, nil })
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %v for %d bytes", took, len(text)+len(file))
		}
		var faulty *Error
		switch {
		case err == nil:
			checkPlaces(t, parsed, text)
		case parsed != nil || !errors.As(err, &faulty) || len(faulty.Faults) == 0:
			t.Errorf("got %v and %v", parsed, err)
		case len(err.Error()) > 64<<10:
			t.Errorf("a message of %d bytes", len(err.Error()))
		default:
			for _, fault := range faulty.Faults {
				inText(t, fault.Pos, text)
			}
		}
	})
}

// checkPlaces checks that each character of the expressions has a place.
func checkPlaces(t *testing.T, f *File, text []byte) {
	t.Helper()
	check := func(e *Expr) {
		line, column := 1, 1
		for e != nil {
			at := strings.SplitAfterN(e.Text, "\n", line+1)
			if len(at) < line {
				return
			}
			if column > len([]rune(at[line-1])) {
				line, column = line+1, 1
				continue
			}
			inText(t, e.At(line, column), text)
			column++
		}
	}
	for _, e := range f.Events {
		check(e.Critical)
	}
	for _, c := range f.Cells {
		for _, r := range c.Rules {
			check(r.When)
		}
	}
	for _, m := range f.Modifiers {
		check(m.When)
	}
	for _, l := range f.Lookups {
		for _, k := range l.Keys {
			check(&k.Expr)
		}
	}
}

func inText(t *testing.T, at Pos, text []byte) {
	t.Helper()
	if at == (Pos{}) {
		return
	}
	lines := strings.Split(strings.TrimPrefix(string(text), "\uFEFF"), "\n")
	if at.Line < 1 || at.Line > len(lines) || at.Column < 1 || at.Column > len([]rune(lines[at.Line-1]))+1 {
		t.Errorf("%s is nowhere in\n%q", at, text)
	}
}
