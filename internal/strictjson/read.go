package strictjson

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Members yields the members of the object in raw, in the text's order: the
// unescaped key and the value's bytes, which alias raw. It yields nothing where
// raw is no object. raw must have passed [Check]: of other texts it yields
// something arbitrary, without a panic.
func Members(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		members(raw, func(key, value []byte) bool { return yield(string(key), value) })
	}
}

// Find returns the values of the members of the object in raw that have the given names: as
// [Members] yields them, nil for those that are missing.
func Find(raw []byte, names []string) [][]byte {
	values := make([][]byte, len(names))
	members(raw, func(key, value []byte) bool {
		for i, name := range names {
			if string(key) == name {
				values[i] = value
				break
			}
		}
		return true
	})
	return values
}

func members(raw []byte, yield func(key, value []byte) bool) {
	s := scanner{raw: raw}
	if s.space(); !s.take('{') {
		return
	}
	for {
		s.space()
		start := s.pos
		if !s.take('"') {
			return
		}
		s.pos = skipText(raw, start)
		key := unescaped(raw[start:s.pos])
		if s.space(); !s.take(':') {
			return
		}
		s.space()
		start = s.pos
		s.pos = skip(raw, start)
		if !yield(key, raw[start:s.pos]) {
			return
		}
		if s.space(); !s.take(',') {
			return
		}
	}
}

// String returns the string that the value in raw stands for. ok is false where
// raw is no string. raw must have passed [Check].
func String(raw []byte) (value string, ok bool) {
	raw = trim(raw)
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	return unescape(raw), true
}

// IsNull reports whether the value in raw is null.
func IsNull(raw []byte) bool {
	return string(trim(raw)) == "null"
}

// IsObject reports whether the value in raw is an object. raw must have passed
// [Check].
func IsObject(raw []byte) bool {
	raw = trim(raw)
	return len(raw) > 0 && raw[0] == '{'
}

// trim returns raw without the white space around it.
func trim(raw []byte) []byte {
	for len(raw) > 0 && isSpace(raw[0]) {
		raw = raw[1:]
	}
	for len(raw) > 0 && isSpace(raw[len(raw)-1]) {
		raw = raw[:len(raw)-1]
	}
	return raw
}

// unescape returns the string of a literal, quotes included. The literal is
// valid, or the result arbitrary.
func unescape(literal []byte) string { return string(unescaped(literal)) }

// unescaped is unescape, and aliases the literal where that has no escapes.
func unescaped(literal []byte) []byte {
	if len(literal) < 2 {
		return nil
	}
	if bytes.IndexByte(literal, '\\') < 0 {
		return literal[1 : len(literal)-1]
	}
	var s string
	if err := json.Unmarshal(bytes.Clone(literal), &s); err != nil { // a copy, or all that is scanned would be on the heap
		return nil // unreachable for what Check let through
	}
	return []byte(s)
}

// skip returns the index after the value that starts at raw[at].
func skip(raw []byte, at int) int {
	depth := 0
	for i := at; i < len(raw); {
		switch c := raw[i]; c {
		case '"':
			i = skipText(raw, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i // the end of the object around a scalar
			}
			depth--
			i++
		case ',':
			if depth == 0 {
				return i
			}
			i++
			continue
		default:
			if depth == 0 && isSpace(c) {
				return i
			}
			i++
			continue
		}
		if depth == 0 {
			return i
		}
	}
	return len(raw)
}

// skipText returns the index after the string literal that starts at raw[at].
func skipText(raw []byte, at int) int {
	for i := at + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}
