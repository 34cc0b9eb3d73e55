package condition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a number: comparing them exactly, as the validator does, takes time and memory that grow with
// the exponent.
const maxDigits, maxExponent = 1000, 1000

// boundedNumber reports whether a JSON number is within the bounds.
func boundedNumber(number string) bool {
	mantissa, exponent, found := strings.Cut(number, "e")
	if !found {
		mantissa, exponent, found = strings.Cut(number, "E")
	}
	if !found {
		return len(mantissa) <= maxDigits
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && len(mantissa) <= maxDigits && n <= maxExponent && n >= -maxExponent
}

// jsonReader reads JSON as [encoding/json] does into an any, with numbers as [json.Number]. It
// refuses what means different things to different readers: an object with a key twice.
type jsonReader struct {
	text []byte
	at   int
}

var errNoJSON = errors.New("it is no JSON")

// parse reads one value, and nothing after it.
func parse(text []byte) (any, error) {
	if len(text) > maxValueBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxValueBytes)
	}
	p := jsonReader{text: text}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(p.text) {
		return nil, errors.New("something follows the value")
	}
	return v, nil
}

// space goes to the next byte that is none.
func (p *jsonReader) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next skips space, and takes a byte.
func (p *jsonReader) next() byte {
	p.space()
	if p.at == len(p.text) {
		return 0
	}
	p.at++
	return p.text[p.at-1]
}

func (p *jsonReader) value(depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxValueDepth)
	}
	switch c := p.next(); c {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		return p.quoted()
	case 't':
		return true, p.word("true")
	case 'f':
		return false, p.word("false")
	case 'n':
		return nil, p.word("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		p.at--
		return p.number()
	}
	return nil, errNoJSON
}

// word goes on with a word whose first letter has been taken.
func (p *jsonReader) word(word string) error {
	rest := word[1:]
	if !bytes.HasPrefix(p.text[p.at:], []byte(rest)) {
		return errNoJSON
	}
	p.at += len(rest)
	return nil
}

func (p *jsonReader) object(depth int) (any, error) {
	object := map[string]any{}
	c := p.next()
	if c == '}' {
		return object, nil
	}
	for {
		if c != '"' {
			return nil, errNoJSON
		}
		key, err := p.quoted()
		if err != nil {
			return nil, err
		}
		if p.next() != ':' {
			return nil, errNoJSON
		}
		if _, double := object[key]; double {
			return nil, errors.New("an object has a key twice")
		}
		if object[key], err = p.value(depth + 1); err != nil {
			return nil, err
		}
		switch p.next() {
		case '}':
			return object, nil
		case ',':
			c = p.next()
		default:
			return nil, errNoJSON
		}
	}
}

func (p *jsonReader) array(depth int) (any, error) {
	array := []any{}
	if p.next() == ']' {
		return array, nil
	}
	p.at--
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		array = append(array, v)
		switch p.next() {
		case ']':
			return array, nil
		case ',':
		default:
			return nil, errNoJSON
		}
	}
}

// quoted reads a text after its first quotation mark. One with an escape or bytes that are no UTF-8
// is left to [encoding/json].
func (p *jsonReader) quoted() (string, error) {
	start, plain := p.at, true
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			raw := p.text[start:p.at]
			p.at++
			if plain || utf8.Valid(raw) && bytes.IndexByte(raw, '\\') < 0 {
				return string(raw), nil
			}
			var s string
			if json.Unmarshal(p.text[start-1:p.at], &s) != nil {
				return "", errNoJSON
			}
			return s, nil
		case c == '\\':
			plain = false
			p.at++ // what it escapes ends nothing
		case c < ' ':
			return "", errNoJSON
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return "", errNoJSON
}

func (p *jsonReader) digits() bool {
	start := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	return p.at > start
}

// is takes one of some bytes.
func (p *jsonReader) is(one string) bool {
	if p.at < len(p.text) && strings.IndexByte(one, p.text[p.at]) >= 0 {
		p.at++
		return true
	}
	return false
}

func (p *jsonReader) number() (any, error) {
	start := p.at
	p.is("-")
	if !p.is("0") && !p.digits() {
		return nil, errNoJSON
	}
	if p.is(".") && !p.digits() {
		return nil, errNoJSON
	}
	if p.is("eE") {
		p.is("+-")
		if !p.digits() {
			return nil, errNoJSON
		}
	}
	number := string(p.text[start:p.at])
	if !boundedNumber(number) {
		return nil, errors.New("a number has more digits or a larger exponent than can be checked")
	}
	return json.Number(number), nil
}
