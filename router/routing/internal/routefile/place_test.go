package routefile

import (
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// An expression that aliases repeat is gone through once: it may be long, and the aliases many.
func TestPlacesAreFoundOnceForAllAliases(t *testing.T) {
	t.Parallel()
	f := parse(t, "routing: 1\nactions:\n  a:\n    c:\n      - when: &x \"a == \\\"b\\\"\"\n        do: x\n      - when: *x\n        do: y\n")
	first, second := f.Cells[0].Rules[0].When, f.Cells[0].Rules[1].When
	if len(first.spans) == 0 || len(second.spans) == 0 || &first.spans[0] != &second.spans[0] {
		t.Errorf("the places are %v and %v", first.spans, second.spans)
	}
}

// The place of a marked character, §, is that in the file, however the expression is written.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ written, text string }{
		"plain":                            {`a == §b`, "a == §b"},
		"plain, its first character":       {`§a == b`, "§a == b"},
		"plain, blanks":                    {"a  ==\t §b  ", "a  ==\t §b"},
		"plain, wide characters":           {`a == "äö漢😀" && §`, `a == "äö漢😀" && §`},
		"plain, two lines":                 {"a ==\n          §b", "a == §b"},
		"plain, blanks at line ends":       {"a ==  \n          c && \t\n          \t §b", "a == c && §b"},
		"plain, empty lines":               {"a ==\n\n\n          c\n         §b", "a ==\n\nc §b"},
		"plain, a comment after it":        {"a == §b # c", "a == §b"},
		"plain, an anchor":                 {"&x a == §b", "a == §b"},
		"plain, an anchor on its own line": {"&x # why\n          a == §b", "a == §b"},
		"single quotes":                    {`'a == §b'`, "a == §b"},
		"single quotes in them":            {`'a == ''c'' && ''''§b'`, "a == 'c' && ''§b"},
		"single quotes first":              {`'''§b'`, "'§b"},
		"single, two lines":                {"'a ==\n          §b'", "a == §b"},
		"single, blanks at the ends":       {"'  a == §b  '", "  a == §b  "},
		"single, an empty line":            {"'a ''  \n\n      ''c''\n          §b'", "a '\n'c' §b"},
		"double quotes":                    {`"a == §b"`, "a == §b"},
		"double, escapes":                  {`"a == \"c\" && \x41\u00e9\U0001F600\t\\§b"`, "a == \"c\" && Aé😀\t\\§b"},
		"double, an escaped line end":      {`"a ==\n§b"`, "a ==\n§b"},
		"double, the mark escaped":         {`"a == \u00a7b"`, "a == §b"},
		"double, two lines":                {"\"a ==\n          §b\"", "a == §b"},
		"double, a line end that is none":  {"\"a == \\\n          §b\"", "a == §b"},
		"double, and an empty line":        {"\"a == \\\n\n          §b\"", "a == \n§b"},
		"double, an escaped blank":         {"\"a ==\n          \\  §b\"", "a ==   §b"},
		"double, empty lines":              {"\"a ==  \n\n\n      §b\"", "a ==\n\n§b"},
		"literal":                          {"|\n          a == §b", "a == §b\n"},
		"literal, a later line":            {"|\n          a\n            == §b\n", "a\n  == §b\n"},
		"literal, empty lines":             {"|\n\n          a ==\n\n   \n          §b\n\n", "\na ==\n\n\n§b\n"},
		"literal, stripped":                {"|- # why\n          a ==\n          §b\n", "a ==\n§b"},
		"literal, kept":                    {"|+\n          a ==\n          §b\n\n", "a ==\n§b\n\n\n"},
		"literal, an indentation":          {"|1\n            a ==\n         §b\n", "   a ==\n§b\n"},
		"literal, an anchor":               {"&x |\n          a == §b", "a == §b\n"},
		"folded":                           {">\n          a == §b\n", "a == §b\n"},
		"folded, a later line":             {">\n          a\n          ==\n          §b\n", "a == §b\n"},
		"folded, empty lines":              {">-\n          a\n\n          ==\n\n\n          §b\n", "a\n==\n\n§b"},
		"folded, lines that are not":       {">\n          a\n            ==\n            c\n          &&\n          §b\n", "a\n  ==\n  c\n&& §b\n"},
		"folded, kept":                     {">+\n          a ==\n          §b\n", "a == §b\n\n"},
		"folded, empty lines first":        {">\n\n\n          a ==\n          §b\n", "\n\na == §b\n"},
	} {
		for _, end := range []string{"\n", "\r\n"} {
			text := "routing: 1\nactions:\n  é:\n    c:\n      - when: " + c.written + "\n        do: x\n"
			text = strings.ReplaceAll(text, "\n", end)
			f := parse(t, text)
			e := f.Cells[0].Rules[0].When
			if e.Text != c.text {
				t.Errorf("%s: the expression is %q, not %q", name, e.Text, c.text)
				continue
			}
			want := placeOf(text, "§")
			if name == "double, the mark escaped" {
				want = placeOf(text, `\u00a7`)
			}
			at := placeOf(e.Text, "§")
			if got := e.At(at.Line, at.Column); got != want {
				t.Errorf("%s, with line ends %q: §, at %s of the expression, is at %s, not %s: %+v", name, end, at, got, want, e)
			}
			if end := e.At(1, len([]rune(e.Text))+1); strings.Count(e.Text, "\n")+len(e.spans) == 0 && end.Column != e.Pos.Column+len([]rune(e.Text)) {
				t.Errorf("%s: the end is at %s", name, end)
			}
		}
	}
}

// placeOf returns the place of what is there once.
func placeOf(text, what string) Pos {
	before, _, _ := strings.Cut(text, what)
	return Pos{strings.Count(before, "\n") + 1, len([]rune(before[strings.LastIndex(before, "\n")+1:])) + 1}
}

// Whatever a YAML encoder makes of an expression, each character that stands in it as it is has its place.
func TestPlacesOfEncodedExpressions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "payload.x", "==", "'b'", `"c"`, "é😀", " ", "  ", "\n", "\n\n", "\\", "\t", "#", ": ", "- ", "&&", "!"}), 1, 40).Draw(t, "words")
		text := strings.Join(words, "")
		style := rapid.SampledFrom([]yaml.Style{0, yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle, yaml.LiteralStyle, yaml.FoldedStyle}).Draw(t, "style")
		if strings.TrimSpace(text) == "" {
			return
		}
		encoded, err := yaml.Marshal(map[string]any{"routing": 1, "events": map[string]any{"é": map[string]any{"critical": &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: style}}}})
		if err != nil {
			t.Fatal(err)
		}
		var read map[string]any
		if yaml.Unmarshal(encoded, &read) != nil {
			return // an encoder may write what it cannot read
		}
		f, err := Parse("routes.yaml", encoded, nil)
		if err != nil {
			t.Fatalf("%v of\n%s", err, encoded)
		}
		e := f.Events[0].Critical
		lines := strings.Split(string(encoded), "\n")
		line, column := 1, 1
		for _, r := range e.Text { // which may have other line ends at its end
			at := e.At(line, column)
			if column++; r == '\n' {
				line, column = line+1, 1
			}
			written := []rune(lines[at.Line-1])
			if r != '\n' && (at.Column > len(written)+1 || at.Column <= len(written) && written[at.Column-1] != r && written[at.Column-1] != '\\' && r != ' ') {
				t.Fatalf("%q at %s of\n%s", r, at, encoded)
			}
		}
	})
}

// The blank that joins two lines is at the end of the first.
func TestPlacesOfLineEnds(t *testing.T) {
	t.Parallel()
	f := parse(t, "routing: 1\nevents:\n  a: {critical: x ==\n    y}\n  b:\n    critical: >\n      x ==\n      y\n")
	for i, want := range []Pos{{3, 21}, {7, 11}} {
		e := f.Events[i].Critical
		if got := e.At(1, 5); got != want {
			t.Errorf("the blank of %q is at %s, not %s", e.Text, got, want)
		}
	}
}

// A literal needs no more than the column of its lines.
func TestPlacesOfLiterals(t *testing.T) {
	t.Parallel()
	e := parse(t, "routing: 1\nevents:\n  a:\n    critical: |\n       x ==\n         y\n").Events[0].Critical
	if e.Pos != (Pos{5, 8}) || e.Block != 8 || e.spans != nil {
		t.Errorf("got %+v", e)
	}
}

// An expression that an alias repeats has the place where it is written.
func TestPlacesOfAliases(t *testing.T) {
	t.Parallel()
	f := parse(t, "routing: 1\nevents:\n  a: {critical: &same 'x == §'}\n  b: {critical: *same}\n")
	for _, e := range f.Events {
		if got, want := e.Critical.At(1, 6), (Pos{3, 29}); got != want {
			t.Errorf("%s: § is at %s, not %s", e.Text, got, want)
		}
	}
}

// A file may be one line, and a long one.
func TestPlacesInLongLines(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"routing": 1, "events": {`)
	const events = 2000
	for i := range events {
		fmt.Fprintf(&b, `"é%d": {"critical": "a == §%d"}, `, i, i)
	}
	b.WriteString(`"last": {}}}`)
	f := parse(t, b.String())
	runes := []rune(b.String())
	for _, e := range f.Events[:events] {
		if at := e.Critical.At(1, 6); at.Line != 1 || runes[at.Column-1] != '§' {
			t.Fatalf("%s: at %s there is no §", e.Text, at)
		}
	}
}

// What a tracer does not understand has the place of its beginning.
func TestPlaceOfWhatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	src := newSource([]byte("a: 'b''c'\n"))
	e := src.expression(&yaml.Node{Kind: yaml.ScalarNode, Style: yaml.SingleQuotedStyle, Line: 1, Column: 4}, "something else")
	if want := (Pos{1, 4}); e.Pos != want || e.At(2, 7) != want {
		t.Errorf("it is at %s, and its second line at %s", e.Pos, e.At(2, 7))
	}
}
