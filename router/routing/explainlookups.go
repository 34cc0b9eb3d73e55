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
	var l Lookups
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&l); err != nil {
		return nil, fmt.Errorf(`no lookups: %w; they look like {"citizen": {"c-1": {…}, "*": {"$error": "down"}}}`, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the end of the lookups: all of them are one JSON object")
	}
	return l, nil
}

// Check fails if there are lookups that none of the tables declares: they are most likely misspelt.
func (l Lookups) Check(tables ...*Table) error {
	known := map[string]bool{}
	for _, t := range tables {
		for _, declared := range t.lookups {
			known[declared.src.Text] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if !known[name] {
			return fmt.Errorf("routing: lookup %s is not declared%s", name, suggest(name, maps.Keys(known)))
		}
	}
	return nil
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
