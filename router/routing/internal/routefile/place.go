package routefile

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// span says where the characters of a text are in the file, from one of them to the next span.
type span struct {
	line, column int // in the text
	pos          Pos
}

func (s span) after(line, column int) bool {
	return s.line > line || s.line == line && s.column > column
}

func (s span) at(line, column int) Pos {
	if line > s.line {
		return s.pos
	}
	return Pos{s.pos.Line, s.pos.Column + column - s.column}
}

// tagged reports whether a scalar has the tag !, which the parser drops. In front of an
// expression somebody means "not" by it.
func (s *source) tagged(n *yaml.Node) bool {
	_, tagged := s.properties(n)
	return tagged
}

// properties passes the anchor and the tags in front of a scalar.
func (s *source) properties(n *yaml.Node) (c cursor, tagged bool) {
	c = s.cursor(Pos{n.Line, n.Column})
	for {
		begin := c.peek()
		if begin != '&' && begin != '!' {
			return c, tagged
		}
		tagged = tagged || begin == '!'
		for !strings.ContainsRune(" \t\n\x00,[]{}", c.peek()) {
			c.next()
		}
		c.blanks()
	}
}

// expression returns a scalar with the places of its characters.
func (s *source) expression(n *yaml.Node, text string) Expr {
	c, _ := s.properties(n)
	e := Expr{Text: text, Pos: c.pos}
	t := tracer{want: text}
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		t.block(c, n.Style&yaml.FoldedStyle != 0)
	case n.Style&yaml.DoubleQuotedStyle != 0:
		c.next()
		t.flow(c, '"')
	case n.Style&yaml.SingleQuotedStyle != 0:
		c.next()
		t.flow(c, '\'')
	default:
		t.flow(c, 0)
	}
	if t.text.String() != text || len(t.spans) == 0 { // what is not understood has the place of its beginning
		return e
	}
	e.Pos, e.Block = t.spans[0].pos, t.indent
	for _, at := range t.spans {
		if e.At(at.line, at.column) != at.pos {
			e.spans = t.spans
			break
		}
	}
	return e
}

// cursor walks through a text. A line end is one character, \n; the end of the text is 0.
type cursor struct {
	src    *source
	offset int
	pos    Pos
}

func (s *source) cursor(p Pos) cursor { return cursor{s, s.offset(p), p} }

func (c *cursor) peek() rune {
	rest := c.src.text[c.offset:]
	switch {
	case len(rest) == 0:
		return 0
	case rest[0] == '\r':
		return '\n'
	}
	r, _ := utf8.DecodeRune(rest)
	return r
}

func (c *cursor) next() rune {
	r := c.peek()
	switch r {
	case 0:
	case '\n':
		c.offset = len(c.src.text)
		if c.pos.Line < len(c.src.lines) {
			c.offset = c.src.lines[c.pos.Line]
		}
		c.pos = Pos{c.pos.Line + 1, 1}
	default:
		c.offset += utf8.RuneLen(r)
		c.pos.Column++
	}
	return r
}

// blanks passes blanks, line ends and comments.
func (c *cursor) blanks() {
	for {
		switch c.peek() {
		case ' ', '\t', '\n':
			c.next()
		case '#':
			for r := c.peek(); r != '\n' && r != 0; r = c.peek() {
				c.next()
			}
		default:
			return
		}
	}
}

// tracer goes through a scalar as a parser does, and notes where what it yields is from. The parser's result is known: it is
// what the tracer has to come to.
type tracer struct {
	want   string
	text   strings.Builder
	spans  []span
	indent int // of the lines of a literal: the column that they begin in

	next struct { // where the next character is expected
		line, column int
		pos          Pos
	}
}

// done reports whether nothing is wanted any more.
func (t *tracer) done() bool { return t.text.Len() >= len(t.want) }

// emit notes a character that is written at a place.
func (t *tracer) emit(r rune, at Pos) {
	if len(t.spans) == 0 {
		t.next.line, t.next.column = 1, 1
	}
	if len(t.spans) == 0 || t.next.pos != at {
		t.spans = append(t.spans, span{t.next.line, t.next.column, at})
	}
	t.text.WriteRune(r)
	t.next.column++
	t.next.pos = Pos{at.Line, at.Column + 1}
	if r == '\n' {
		t.next.line, t.next.column, t.next.pos = t.next.line+1, 1, Pos{}
	}
}

// flow traces a plain scalar, whose quote is 0, or a quoted one.
func (t *tracer) flow(c cursor, quote rune) {
	for !t.done() {
		at := c.pos
		switch r := c.peek(); {
		case r == 0:
			return
		case r == ' ' || r == '\t' || r == '\n':
			t.fold(&c, false)
		case r == '\'' && quote == '\'':
			c.next()
			if c.next() != '\'' {
				return
			}
			t.emit(r, at)
		case r == '\\' && quote == '"':
			t.escape(&c)
		default:
			c.next()
			t.emit(r, at)
		}
	}
}

// fold traces blanks: as they are within a line; one line end is a space, or nothing if it is escaped, and more are one fewer.
func (t *tracer) fold(c *cursor, escaped bool) {
	begin, ends := *c, 0
	for r := c.peek(); r == ' ' || r == '\t' || r == '\n'; r = c.peek() {
		if r == '\n' {
			if ends++; ends > 1 || escaped {
				t.emit('\n', c.pos)
			}
		}
		c.next()
	}
	switch {
	case escaped || ends > 1:
	case ends == 1:
		t.emit(' ', begin.pos)
	default:
		for begin.offset < c.offset {
			at := begin.pos
			t.emit(begin.next(), at)
		}
	}
}

// escape traces an escape in double quotes.
func (t *tracer) escape(c *cursor) {
	at := c.pos
	c.next()
	kind := c.next()
	if kind == '\n' {
		t.fold(c, true)
		return
	}
	for range map[rune]int{'x': 2, 'u': 4, 'U': 8}[kind] {
		c.next()
	}
	r, _ := utf8.DecodeRuneInString(t.want[t.text.Len():]) // what it stands for, the parser has found out
	t.emit(r, at)
}

// block traces a literal or a folded scalar.
func (t *tracer) block(c cursor, folded bool) {
	for r := c.peek(); r != '\n' && r != 0; r = c.peek() { // its header
		c.next()
	}
	c.next()
	indent := indentation(c, t.want)
	if !folded {
		t.indent = indent + 1
	}
	blank, first := false, true // of the line before
	for !t.done() && c.peek() != 0 {
		ends := emptyLines(&c, indent)
		for range indent {
			c.next()
		}
		if rest := t.want[t.text.Len():]; strings.Trim(rest, "\n") == "" { // the end, which is not folded
			t.join(ends, first, false)
			return
		}
		begins := c.peek() == ' ' || c.peek() == '\t'
		t.join(ends, first, folded && !blank && !begins)
		for r := c.peek(); !t.done() && r != '\n' && r != 0; r = c.peek() {
			at := c.pos
			t.emit(c.next(), at)
		}
		blank, first = begins, false
	}
}

// join traces what is between two lines of a block: their ends, or a space for one that is folded.
func (t *tracer) join(ends []Pos, first, folded bool) {
	if !first && folded {
		if len(ends) == 1 {
			t.emit(' ', ends[0])
		}
		ends = ends[1:]
	}
	for _, at := range ends {
		if !t.done() {
			t.emit('\n', at)
		}
	}
}

// emptyLines passes the end of a line, and the empty lines after it.
func emptyLines(c *cursor, indent int) (ends []Pos) {
	for {
		line := *c
		for n := 0; n < indent && line.peek() == ' '; n++ {
			line.next()
		}
		if line.peek() != '\n' {
			return ends
		}
		ends = append(ends, line.pos)
		line.next()
		*c = line
	}
}

// indentation returns by how much the lines of a block are indented, by comparing the first that has something in it with
// what became of it.
func indentation(c cursor, text string) int {
	spaces := 0
	for r := c.peek(); r == ' ' || r == '\n'; r = c.peek() {
		spaces++
		if r == '\n' {
			spaces = 0
		}
		c.next()
	}
	line := strings.TrimLeft(text, "\n")
	return max(0, spaces-(len(line)-len(strings.TrimLeft(line, " "))))
}
