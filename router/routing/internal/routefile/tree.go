package routefile

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds how deeply mappings and lists are nested, aliases expanded.
const maxDepth = 64

// maxFaults bounds what is collected of one step.
const maxFaults = 10_000

func tooDeep(at Pos) *Fault {
	return &Fault{at, fmt.Sprintf("nested more than %d levels deep, aliases included", maxDepth)}
}

// tree makes values of nodes: what encoding/json would make of the same data with UseNumber. What an alias repeats is
// made once and shared.
type tree struct {
	src    *source
	nodes  int // so far, of all files
	faults []Fault
	full   bool // of faults, or of nodes: nothing more is read

	anchored map[*yaml.Node]anchored
	open     map[*yaml.Node]bool // anchored nodes that are being made
}

// anchored is what is known of a node with an anchor.
type anchored struct {
	value         any
	nodes, height int
}

func newTree(src *source, nodes int) *tree {
	return &tree{src: src, nodes: nodes, anchored: map[*yaml.Node]anchored{}, open: map[*yaml.Node]bool{}}
}

func (t *tree) fault(n *yaml.Node, message string) { t.add(Fault{Pos{n.Line, n.Column}, message}) }

func (t *tree) add(f Fault) {
	t.faults = append(t.faults, f)
	t.full = t.full || len(t.faults) >= maxFaults
}

// count counts nodes, and reports whether there may be so many.
func (t *tree) count(n int) bool {
	if t.nodes += n; t.nodes > maxNodes && !t.full {
		t.add(*tooManyNodes())
		t.full = true
	}
	return !t.full
}

// value returns the value of a node that is nested so deeply, and how deeply others are nested in it.
func (t *tree) value(n *yaml.Node, depth int) (value any, height int) {
	if n.Kind == yaml.AliasNode {
		return t.alias(n, depth)
	}
	if !t.count(1) {
		return nil, 0
	}
	if n.Style&yaml.TaggedStyle != 0 || n.Kind == yaml.ScalarNode && t.src.tagged(n) {
		t.fault(n, "a text that begins with ! has to be in quotes; YAML's tags are not supported")
		return nil, 0
	}
	if n.Anchor == "" {
		return t.content(n, depth)
	}
	before := t.nodes
	t.open[n] = true
	value, height = t.content(n, depth)
	delete(t.open, n)
	t.anchored[n] = anchored{value, t.nodes - before + 1, height}
	return value, height
}

func (t *tree) alias(n *yaml.Node, depth int) (value any, height int) {
	if t.open[n.Alias] {
		t.fault(n, "the alias "+quote("*"+n.Value)+" stands in what it refers to: it would have no end")
		return nil, 0
	}
	known, done := t.anchored[n.Alias]
	if !done { // its node is faulty
		return nil, 0
	}
	if !t.count(known.nodes) {
		return nil, 0
	}
	if depth+known.height > maxDepth {
		t.add(*tooDeep(Pos{n.Line, n.Column}))
		return nil, 0
	}
	return known.value, known.height
}

func (t *tree) content(n *yaml.Node, depth int) (value any, height int) {
	if n.Kind == yaml.ScalarNode {
		value, wrong := scalar(n)
		if wrong != "" {
			t.fault(n, wrong)
		}
		return value, 0
	}
	if depth == maxDepth {
		t.add(*tooDeep(Pos{n.Line, n.Column}))
		return nil, 0
	}
	if n.Kind == yaml.MappingNode {
		return t.mapping(n, depth+1)
	}
	list := make([]any, 0, len(n.Content))
	for _, child := range n.Content {
		if t.full {
			break
		}
		v, h := t.value(child, depth+1)
		list, height = append(list, v), max(height, h)
	}
	return list, height + 1
}

func (t *tree) mapping(n *yaml.Node, depth int) (value any, height int) {
	m := make(map[string]any, len(n.Content)/2)
	var first map[string]Pos // nil as long as it is not needed
	for i := 0; i+1 < len(n.Content) && !t.full; i += 2 {
		key, ok := t.key(n.Content[i])
		v, h := t.value(n.Content[i+1], depth)
		height = max(height, h)
		if !ok {
			continue
		}
		if _, twice := m[key]; twice {
			if first == nil {
				first = firstKeys(n)
			}
			t.fault(n.Content[i], fmt.Sprintf("the key %s is there twice: first at %s", quote(key), first[key]))
			continue
		}
		m[key] = v
	}
	return m, height + 1
}

// firstKeys returns where each key is for the first time.
func firstKeys(n *yaml.Node) map[string]Pos {
	first := make(map[string]Pos, len(n.Content)/2)
	for i := len(n.Content) - 2; i >= 0; i -= 2 {
		if key, wrong := keyOf(deref(n.Content[i])); wrong == "" {
			first[key] = Pos{n.Content[i].Line, n.Content[i].Column}
		}
	}
	return first
}

// key returns the text of a key, and whether it has one.
func (t *tree) key(n *yaml.Node) (key string, ok bool) {
	scalar := deref(n)
	switch {
	case !t.count(1):
		return "", false
	case scalar.Kind != yaml.ScalarNode:
		t.fault(n, "a key has to be a text, and this is a list or a mapping: put it in quotes")
		return "", false
	case t.src.tagged(scalar):
		t.fault(n, "a key that begins with ! has to be in quotes; YAML's tags are not supported")
		return "", false
	}
	if scalar.Anchor != "" && n == scalar {
		value, _ := t.content(n, 0)
		t.anchored[n] = anchored{value: value, nodes: 1}
	}
	key, wrong := keyOf(scalar)
	if wrong != "" {
		t.fault(n, wrong)
	}
	return key, wrong == ""
}

// deref returns what an alias refers to. An alias never refers to an alias.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// keyText returns the text of a key that a tree has found to be one.
func keyText(n *yaml.Node) string {
	key, _ := keyOf(deref(n))
	return key
}

// finder finds nodes by where they are in a document. It remembers the keys of what it has passed.
type finder struct {
	keys map[*yaml.Node]map[string]int
}

// find returns the node at a path, which has keys and indices, and its key, nil for an element of a list. If the
// path leads nowhere, it returns the last node on it.
func (f *finder) find(root *yaml.Node, path []string) (key, n *yaml.Node) {
	n = deref(root)
	for _, step := range path {
		i, ok := f.step(n, step)
		if !ok {
			return key, n
		}
		key = nil
		if n.Kind == yaml.MappingNode {
			key = n.Content[i-1]
		}
		n = deref(n.Content[i])
	}
	return key, n
}

// step returns where in a node's content the next one is.
func (f *finder) step(n *yaml.Node, step string) (index int, ok bool) {
	if n.Kind == yaml.SequenceNode {
		i, err := strconv.Atoi(step)
		return i, err == nil && i >= 0 && i < len(n.Content)
	}
	keys, known := f.keys[n]
	if !known {
		keys = make(map[string]int, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			keys[keyText(n.Content[i])] = i + 1
		}
		f.keys[n] = keys
	}
	i, ok := keys[step]
	return i, ok
}
