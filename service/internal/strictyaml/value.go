package strictyaml

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Value is a value in a file, or a key.
type Value struct {
	file *File
	node *yaml.Node
}

// Fault records what is wrong with the value. The message must not repeat it if it may be a secret.
func (v Value) Fault(format string, args ...any) { v.file.fault(v.node, fmt.Sprintf(format, args...)) }

// Place is the value's, as FILE:LINE:COLUMN.
func (v Value) Place() string {
	return fmt.Sprintf("%s:%d:%d", v.file.Name, v.node.Line, v.node.Column)
}

// Line is the value's, from 1.
func (v Value) Line() int { return v.node.Line }

// List returns the elements of a list of at least one, at most limit.
func (v Value) List(limit int) (elements []Value) {
	switch {
	case !v.plain():
		return nil
	case v.node.Kind != yaml.SequenceNode:
		v.Fault("this must be a list")
		return nil
	case len(v.node.Content) == 0:
		v.Fault("the list is empty")
	case len(v.node.Content) > limit:
		v.Fault("the list has %d elements: %d are the most", len(v.node.Content), limit)
		return nil
	}
	for _, n := range v.node.Content {
		elements = append(elements, Value{v.file, n})
	}
	return elements
}

// Entry is a key of a mapping and its value.
type Entry struct {
	Name       string
	Key, Value Value
}

// Entries returns what is in a mapping, in its order; a key that is there twice is a fault.
func (v Value) Entries() (entries []Entry) {
	if !v.plain() {
		return nil
	}
	if v.node.Kind != yaml.MappingNode {
		v.Fault("this must be a mapping of keys to values")
		return nil
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := Value{v.file, v.node.Content[i]}
		name, ok := key.Text()
		if !ok {
			continue
		}
		if line, twice := seen[name]; twice {
			key.Fault("this key is there twice: first in line %d", line)
			continue
		}
		seen[name] = key.Line()
		entries = append(entries, Entry{name, key, Value{v.file, v.node.Content[i+1]}})
	}
	return entries
}

// Fields returns the values of a mapping that may have these keys and no others, and whether it is a mapping.
// What is not there has no entry.
func (v Value) Fields(known ...string) (fields map[string]Value, ok bool) {
	entries := v.Entries()
	if v.node.Kind != yaml.MappingNode {
		return nil, false
	}
	fields = map[string]Value{}
	for _, e := range entries {
		if slices.Contains(known, e.Name) {
			fields[e.Name] = e.Value
		} else {
			e.Key.Fault("unknown key%s; the keys are %s", Meant(e.Name, known), strings.Join(known, ", "))
		}
	}
	return fields, true
}

// Text returns a text. Numbers, booleans and null are none: where they are meant, they stand in quotes. A time
// is one.
func (v Value) Text() (text string, ok bool) {
	if !v.plain() {
		return "", false
	}
	if v.node.Kind != yaml.ScalarNode {
		v.Fault("this must be a text")
		return "", false
	}
	switch v.node.ShortTag() {
	case "!!str", "!!timestamp":
		return v.node.Value, true
	}
	v.Fault("this must be a text, and without quotes it is none")
	return "", false
}

// Scalar returns a text, number or boolean as it is written.
func (v Value) Scalar() (text string, ok bool) {
	if !v.plain() {
		return "", false
	}
	if v.node.Kind != yaml.ScalarNode || v.node.ShortTag() == "!!null" {
		v.Fault("this must be a text, a number or true or false")
		return "", false
	}
	return v.node.Value, true
}

// Name returns a text of at most limit bytes that is not empty and has no control characters.
func (v Value) Name(limit int) (name string, ok bool) {
	name, ok = v.Text()
	switch {
	case !ok:
	case name == "" || len(name) > limit:
		v.Fault("this must have 1 to %d bytes", limit)
		return "", false
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.TrimSpace(name) != name:
		v.Fault("this must have no control characters, and no space at its ends")
		return "", false
	}
	return name, ok
}

// Time returns a time of RFC 3339.
func (v Value) Time() (at time.Time, ok bool) {
	text, ok := v.Text()
	if !ok {
		return at, false
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() {
		v.Fault("this must be a time with its zone, such as 2026-03-01T00:00:00Z (RFC 3339)")
		return at, false
	}
	return at, true
}

// plain refuses what stands for something else.
func (v Value) plain() bool {
	if v.node.Kind == yaml.AliasNode || v.node.Anchor != "" || v.node.Style&yaml.TaggedStyle != 0 {
		v.Fault("anchors, aliases and tags are not supported; a text that begins with & * or ! has to be in quotes")
		return false
	}
	return true
}

// Meant suggests which of the known names a mistyped one was to be: " (did you mean X?)", or nothing.
func Meant(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// distance is how many letters have to be put in, left out or changed. Names that are far longer are not compared.
func distance(a, b string) int {
	if len(a) > len(b)+3 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
