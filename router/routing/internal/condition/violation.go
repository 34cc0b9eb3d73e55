package condition

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// ViolationError says what is wrong with a value: the places at fault as JSON pointers, ten at most, with what
// the schema wants there. It has no values, only their types and sizes.
type ViolationError struct{ text string }

// Error implements error.
func (e *ViolationError) Error() string { return e.text }

func violation(format string, args ...any) error {
	return &ViolationError{text: fmt.Sprintf(format, args...)}
}

// Bounds of a message, and of what is collected for it.
const maxMessage, maxFaults, maxPointerBytes, maxDistinctFaults = 500, 10, 100, 1000

// faultsOf says what is wrong at which places, with no value of theirs: the library's own texts have values in them.
func faultsOf(e *jsonschema.ValidationError, whole string) []string {
	distinct, types := map[string]bool{}, map[string]*kind.Type{}
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			if len(distinct)+len(types) > maxDistinctFaults {
				return
			}
			walk(cause)
		}
		if len(e.Causes) > 0 || e.ErrorKind == nil {
			return
		}
		at := pointer(e.InstanceLocation, whole)
		k, is := e.ErrorKind.(*kind.Type)
		switch known := types[at]; {
		case !is:
			distinct[at+" "+breach(e.ErrorKind)] = true
		case known == nil:
			types[at] = &kind.Type{Got: k.Got, Want: slices.Clone(k.Want)}
		default: // by another alternative
			known.Want = append(known.Want, k.Want...)
		}
	}
	walk(e)
	for at, k := range types {
		distinct[at+" "+wrongType(k)] = true
	}
	list := slices.SortedFunc(maps.Keys(distinct), func(a, b string) int { // the validator's order is that of a map
		if first, second := strings.HasPrefix(a, whole+" "), strings.HasPrefix(b, whole+" "); first != second {
			return map[bool]int{true: -1, false: 1}[first] // or "it" would be the place before
		}
		return strings.Compare(a, b)
	})
	switch more := len(list) - maxFaults; {
	case len(list) > maxDistinctFaults:
		list = append(list[:maxFaults], "and many more")
	case more > 0:
		list = append(list[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return list
}

// breach is what is wrong with a value. The names and numbers in it are the schema's.
func breach(k jsonschema.ErrorKind) string {
	number := func(r *big.Rat) string {
		if r.IsInt() {
			return clip(r.RatString(), maxNumberBytes)
		}
		f, _ := r.Float64()
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	switch k := k.(type) {
	case *kind.Required:
		return lacks(k.Missing)
	case *kind.DependentRequired:
		return lacks(k.Missing)
	case *kind.Dependency:
		return lacks(k.Missing)
	case *kind.AdditionalProperties:
		return counted(len(k.Properties), "has %d property that the schema does not name", "has %d properties that the schema does not name")
	case *kind.Enum, *kind.Const:
		return "is none of the values that the schema allows"
	case *kind.Format:
		return "is not in the format " + clip(k.Want, maxNumberBytes)
	case *kind.Pattern:
		return fmt.Sprintf("does not match the pattern %q", clip(k.Want, maxPointerBytes))
	case *kind.MinLength:
		return counted(k.Got, "has %d character", "has %d characters") + fmt.Sprintf(", and %d are the least", k.Want)
	case *kind.MaxLength:
		return counted(k.Got, "has %d character", "has %d characters") + fmt.Sprintf(", and %d are the most", k.Want)
	case *kind.MinItems:
		return counted(k.Got, "has %d element", "has %d elements") + fmt.Sprintf(", and %d are the least", k.Want)
	case *kind.MaxItems:
		return counted(k.Got, "has %d element", "has %d elements") + fmt.Sprintf(", and %d are the most", k.Want)
	case *kind.MinProperties:
		return counted(k.Got, "has %d property", "has %d properties") + fmt.Sprintf(", and %d are the least", k.Want)
	case *kind.MaxProperties:
		return counted(k.Got, "has %d property", "has %d properties") + fmt.Sprintf(", and %d are the most", k.Want)
	case *kind.UniqueItems:
		return "has an element twice"
	case *kind.Minimum:
		return "has to be at least " + number(k.Want)
	case *kind.Maximum:
		return "has to be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "has to be more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "has to be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "has to be a multiple of " + number(k.Want)
	case *kind.OneOf:
		return "satisfies more than one alternative of oneOf"
	}
	if path := k.KeywordPath(); len(path) > 0 {
		return "does not satisfy " + path[0]
	}
	return "is not allowed" // by a schema that is false
}

const maxNumberBytes, maxLacking = 30, 5

func counted(n int, one, more string) string {
	if n == 1 {
		return fmt.Sprintf(one, n)
	}
	return fmt.Sprintf(more, n)
}

func lacks(missing []string) string {
	var names []string
	for _, name := range missing[:min(len(missing), maxLacking)] {
		names = append(names, fmt.Sprintf("%q", clip(name, maxNumberBytes)))
	}
	switch more := len(missing) - len(names); {
	case more > 0:
		return fmt.Sprintf("lacks %s and %d more, which are required", strings.Join(names, ", "), more)
	case len(names) > 1:
		return fmt.Sprintf("lacks %s and %s, which are required", strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
	}
	return fmt.Sprintf("lacks %s, which is required", strings.Join(names, ""))
}

var jsonTypes = map[string]string{
	"object": "an object", "array": "a list", "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null",
}

func wrongType(k *kind.Type) string {
	var want []string
	for _, name := range slices.Sorted(slices.Values(k.Want)) {
		if word := jsonTypes[name]; !slices.Contains(want, word) {
			want = append(want, word)
		}
	}
	return fmt.Sprintf("is %s, and has to be %s", jsonTypes[k.Got], strings.Join(want, " or "))
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
