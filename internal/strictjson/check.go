package strictjson

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
	"unicode/utf8"
)

const (
	// MaxNumberLength bounds a number's literal, in bytes: nothing measurable
	// needs more, and arithmetic on longer ones is a way to burn a reader's time.
	MaxNumberLength = 1000

	// deepest bounds the scanner's recursion, whatever the caller allows.
	deepest = 10_000
	// linearKeys is how many keys of an object are compared one by one before
	// a map is worth its allocation.
	linearKeys = 16
)

// Check reports whether raw is exactly one JSON value (RFC 8259) on which all
// readers agree: valid UTF-8, no byte order mark, no duplicate keys (compared
// after unescaping), no escapes of lone surrogates, no number literal beyond
// [MaxNumberLength], nothing but white space around it. maxDepth bounds the
// nesting of objects and arrays: 1 allows a flat object; it is at most 10,000.
//
// The error is an [*Error] that names the first fault. Time and memory are
// linear in len(raw), and constant once the nesting is too deep.
func Check(raw []byte, maxDepth int) error {
	if !utf8.Valid(raw) {
		return &Error{Kind: InvalidUTF8, Offset: invalidAt(raw)}
	}
	stack, _ := stacks.Get().(*keyStack)
	defer func() {
		clear(stack[:])
		stacks.Put(stack)
	}()
	s := scanner{raw: raw, keys: stack[:0]}
	if err := s.value(min(maxDepth, deepest)); err != nil {
		return err
	}
	if s.space(); s.pos < len(raw) {
		return &Error{Kind: TrailingData, Offset: s.pos}
	}
	return nil
}

// keyStack has room for the keys of most values.
type keyStack [2 * linearKeys][]byte

var stacks = sync.Pool{New: func() any { return new(keyStack) }}

// IsCompact reports whether raw is one JSON value without white space between its tokens, so that
// [json.Compact] would write what it reads. For a value of more than 100 levels, with escapes of
// lone surrogates or with a long number it does not find out, and reports false. Unlike [Check], it takes
// keys that repeat and bytes that are not UTF-8, as encoding/json does.
func IsCompact(raw []byte) bool {
	const levels = 100
	s := scanner{raw: raw, compact: true}
	return s.value(levels) == nil && s.pos == len(raw)
}

func invalidAt(raw []byte) int {
	for i := 0; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(raw)
}

type scanner struct {
	raw []byte
	pos int
	// keys is a stack: the keys of all open objects, outermost first.
	keys [][]byte
	// compact: white space is a fault, and keys may repeat.
	compact bool
}

// value scans one value; depth is how many more levels it may open.
func (s *scanner) value(depth int) error {
	s.space()
	if s.pos == len(s.raw) {
		return s.fault(Syntax, "unexpected end")
	}
	switch c := s.raw[s.pos]; c {
	case '{':
		if depth <= 0 {
			return s.fault(TooDeep, "")
		}
		return s.object(depth - 1)
	case '[':
		if depth <= 0 {
			return s.fault(TooDeep, "")
		}
		return s.array(depth - 1)
	case '"':
		_, err := s.text()
		return err
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if c == '-' || isDigit(c) {
			return s.number()
		}
		return s.fault(Syntax, "expected a value")
	}
}

func (s *scanner) object(depth int) error {
	s.pos++
	first := len(s.keys)
	defer func() { s.keys = s.keys[:first] }()
	var seen map[string]struct{}
	if s.space(); s.take('}') {
		return nil
	}
	for {
		s.space()
		if s.pos == len(s.raw) || s.raw[s.pos] != '"' {
			return s.fault(Syntax, "expected a key")
		}
		start := s.pos
		escaped, err := s.text()
		if err != nil {
			return err
		}
		if !s.compact {
			key := s.raw[start+1 : s.pos-1]
			if escaped {
				key = []byte(unescape(s.raw[start:s.pos]))
			}
			if s.duplicate(key, first, &seen) {
				return &Error{Kind: DuplicateKey, Offset: start, Detail: quote(key)}
			}
		}
		if s.space(); !s.take(':') {
			return s.fault(Syntax, "expected ':'")
		}
		if err := s.value(depth); err != nil {
			return err
		}
		s.space()
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.fault(Syntax, "expected ',' or '}'")
		}
	}
}

// duplicate remembers key and reports whether the object whose keys start at
// s.keys[first] has it already.
func (s *scanner) duplicate(key []byte, first int, seen *map[string]struct{}) bool {
	if *seen != nil {
		if _, ok := (*seen)[string(key)]; ok {
			return true
		}
		(*seen)[string(key)] = struct{}{}
		return false
	}
	for _, k := range s.keys[first:] {
		if bytes.Equal(k, key) {
			return true
		}
	}
	s.keys = append(s.keys, key)
	if len(s.keys)-first > linearKeys {
		*seen = make(map[string]struct{}, 4*linearKeys)
		for _, k := range s.keys[first:] {
			(*seen)[string(k)] = struct{}{}
		}
	}
	return false
}

func (s *scanner) array(depth int) error {
	s.pos++
	if s.space(); s.take(']') {
		return nil
	}
	for {
		if err := s.value(depth); err != nil {
			return err
		}
		s.space()
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.fault(Syntax, "expected ',' or ']'")
		}
	}
}

// plain holds the bytes that stand for themselves within a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// text scans the string literal at pos and reports whether it has escapes.
func (s *scanner) text() (escaped bool, err error) {
	s.pos++
	for {
		for s.pos < len(s.raw) && plain[s.raw[s.pos]] {
			s.pos++
		}
		if s.pos == len(s.raw) {
			return escaped, s.fault(Syntax, "unterminated string")
		}
		switch s.raw[s.pos] {
		case '"':
			s.pos++
			return escaped, nil
		case '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return escaped, err
			}
		default:
			return escaped, s.fault(Syntax, "control character in a string")
		}
	}
}

func (s *scanner) escape() error {
	if s.pos+1 == len(s.raw) {
		s.pos++
		return s.fault(Syntax, "unterminated string")
	}
	switch s.raw[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
	default:
		return s.fault(Syntax, "unknown escape")
	}
	unit, ok := hex4(s.raw, s.pos)
	if !ok {
		return s.fault(Syntax, "expected four hexadecimal digits after \\u")
	}
	switch {
	case unit < 0xd800 || unit > 0xdfff:
		s.pos += 6
		return nil
	case unit > 0xdbff:
		return s.fault(LoneSurrogate, "")
	}
	if low, ok := hex4(s.raw, s.pos+6); !ok || low < 0xdc00 || low > 0xdfff {
		return s.fault(LoneSurrogate, "")
	}
	s.pos += 12
	return nil
}

// hex4 reads the escape \uXXXX at raw[at:].
func hex4(raw []byte, at int) (unit rune, ok bool) {
	if len(raw) < at+6 || raw[at] != '\\' || raw[at+1] != 'u' {
		return 0, false
	}
	for _, c := range raw[at+2 : at+6] {
		unit <<= 4
		switch {
		case isDigit(c):
			unit |= rune(c - '0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			unit |= rune(c|0x20-'a') + 10
		default:
			return 0, false
		}
	}
	return unit, true
}

func (s *scanner) number() error {
	start := s.pos
	s.take('-')
	if !s.take('0') && !s.digits() {
		return s.fault(Syntax, "expected a digit")
	}
	if s.take('.') && !s.digits() {
		return s.fault(Syntax, "expected a digit after '.'")
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return s.fault(Syntax, "expected a digit in the exponent")
		}
	}
	if s.pos-start > MaxNumberLength {
		return &Error{Kind: NumberTooLong, Offset: start, Detail: fmt.Sprintf("more than %d bytes", MaxNumberLength)}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.raw) && isDigit(s.raw[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.raw[s.pos:], []byte(word)) {
		return s.fault(Syntax, "expected a value")
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) space() {
	for !s.compact && s.pos < len(s.raw) && isSpace(s.raw[s.pos]) {
		s.pos++
	}
}

func (s *scanner) take(c byte) bool {
	if s.pos < len(s.raw) && s.raw[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) fault(kind Kind, detail string) error {
	return &Error{Kind: kind, Offset: s.pos, Detail: detail}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// quote shows the beginning of a key in a message, printable whatever it holds.
func quote(key []byte) string {
	const most = 64
	if len(key) > most {
		return strconv.QuoteToASCII(string(key[:most])) + "…"
	}
	return strconv.QuoteToASCII(string(key))
}
