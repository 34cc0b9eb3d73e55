package routing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// Lookups are fixed results, in place of the functions of a running program: by the lookup's name and the key that it is asked
// for, where "*" stands for any other key. A value is the JSON that the function's result would encode to; {"$error": "text"} makes
// the lookup fail with that text, and with {"$error": "text", "$reason": "CODE"} no retry can mend it, see [eventing.PermanentWithReason].
// One that is not there fails, too, and so does one that does not satisfy the lookup's schema.
type Lookups map[string]map[string]json.RawMessage

// anyKey stands for all keys that are not named.
const anyKey = "*"

// MaxLookupsBytes bounds a file of fixed lookups.
const MaxLookupsBytes = 64 << 20

// LoadLookups reads fixed lookups from a JSON file, such as
//
//	{"citizen": {"c-1": {"sms": true}, "*": {"sms": false}}, "office": {"*": {"$error": "out of reach"}}}
func LoadLookups(path string) (Lookups, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxLookupsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	l, err := ParseLookups(text)
	if err != nil {
		return nil, fmt.Errorf("routing: %s: %w", path, err)
	}
	return l, nil
}

// ParseLookups is [LoadLookups] for text.
func ParseLookups(text []byte) (Lookups, error) {
	if len(text) > MaxLookupsBytes {
		return nil, fmt.Errorf("the lookups have more than %d bytes", MaxLookupsBytes)
	}
	var byName map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&byName); err != nil {
		var other *json.UnmarshalTypeError
		switch {
		case errors.Is(err, io.EOF):
			err = errors.New("there is nothing")
		case errors.As(err, &other):
			err = fmt.Errorf("it is a JSON %s, and not an object", other.Value)
		}
		return nil, fmt.Errorf(`no lookups: %w; they look like {"citizen": {"c-1": {…}, "*": {"$error": "down"}}}`, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the end of the lookups: all of them are one JSON object")
	}
	l := Lookups{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		results, err := parseResults(name, byName[name])
		if err != nil {
			return nil, err
		}
		l[name] = results
	}
	return l, nil
}

// parseResults parses what a lookup finds by key. Files of tests know a shorter form, which is no use here.
func parseResults(name string, raw json.RawMessage) (results map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(raw, &results); err != nil || results == nil {
		return nil, unkeyed(name, raw)
	}
	if _, fails := results["$error"]; fails {
		return nil, unkeyed(name, raw)
	}
	if _, tests := results["$keys"]; tests {
		return nil, fmt.Errorf("lookup %s: $keys is for files of tests; here it is left out: {%q: {KEY: RESULT}}", name, name)
	}
	return results, nil
}

// unkeyed is the error about a result that stands where the results by key should.
func unkeyed(name string, result json.RawMessage) error {
	var text bytes.Buffer
	_ = json.Compact(&text, result) // it has been decoded before
	return fmt.Errorf(`lookup %s has a result without a key: did you mean {%q: {"*": %s}}? "*" is any key`, name, name, clip(text.String(), maxShownValue))
}

// Check fails if there are lookups that none of the tables declares, which are most likely misspelt, or a lookup has the properties
// of a result, by the tables' schemas, where the keys should be.
func (l Lookups) Check(tables ...*Table) error {
	known, keyed := map[string]bool{}, map[string]bool{}
	for _, t := range tables {
		for _, declared := range t.lookups {
			name := declared.src.Text
			known[name], keyed[name] = true, keyed[name] || !l.lacksKeys(declared)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if !known[name] {
			return fmt.Errorf("routing: lookup %s is not declared%s", name, suggest(name, maps.Keys(known)))
		}
		if !keyed[name] {
			result, err := json.Marshal(l[name])
			if err != nil {
				return fmt.Errorf("routing: lookup %s: %w", name, err)
			}
			return fmt.Errorf("routing: %w", unkeyed(name, result))
		}
	}
	return nil
}

// lacksKeys reports whether the keys of a lookup's results are properties of a result, and no result is one.
func (l Lookups) lacksKeys(of *lookup) bool {
	results := l[of.src.Text]
	if of.src.Schema == nil || len(results) == 0 {
		return false
	}
	doc, _ := of.src.Schema.Doc.(map[string]any)
	properties, _ := doc["properties"].(map[string]any)
	for key, raw := range results {
		if _, is := properties[key]; !is || failureOf(raw) != nil {
			return false
		}
		if _, err := of.decode(raw); err == nil {
			return false
		}
	}
	return true
}

var _ source = Lookups(nil)

func (l Lookups) find(_ context.Context, of *lookup, key string) (any, error) {
	name := of.src.Text
	raw, given := l[name][key]
	if !given {
		raw, given = l[name][anyKey]
	}
	if !given {
		return nil, &notGivenError{name, key}
	}
	if failure := failureOf(raw); failure != nil {
		return nil, failure
	}
	value, err := of.decode(raw)
	if err != nil {
		return nil, fmt.Errorf("the result: %w", err)
	}
	return value, nil
}

// failureOf returns the error that is written in place of a result.
func failureOf(raw json.RawMessage) error {
	var failure struct {
		Error  *string             `json:"$error"`
		Reason eventing.ReasonCode `json:"$reason"`
	}
	switch {
	case !bytes.Contains(raw, []byte("$error")) || json.Unmarshal(raw, &failure) != nil || failure.Error == nil:
		return nil
	case failure.Reason != "":
		return eventing.PermanentWithReason(failure.Reason, errors.New(*failure.Error))
	}
	return errors.New(*failure.Error)
}

// notGivenError is the failure of a lookup that has no fixed result.
type notGivenError struct{ name, key string }

func (e *notGivenError) Error() string {
	return fmt.Sprintf(`no result is given: add {%q: {%q: …}} to the lookups, or "*" for any key`, e.name, clip(e.key, maxShownKey))
}

// policyWords say what follows from a lookup's failure.
var policyWords = map[routefile.OnError]string{
	routefile.Retry:   "the attempt is retried",
	routefile.Skip:    "what needs it does not apply",
	routefile.Default: "its default is used",
}
