package condition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// ViolationError says what is wrong with a value: the places at fault as JSON pointers with the
// schema's keyword, ten at most, and no values.
type ViolationError struct{ text string }

// Error implements error.
func (e *ViolationError) Error() string { return e.text }

func violation(format string, args ...any) error {
	return &ViolationError{text: fmt.Sprintf(format, args...)}
}

// Bounds of a message, and of what is collected for it.
const maxMessage, maxFaults, maxPointerBytes, maxDistinctFaults = 500, 10, 100, 1000

// faultsOf names the places at fault. Keywords, not the library's texts, which have values in them.
func faultsOf(e *jsonschema.ValidationError, whole string) []string {
	distinct := map[string]bool{}
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			if len(distinct) > maxDistinctFaults {
				return
			}
			walk(cause)
		}
		if len(e.Causes) > 0 || e.ErrorKind == nil {
			return
		}
		fault := pointer(e.InstanceLocation, whole)
		if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
			fault += " (" + path[0] + ")"
		} else {
			fault += " (not allowed)" // by a schema that is false
		}
		distinct[fault] = true
	}
	walk(e)
	list := slices.Sorted(maps.Keys(distinct)) // the validator's order is that of a map
	switch more := len(list) - maxFaults; {
	case len(list) > maxDistinctFaults:
		list = append(list[:maxFaults], "and many more")
	case more > 0:
		list = append(list[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return list
}

// pointer is an RFC 6901 JSON pointer, cut if it is long; of the whole value, what is given for it.
func pointer(tokens []string, whole string) string {
	if len(tokens) == 0 {
		return whole
	}
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(t))
		if b.Len() > maxPointerBytes {
			break
		}
	}
	return clip(b.String(), maxPointerBytes)
}

// clip cuts a long text between characters.
func clip(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	for bytes > 0 && !utf8.RuneStart(s[bytes]) {
		bytes--
	}
	return strings.ToValidUTF8(s[:bytes], "") + "…"
}
