package strictjson

import (
	"bytes"
	"math/big"
	"slices"
	"strconv"
)

// AppendCanonical appends the canonical text of the value in raw to dst: two
// texts get the same bytes if, and only if, they stand for the same value. Keys
// are sorted bytewise, strings lose needless escapes, white space goes, and
// numbers are compared as exact decimals of any size: 1, 1.0 and 1e0 are one
// number, 9007199254740993 and 9007199254740992 are two. raw must have passed
// [Check].
func AppendCanonical(dst, raw []byte) []byte {
	c := canonicaliser{scanner: scanner{raw: raw}, dst: dst}
	c.value()
	return c.dst
}

type canonicaliser struct {
	scanner
	dst []byte
}

// member is where the canonical text of an object's member stands in dst.
type member struct {
	key        []byte
	start, end int
}

func (c *canonicaliser) value() {
	c.space()
	if c.pos == len(c.raw) {
		return
	}
	start := c.pos
	switch c.raw[start] {
	case '{':
		c.object()
	case '[':
		c.array()
	case '"':
		c.pos = skipText(c.raw, start)
		c.text(c.raw[start:c.pos])
	case 't', 'f', 'n':
		c.pos = skip(c.raw, start)
		c.dst = append(c.dst, c.raw[start:c.pos]...)
	default:
		c.pos = skip(c.raw, start)
		c.dst = appendNumber(c.dst, c.raw[start:c.pos])
	}
}

func (c *canonicaliser) array() {
	c.pos++
	c.dst = append(c.dst, '[')
	for c.space(); c.pos < len(c.raw) && !c.take(']'); c.space() {
		if c.take(',') {
			c.dst = append(c.dst, ',')
			continue
		}
		before := c.pos
		c.value()
		c.progress(before)
	}
	c.dst = append(c.dst, ']')
}

func (c *canonicaliser) object() {
	c.pos++
	c.dst = append(c.dst, '{')
	first := len(c.dst)
	var few [8]member
	members := few[:0]
	for c.space(); c.pos < len(c.raw) && !c.take('}'); c.space() {
		if c.take(',') {
			continue
		}
		m := member{start: len(c.dst)}
		from := c.pos
		c.pos = skipText(c.raw, from)
		literal := c.raw[from:c.pos]
		m.key = unescaped(literal)
		c.text(literal)
		c.dst = append(c.dst, ':')
		c.space()
		c.take(':')
		c.value()
		c.dst = append(c.dst, ',')
		m.end = len(c.dst)
		members = append(members, m)
		c.progress(from)
	}
	byKey := func(a, b member) int { return bytes.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(members, byKey) {
		slices.SortFunc(members, byKey)
		unsorted := bytes.Clone(c.dst[first:])
		c.dst = c.dst[:first]
		for _, m := range members {
			c.dst = append(c.dst, unsorted[m.start-first:m.end-first]...)
		}
	}
	if len(members) > 0 {
		c.dst = c.dst[:len(c.dst)-1] // the last comma
	}
	c.dst = append(c.dst, '}')
}

// progress moves on by a byte if nothing has: a text that Check would refuse must not hang its reader.
func (c *canonicaliser) progress(before int) {
	if c.pos == before {
		c.pos++
	}
}

// text appends a string with the only escapes that JSON demands.
func (c *canonicaliser) text(literal []byte) {
	if bytes.IndexByte(literal, '\\') < 0 {
		c.dst = append(c.dst, literal...)
		return
	}
	const digits = "0123456789abcdef"
	c.dst = append(c.dst, '"')
	for _, b := range unescaped(literal) {
		switch {
		case b == '"' || b == '\\':
			c.dst = append(c.dst, '\\', b)
		case b < ' ':
			c.dst = append(c.dst, '\\', 'u', '0', '0', digits[b>>4], digits[b&0xf])
		default:
			c.dst = append(c.dst, b)
		}
	}
	c.dst = append(c.dst, '"')
}

// appendNumber appends the number as an integer without trailing zeros, times a
// power of ten: 1200 is 12e2, 0.5 is 5e-1, every zero is 0.
func appendNumber(dst, literal []byte) []byte {
	number, negative := bytes.CutPrefix(literal, []byte("-"))
	mantissa, exponent := number, ""
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		mantissa, exponent = number[:i], string(number[i+1:])
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	all := slices.Concat(whole, fraction)
	all = bytes.TrimLeft(all, "0")
	significant := bytes.TrimRight(all, "0")
	if len(significant) == 0 {
		return append(dst, '0')
	}
	if negative {
		dst = append(dst, '-')
	}
	dst = append(dst, significant...)
	shift := len(all) - len(significant) - len(fraction)
	if exp := addExponent(exponent, shift); exp != "0" {
		dst = append(dst, 'e')
		dst = append(dst, exp...)
	}
	return dst
}

// addExponent adds to an exponent that may be longer than an int.
func addExponent(exponent string, shift int) string {
	if len(exponent) <= 15 {
		n, err := strconv.Atoi(exponent)
		if exponent == "" || err == nil {
			return strconv.Itoa(n + shift)
		}
	}
	n, ok := new(big.Int).SetString(exponent, 10)
	if !ok {
		return exponent
	}
	return n.Add(n, big.NewInt(int64(shift))).String()
}
