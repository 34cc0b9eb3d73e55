package routefile

import (
	"bytes"
	"fmt"
	"sort"
	"unicode/utf8"
)

// MaxBytes bounds a routing file.
const MaxBytes = 8 << 20

// source is the text of a file, with its lines.
type source struct {
	text  []byte
	lines []int         // where each begins
	marks map[int][]int // by line, for long ones: where each markEvery-th character begins
}

// A line is walked to find a character in it. If it is longer than maxWalk bytes, from a mark on: a file may be one line.
const maxWalk, markEvery = 4096, 1024

func newSource(text []byte) *source {
	s := &source{text: text, lines: make([]int, 1, 1+bytes.Count(text, []byte{'\n'})), marks: map[int][]int{}}
	for i, c := range text {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// line returns where a line begins and where the next one does.
func (s *source) line(n int) (from, to int) {
	if n >= len(s.lines) {
		return s.lines[n-1], len(s.text)
	}
	return s.lines[n-1], s.lines[n]
}

// offset returns where the character at a place begins.
func (s *source) offset(p Pos) int {
	if p.Line < 1 || p.Line > len(s.lines) {
		return len(s.text)
	}
	at, end := s.line(p.Line)
	skip := max(p.Column-1, 0)
	if end-at > maxWalk {
		marks := s.marksOf(p.Line)
		i := min(skip/markEvery, len(marks)-1)
		at, skip = marks[i], skip-i*markEvery
	}
	for ; skip > 0 && at < end; skip-- {
		_, size := utf8.DecodeRune(s.text[at:end])
		at += size
	}
	return at
}

func (s *source) marksOf(line int) []int {
	if marks, known := s.marks[line]; known {
		return marks
	}
	at, end := s.line(line)
	var marks []int
	for n := 0; at < end; n++ {
		if n%markEvery == 0 {
			marks = append(marks, at)
		}
		_, size := utf8.DecodeRune(s.text[at:end])
		at += size
	}
	s.marks[line] = marks
	return marks
}

// pos returns the place of what begins at an offset.
func (s *source) pos(offset int) Pos {
	line := sort.SearchInts(s.lines, offset+1)
	return Pos{line, utf8.RuneCount(s.text[s.lines[line-1]:offset]) + 1}
}

// start returns the place of the first character of a line that is no blank.
func (s *source) start(line int) Pos {
	from, to := s.line(line)
	text := s.text[from:to]
	return Pos{line, 1 + len(text) - len(bytes.TrimLeft(text, " \t"))}
}

var byteOrderMark = []byte("\uFEFF")

// readText returns a text of at most so many bytes, without its byte order mark. It refuses characters about which editors,
// YAML 1.1 and YAML 1.2 do not agree whether they end a line, or are there at all.
func readText(text []byte, limit int) (*source, *Fault) {
	switch {
	case len(text) > limit:
		return nil, &Fault{Message: fmt.Sprintf("the file has %d bytes, more than %d", len(text), limit)}
	case bytes.HasPrefix(text, []byte("\xFE\xFF")), bytes.HasPrefix(text, []byte("\xFF\xFE")):
		return nil, &Fault{Message: "the file is UTF-16: save it as UTF-8"}
	}
	text = bytes.TrimPrefix(text, byteOrderMark)
	for i := 0; i < len(text); {
		if c := text[i]; c >= ' ' && c < 0x7F || c == '\n' || c == '\t' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if what := refused(r, size, text[i+size:]); what != "" {
			return nil, &Fault{newSource(text).pos(i), what}
		}
		i += size
	}
	return newSource(text), nil
}

// refused says why a character cannot be there, or "".
func refused(r rune, size int, rest []byte) string {
	switch {
	case r == utf8.RuneError && size == 1:
		return "this is not UTF-8: save the file as UTF-8"
	case r == '\r' && (len(rest) == 0 || rest[0] != '\n'):
		return "a carriage return without a line feed: save the file with the line ends of Unix or Windows"
	case r == '\r':
		return ""
	case r < ' ', r >= 0x7F && r <= 0x9F && r != 0x85:
		return fmt.Sprintf("a control character, U+%04X: remove it, or write it as an escape in double quotes", r)
	case r == 0x85, r == 0x2028, r == 0x2029:
		return fmt.Sprintf("a line separator, U+%04X, which not everybody takes for one: remove it, or write it as an escape in double quotes", r)
	case r == 0xFEFF, r == 0xFFFE, r == 0xFFFF:
		return fmt.Sprintf("U+%04X is no character of a text: remove it", r)
	}
	return ""
}
