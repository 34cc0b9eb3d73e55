package condition

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Decode parses JSON, validates it, and makes values for conditions of it: int64 where the schema
// says integer, float64 where it says number, and the rest as JSON; numbers of which the schema
// says nothing as [DecodeAny] has them. Properties that the schema does not name are kept.
//
// A text of which the schema does not say its maxLength has 64 KB at most, a list without maxItems 1,000
// elements, a map without maxProperties 1,000, and the whole 1 MB: conditions are bounded by that.
//
// The error is a [*ViolationError].
func (s *Schema) Decode(raw []byte) (any, error) {
	v, err := parse(raw)
	if err != nil {
		return nil, violation("%s", err)
	}
	return s.check(v)
}

// Normalise does the same for a value that is decoded already, such as a lookup's result. What is none of
// JSON's types goes through [encoding/json], as a struct does. The value is not changed.
func (s *Schema) Normalise(v any) (any, error) {
	own, err := own(v)
	if err != nil {
		return nil, violation("%s", err)
	}
	return s.check(own)
}

// DecodeAny parses JSON of which no schema says anything: whole numbers become int64, where they
// fit, and all others float64. The bounds are those of [Schema.Decode], and the error is a
// [*ViolationError].
func DecodeAny(raw []byte) (any, error) {
	v, err := parse(raw)
	if err != nil {
		return nil, violation("%s", err)
	}
	return new(normaliser).value(v, dynamic)
}

// check validates a value that nobody else has, and normalises it.
func (s *Schema) check(v any) (any, error) {
	if effort := (effort{left: maxEffort, weights: s.efforts}); !effort.enough(s.compiled, v) {
		return nil, violation("to validate it takes too long: it has too many values, or goes too deeply into alternatives")
	}
	if err := validate(s.compiled, v); err != nil {
		return nil, err
	}
	return new(normaliser).value(v, s.root)
}

func validate(s *jsonschema.Schema, v any) (err error) {
	defer func() { // of the library, for values that nobody has thought of
		if r := recover(); r != nil {
			err = violation("it cannot be checked")
		}
	}()
	var invalid *jsonschema.ValidationError
	switch err := s.Validate(v); {
	case errors.As(err, &invalid):
		return violation("%s", clip(strings.Join(faultsOf(invalid, "it"), "; "), 2*maxMessage))
	case err != nil:
		return violation("it cannot be checked")
	}
	return nil
}

// own copies a decoded value into one of JSON's types, with numbers as [json.Number].
func own(v any) (any, error) {
	size := 0
	c, err := copyOf(v, 0, &size)
	if !errors.Is(err, errNotPlain) {
		return c, err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, errors.New("it cannot be encoded as JSON") // whose message may have values in it
	}
	return parse(text)
}

var (
	errNotPlain = errors.New("it is none of JSON's types")
	errTooLarge = errors.New("it has more than " + strconv.Itoa(maxValueBytes) + " bytes")
	errTooDeep  = errors.New("it is nested more than " + strconv.Itoa(maxValueDepth) + " levels deep")
)

// copyOf adds to size what the value takes as JSON, about.
func copyOf(v any, depth int, size *int) (any, error) {
	const least = 2 // an element and its comma
	*size += least
	switch v := v.(type) {
	case string:
		*size += len(v)
	case json.Number:
		*size += len(v)
	}
	switch {
	case *size > maxValueBytes:
		return nil, errTooLarge
	case depth > maxValueDepth:
		return nil, errTooDeep
	}
	switch v := v.(type) {
	case nil, bool:
		return v, nil
	case string:
		return strings.ToValidUTF8(v, "\uFFFD"), nil
	case json.Number:
		p := jsonReader{text: []byte(v)}
		number, err := p.number()
		if err == nil && p.at != len(v) {
			err = errNoJSON
		}
		return number, err
	case int:
		return json.Number(strconv.Itoa(v)), nil
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("a number is not finite")
		}
		return json.Number(strconv.FormatFloat(v, 'g', -1, 64)), nil
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			var err error
			if list[i], err = copyOf(e, depth+1, size); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(v))
		for k, e := range v {
			*size += len(k) + least
			c, err := copyOf(e, depth+1, size)
			if err != nil {
				return nil, err
			}
			object[strings.ToValidUTF8(k, "\uFFFD")] = c
		}
		return object, nil
	}
	return nil, errNotPlain
}

// normaliser goes down a value, and knows where it is.
type normaliser struct{ path []string }

// value replaces what is in a value; only the copy that was made of it is written to.
func (z *normaliser) value(v any, n *node) (any, error) {
	switch v := v.(type) {
	case json.Number:
		return z.number(v, n)
	case string:
		if limit := max(n.texts, maxText); uint64(len(v)) > limit {
			return nil, z.tooLarge("bytes of text", limit, "maxLength")
		}
	case []any:
		if uint64(len(v)) > n.items {
			return nil, z.tooLarge("elements", n.items, "maxItems")
		}
		for i := range v {
			z.path = append(z.path, strconv.Itoa(i))
			e, err := z.value(v[i], n.element())
			if err != nil {
				return nil, err
			}
			v[i] = e
			z.path = z.path[:len(z.path)-1]
		}
	case map[string]any:
		if uint64(len(v)) > n.entries {
			return nil, z.tooLarge("properties", n.entries, "maxProperties")
		}
		for k, e := range v {
			of := n.element()
			if f := n.fields[k]; f != nil {
				of = f.node
			}
			z.path = append(z.path, k)
			e, err := z.value(e, of)
			if err != nil {
				return nil, err
			}
			v[k] = e
			z.path = z.path[:len(z.path)-1]
		}
	}
	return v, nil
}

func (z *normaliser) tooLarge(what string, limit uint64, keyword string) error {
	return violation("%s has more than %d %s; to allow more, declare %s", pointer(z.path, "it"), limit, what, keyword)
}

// number makes an int64 of a number that is whole, and a float64 of any other: as the node
// says, else as it is.
func (z *normaliser) number(number json.Number, n *node) (any, error) {
	text := string(number)
	if n.kind != doubleNode {
		if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
			return whole, nil
		}
	}
	float, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, violation("%s is a number that is too large", pointer(z.path, "it"))
	}
	if n.kind == doubleNode {
		return float, nil
	}
	if exact, ok := new(big.Rat).SetString(text); ok && exact.IsInt() && exact.Num().IsInt64() {
		return exact.Num().Int64(), nil // 1.0 and 1e3 are whole, too
	}
	if n.kind == intNode {
		return nil, violation("%s is a whole number of more than 64 bits", pointer(z.path, "it"))
	}
	if float == math.Trunc(float) && float >= math.MinInt64 && float < math.MaxInt64 {
		return int64(float), nil // what follows the point is too little for a float64
	}
	return float, nil
}
