package eventlog

import (
	"bytes"
	"strconv"
	"unicode/utf16"

	"github.com/waybill-go/waybill/eventing"
)

// What JSONB can hold, and what comes back from it: it writes 1e9 as 1000000000, so that a
// document of 4 MB could come back with gigabytes. These bounds are well inside its own.
const (
	maxDigits   = 16_000 // of a number, written without an exponent
	maxExpanded = 2 * eventing.MaxEnvelopeBytes
	maxDepth    = 1_000
)

// fitsJSONB reports whether Postgres takes a document, which has to be valid JSON, as JSONB,
// and gives it back in a reasonable size. It does not take NUL characters, halves of surrogate
// pairs, nor numbers of any length.
func fitsJSONB(doc []byte) bool {
	depth, size := 0, len(doc)
	for i := 0; i < len(doc); {
		switch c := doc[i]; {
		case c == '"':
			n, ok := scanString(doc[i:])
			if !ok {
				return false
			}
			i += n
			continue
		case c == '-' || '0' <= c && c <= '9':
			n := numberLength(doc[i:])
			digits := plainDigits(doc[i : i+n])
			size += digits
			if digits > maxDigits || size > maxExpanded {
				return false
			}
			i += n
			continue
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
		i++
	}
	return true
}

// scanString returns the length of the string that a document begins with, and whether
// Postgres takes it.
func scanString(doc []byte) (n int, ok bool) {
	for i := 1; ; {
		switch doc[i] {
		case '"':
			return i + 1, true
		case '\\':
			if doc[i+1] != 'u' {
				i += 2
				continue
			}
			r := unit(doc[i+2:])
			i += 6
			switch {
			case r == 0:
				return 0, false
			case utf16.IsSurrogate(r):
				if !bytes.HasPrefix(doc[i:], []byte(`\u`)) || utf16.DecodeRune(r, unit(doc[i+2:])) == '\uFFFD' {
					return 0, false
				}
				i += 6
			}
		default:
			i++
		}
	}
}

// unit is the UTF-16 code unit that four hexadecimal digits say.
func unit(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 16) // the document is valid
	return rune(n)
}

func numberLength(doc []byte) int {
	n := bytes.IndexFunc(doc, func(r rune) bool {
		return (r < '0' || r > '9') && r != '+' && r != '-' && r != '.' && r != 'e' && r != 'E'
	})
	if n < 0 {
		return len(doc)
	}
	return n
}

// plainDigits is how many digits a number has at most, written without an exponent.
func plainDigits(number []byte) int {
	mantissa, exponent := number, 0
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		mantissa = number[:i]
		var err error
		if exponent, err = strconv.Atoi(string(number[i+1:])); err != nil {
			return maxDigits + 1 // more digits than an int counts
		}
	}
	if exponent < 0 {
		exponent = -exponent
	}
	if exponent > maxDigits { // also keeps the sum from overflowing
		return exponent
	}
	return len(mantissa) + exponent
}
