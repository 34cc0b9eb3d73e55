package routefile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// laughs are lists of lists by alias: few lines, and ten to the power of n nodes.
func laughs(n int) string {
	var b strings.Builder
	b.WriteString("routing: 1\nlookups:\n  l0: {key: &a0 x}\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "  l%d: {key: x, on_error: default, default: &a%d [%s]}\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return b.String()
}

// nested is a file with lists in lists, so many levels in all.
func nested(levels int) string {
	const around = 3 // the file, lookups, a
	return "routing: 1\nlookups: {a: {key: x, on_error: default, default: " + strings.Repeat("[", levels-around) + strings.Repeat("]", levels-around) + "}}"
}

// million is a file with a million keys and values, and some more.
func million(more int) string {
	const others = 13 // from the file itself to the outer list
	return "routing: 1\nlookups: {a: {key: x, on_error: default, default: [&a [" + strings.Repeat("x,", 999) + "]," +
		strings.Repeat("*a,", 998) + strings.Repeat("x,", 1000-others+more) + "]}}"
}

const tooMany = "the file has more than 1000000 keys and values, those that aliases repeat included"

func TestBounds(t *testing.T) {
	t.Parallel()
	deep := "nested more than 64 levels deep, aliases included"
	tag := "a text that begins with ! has to be in quotes; YAML's tags are not supported"
	odd := " is a number for some programs and a text for others: write it as JSON does, without _, leading zeros and prefixes, or put it in quotes"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"an empty file":                {"", []string{"the file is empty"}},
		"only a comment":               {"# routing: 1\n", []string{"the file is empty"}},
		"only a document's beginning":  {"---\n", []string{"the file is empty"}},
		"only a byte order mark":       {"\uFEFF", []string{"the file is empty"}},
		"null":                         {"null", []string{"1:1: a routing file is a mapping that begins with `routing: 1`"}},
		"two documents":                {"routing: 1\n---\nrouting: 1\n", []string{"2:1: a second document begins here: a file has one"}},
		"a second one that is no YAML": {"routing: 1\n---\na: \"b\n", []string{"3:1: not valid YAML: the quote that begins here does not end"}},
		"too many bytes":               {"routing: 1\n#" + strings.Repeat("x", MaxBytes), []string{fmt.Sprintf("the file has %d bytes, more than %d", MaxBytes+12, MaxBytes)}},
		"UTF-16":                       {"\xFF\xFEr\x00", []string{"the file is UTF-16: save it as UTF-8"}},
		"a mark of UTF-16 otherwise":   {"\xFE\xFF\x00r", []string{"the file is UTF-16: save it as UTF-8"}},
		"invalid UTF-8":                {"routing: 1 # \xC3\n", []string{"1:14: this is not UTF-8: save the file as UTF-8"}},
		"half a surrogate pair":        {"é: \xED\xA0\x80", []string{"1:4: this is not UTF-8: save the file as UTF-8"}},
		"NUL":                          {"routing: 1\n  \x00", []string{"2:3: a control character, U+0000: remove it, or write it as an escape in double quotes"}},
		"DEL":                          {"routing: 1 # \x7F", []string{"1:14: a control character, U+007F: remove it, or write it as an escape in double quotes"}},
		"a carriage return":            {"routing: 1\rmatrix: {}", []string{"1:11: a carriage return without a line feed: save the file with the line ends of Unix or Windows"}},
		"a line separator":             {"routing: 1 # \u2028", []string{"1:14: a line separator, U+2028, which not everybody takes for one: remove it, or write it as an escape in double quotes"}},
		"a paragraph separator":        {"routing: 1 # \u2029", []string{"1:14: a line separator, U+2029, which not everybody takes for one: remove it, or write it as an escape in double quotes"}},
		"a next line":                  {"routing: 1 # \u0085", []string{"1:14: a line separator, U+0085, which not everybody takes for one: remove it, or write it as an escape in double quotes"}},
		"a mark in the middle":         {"routing: 1 # \uFEFF", []string{"1:14: U+FEFF is no character of a text: remove it"}},
		"billion laughs":               {laughs(9), []string{tooMany}},
		"too many nodes":               {million(1), []string{tooMany}},
		"far too many nodes":           {"routing: 1\nmatrix: {a: [" + strings.Repeat(",", 2*maxNodes) + "]}", []string{tooMany}},
		"far too many in blocks":       {"routing: 1\nmatrix: {a:\n" + strings.Repeat("-\n", 2*maxNodes) + "]}", []string{tooMany}},
		"nested too deeply":            {nested(maxDepth + 1), []string{"2:112: " + deep}},
		"nested too deeply by alias": {
			"routing: 1\nlookups:\n  a: {key: x, on_error: default, default: &a " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}\n" +
				"  b: {key: x, on_error: default, default: " + strings.Repeat("[", 22) + "*a" + strings.Repeat("]", 22) + "}\n",
			[]string{"4:65: " + deep},
		},
		"an alias in itself":        {"routing: 1\nmatrix: {a: &a [b, *a]}", []string{"2:20: the alias `*a` stands in what it refers to: it would have no end"}},
		"a mapping in itself":       {"routing: 1\nmatrix: &m\n  a: {b: *m}", []string{"3:10: the alias `*m` stands in what it refers to: it would have no end"}},
		"a merge key":               {"routing: 1\nconsumers: {a: &a {ordered: true}, b: {<<: *a}}", []string{"2:40: merge keys (<<) are not supported: write the keys out, or refer to the whole mapping by its anchor"}},
		"a number as a key":         {"routing: 1\nmatrix: {1.5: []}", []string{"2:10: the key `1.5` is no text: put it in quotes"}},
		"null as a key":             {"routing: 1\nmatrix: {~: []}", []string{"2:10: the key `~` is no text: put it in quotes"}},
		"nothing as a key":          {"routing: 1\nmatrix:\n  ?\n  : []", []string{"3:4: a key is missing before this colon"}},
		"a list as a key":           {"routing: 1\nmatrix: {[a]: []}", []string{"2:10: a key has to be a text, and this is a list or a mapping: put it in quotes"}},
		"an odd number as a key":    {"routing: 1\nevents: {a: {schemas: {01: {}}}}", []string{"2:24: `01`" + odd}},
		"a custom tag":              {"routing: 1\nmatrix: {a: !b [c]}", []string{"2:13: " + tag}},
		"binary":                    {"routing: 1\nmatrix: {a: [!!binary aGk=]}", []string{"2:14: " + tag}},
		"a standard tag":            {"routing: !!int 1", []string{"1:10: " + tag}},
		"a tag without a name":      {"routing: 1\nevents: {a: {critical: ! payload.x}}", []string{"2:24: " + tag}},
		"such a tag after an alias": {"routing: 1\nevents: {a: {critical: &a ! payload.x}}", []string{"2:24: " + tag}},
		"a tag of a key":            {"routing: 1\nmatrix: {! a: []}", []string{"2:10: a key that begins with ! has to be in quotes; YAML's tags are not supported"}},
		"infinity":                  {"routing: .inf", []string{"1:10: `.inf` is no number that can be used: it is not finite"}},
		"no number":                 {"routing: .NaN", []string{"1:10: `.NaN` is no number that can be used: it is not finite"}},
		"minus infinity":            {"routing: -.Inf", []string{"1:10: `-.Inf` is no number that can be used: it is not finite"}},
		"a huge exponent":           {"routing: 1e999", []string{"1:10: `1e999` is too large for a number: put it in quotes if it is a text"}},
		"a huge integer":            {"routing: 1" + strings.Repeat("0", 400), []string{"1:10: `1" + strings.Repeat("0", 59) + "…` is too large for a number: put it in quotes if it is a text"}},
		"many digits":               {"routing: 1." + strings.Repeat("0", 400), []string{"1:10: `1." + strings.Repeat("0", 58) + "…` is too large for a number: put it in quotes if it is a text"}},
		"a tiny exponent":           {"routing: 1e-9999999999999999999", []string{"1:10: `1e-9999999999999999999` is too small for a number: put it in quotes if it is a text"}},
		"a small exponent":          {"routing: 1e-401", []string{"1:10: `1e-401` is too small for a number: put it in quotes if it is a text"}},
		"octal":                     {"routing: 010", []string{"1:10: `010`" + odd}},
		"hexadecimal":               {"routing: 0x1", []string{"1:10: `0x1`" + odd}},
		"underscores":               {"routing: 1_000", []string{"1:10: `1_000`" + odd}},
		"a plus sign":               {"routing: +1", []string{"1:10: `+1`" + odd}},
		"no zero before the point":  {"routing: .5", []string{"1:10: `.5`" + odd}},
		"no digit after the point":  {"routing: 1.", []string{"1:10: `1.`" + odd}},
		"binary digits":             {"routing: 0b1", []string{"1:10: `0b1`" + odd}},
		"octal digits":              {"routing: 0o7", []string{"1:10: `0o7`" + odd}},
		"a long text":               {"routing: 1\nmatrix: {a: [" + strings.Repeat("b", maxScalar+1) + "]}", []string{"2:14: a text of 65537 bytes: 65536 are the most"}},
		"a long key":                {"routing: 1\nmatrix: {? " + strings.Repeat("b", maxScalar+1) + " : []}", []string{"2:12: a text of 65537 bytes: 65536 are the most"}},
		"a long expression":         {"routing: 1\nevents: {a: {critical: '" + strings.Repeat("b", 4097) + "'}}", []string{"2:24: `critical` has 4097 characters: 4096 are the most"}},
		"an expression of many bytes": {
			"routing: 1\nevents: {a: {critical: '" + strings.Repeat("é", 2049) + "'}}", []string{"2:24: `critical` has 4098 bytes: 4096 are the most"},
		},
	} {
		faulty(t, name, c.text, c.want...)
	}
}

// What is just within the bounds is read.
func TestWithinBounds(t *testing.T) {
	t.Parallel()
	const comment = "\n#"
	for name, text := range map[string]string{
		"bytes":             "routing: 1" + comment + strings.Repeat("x", MaxBytes-len("routing: 1"+comment)),
		"depth":             nested(maxDepth),
		"a byte order mark": "\uFEFFrouting: 1",
		"line ends":         "routing: 1\r\nmatrix: {}\r\n",
		"nodes":             million(0),
		"aliases":           laughs(5),
		"a text":            "routing: 1\nlookups: {a: {key: x, on_error: default, default: '" + strings.Repeat("b", maxScalar) + "'}}",
		"an expression":     "routing: 1\nevents: {a: {critical: '" + strings.Repeat("b", maxExpression) + "'}}",
		"a document's end":  "---\nrouting: 1\n...\n",
		"an alias as a key": "routing: 1\nevents: {&a b: {}}\nmatrix: {*a : []}",
		"an aliased value":  "routing: 1\nmatrix: {a: &a [b, c], d: *a}",
		"a quoted merge":    "routing: 1\nmatrix: {'<<': []}",
	} {
		if _, err := Parse("routes.yaml", []byte(text), nil); err != nil {
			t.Errorf("%s: %.500v", name, err)
		}
	}
}

// The worst of texts take seconds at most, and messages are bounded.
func TestHostileTextsAreBounded(t *testing.T) {
	numbered := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"wrong values":       "routing: 1\nmatrix: {" + numbered(20_000, "a%d: 1,") + "}",
		"wrong elements":     "routing: 1\nactions: {a: {b: [" + strings.Repeat("1,", 40_000) + "]}}",
		"unknown keys":       "routing: 1\nconsumers: {a: {" + numbered(20_000, "concurrenc%d: 1,") + "}}",
		"keys twice":         "routing: 1\nmatrix: {" + strings.Repeat("a: 1,", 40_000) + "}",
		"many keys twice":    "routing: 1\nmatrix: {" + numbered(20_000, "a%d: 1,") + numbered(20_000, "a%d: 1,") + "}",
		"payload schemas":    "routing: 1\nevents: {a: {schema: {anyOf: [" + strings.Repeat("{type: x},", 5_000) + "]}}}",
		"deep schemas":       "routing: 1\nevents: {a: {schema: " + strings.Repeat("{not: ", 58) + "3" + strings.Repeat("}", 58) + "}}",
		"long lists":         "routing: 1\nmatrix: {a: [" + numbered(30_000, "b%d,") + "]}",
		"expressions":        "routing: 1\nevents: {" + numbered(10_000, "é%d: {critical: 'é''x'},") + "}",
		"faulty expressions": "routing: 1\nevents: {" + numbered(10_000, "é%d: {critical: ' '},") + "}",
		"flow lists":         strings.Repeat("[", 9_999),
		"comments":           "routing: 1\n" + strings.Repeat("# x\n\n", 100_000),
		"quotes":             "routing: 1\na: \"" + strings.Repeat("x\n", 200_000),
		"brackets":           "routing: 1\na: [" + strings.Repeat("x\n", 200_000),
		"keys without end":   "routing: 1\n" + strings.Repeat("? ", 9_000),
		"digits":             "routing: " + strings.Repeat("1", 1_000_000),
		"cycles":             "routing: 1\nmatrix: &a {" + numbered(20_000, "b%d: *a,") + "}",
		"anchors":            "routing: 1\nmatrix: {" + numbered(20_000, "b%d: &a [x],") + "}",
	} {
		runtime.GC()
		begin := time.Now()
		_, err := Parse("routes.yaml", []byte(text), nil)
		took := time.Since(begin)
		t.Logf("%-20s %8d bytes %v", name, len(text), took)
		if limit := 30 * time.Second; took > limit { // hundreds of times what is usual for files of this size
			t.Errorf("%s: it took %v", name, took)
		}
		if err != nil && len(err.Error()) > 64<<10 {
			t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
		}
	}
}
