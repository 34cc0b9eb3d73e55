package condition

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of what is made of a schema.
const maxNodes, maxBuilderWork = 10_000, 200_000

// builder makes nodes of compiled schemas.
type builder struct {
	prefix string           // of the names of types
	nodes  map[string]*node // by the places of the schemas that they are made of
	types  map[string]*node // objects, by the name of their type
	shapes map[*jsonschema.Schema]shape
	sets   map[*jsonschema.Schema][]*jsonschema.Schema
	work   int
}

// finish makes the fields accessible and measures the nodes, now that all are known.
func (b *builder) finish() {
	for _, n := range b.nodes {
		n.measure()
		for _, f := range n.fields {
			f.node.measure()
			f.celField = f.access()
		}
	}
}

func newBuilder(schema string) *builder {
	return &builder{
		prefix: schema + "#", nodes: map[string]*node{}, types: map[string]*node{},
		shapes: map[*jsonschema.Schema]shape{}, sets: map[*jsonschema.Schema][]*jsonschema.Schema{},
	}
}

// node is that of the values that satisfy all of the schemas.
func (b *builder) node(schemas []*jsonschema.Schema) (*node, error) {
	all := b.together(schemas...)
	if len(all) == 0 {
		return dynamic, nil
	}
	key := keyOf(all)
	if n := b.nodes[key]; n != nil {
		return n, nil
	}
	if len(b.nodes) == maxNodes {
		return nil, fmt.Errorf("it describes more than %d different places: simplify its allOf", maxNodes)
	}
	n := &node{}
	b.nodes[key] = n // before its fields: they may refer to it
	if one := b.orNull(all); one != nil {
		inner, err := b.node([]*jsonschema.Schema{one})
		if err != nil || inner.kind == objectNode {
			*n = *inner
			n.nullable = true
			return n, err
		}
	}
	return n, b.fill(n, all, key)
}

// orNull is the schema of a value that may also be null, if that is all that the schemas say: an object
// that may be null has the type of the object.
func (b *builder) orNull(all []*jsonschema.Schema) *jsonschema.Schema {
	if len(all) != 1 {
		return nil
	}
	plain := *all[0]
	branches := slices.Concat(plain.AnyOf, plain.OneOf)
	if plain.AnyOf, plain.OneOf = nil, nil; says(&plain) || len(branches) != 2 {
		return nil
	}
	for i, branch := range branches {
		if b.shapeOf(b.together(branch)).kinds == nullKind {
			return branches[1-i]
		}
	}
	return nil
}

func (b *builder) fill(n *node, all []*jsonschema.Schema, key string) error {
	shape := b.shapeOf(all)
	n.kind, n.nullable = shape.kind()
	n.words = shape.words
	limits(n, all)
	names := fieldNames(all)
	if n.kind == dynNode && shape.kinds == anyKind && len(names) > 0 {
		n.kind = objectNode // properties without a type: what is no object reads as an empty one
	}
	switch n.kind {
	case listNode:
		elem, err := b.node(itemsOf(all))
		if err != nil {
			return err
		}
		n.elem = elem
	case mapNode:
		if len(names) > 0 {
			n.kind = objectNode
			break
		}
		elem, err := b.entry(all)
		if err != nil {
			return err
		}
		n.elem = elem
	}
	if n.nullable && (n.kind == listNode || n.kind == mapNode) {
		n.kind, n.nullable = dynNode, false // CEL has no such types
	}
	n.celType = b.typeOf(n, key)
	if n.kind != objectNode {
		return nil
	}
	n.entries = max(n.entries, uint64(len(names)))
	return b.fields(n, all, names)
}

// typeOf is the CEL type of a node, without regard for its fields. A list's or map's element may be
// a node that is being filled: there is no way back to here but through an object, whose type
// is known by then.
func (b *builder) typeOf(n *node, key string) *types.Type {
	scalar := func(t *types.Type) *types.Type {
		if n.nullable {
			return types.NewNullableType(t)
		}
		return t
	}
	switch n.kind {
	case nullNode:
		return types.NullType
	case boolNode:
		return scalar(types.BoolType)
	case intNode:
		return scalar(types.IntType)
	case doubleNode:
		return scalar(types.DoubleType)
	case textNode:
		return scalar(types.StringType)
	case listNode:
		return types.NewListType(n.elem.orDyn())
	case mapNode:
		return types.NewMapType(types.StringType, n.elem.orDyn())
	case objectNode:
		n.typeName = b.prefix + key
		b.types[n.typeName] = n
		return types.NewObjectType(n.typeName)
	}
	return types.DynType
}

// orDyn is the type of a node, or dyn while it is being made: of lists of themselves.
func (n *node) orDyn() *types.Type {
	if n.celType == nil {
		return types.DynType
	}
	return n.celType
}

// fields makes the fields of an object.
func (b *builder) fields(n *node, all []*jsonschema.Schema, names map[string]bool) error {
	n.fields = make(map[string]*field, len(names))
	n.open = !slices.ContainsFunc(all, func(s *jsonschema.Schema) bool {
		return s.AdditionalProperties == false && len(s.PatternProperties) == 0
	})
	for name := range names {
		f := &field{name: name}
		var err error
		if f.node, err = b.fieldNode(all, name); err != nil {
			return err
		}
		if f.node == nil {
			f.node = dynamic // of some alternatives only, or different in them
		}
		f.required = slices.ContainsFunc(all, func(s *jsonschema.Schema) bool { return slices.Contains(s.Required, name) })
		n.fields[name] = f
	}
	return nil
}

// fieldNode is that of a field: as the schemas that always apply say, else what all alternatives
// agree on; nil if they do not name it.
func (b *builder) fieldNode(all []*jsonschema.Schema, name string) (*node, error) {
	if b.work++; b.work > maxBuilderWork {
		return nil, errors.New("its alternatives refer to each other in too many ways: simplify its anyOf and oneOf")
	}
	var own []*jsonschema.Schema
	for _, s := range all {
		if p := s.Properties[name]; p != nil {
			own = append(own, p)
		}
	}
	if len(own) > 0 {
		return b.node(own)
	}
	for _, s := range all {
		for _, branches := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
			if n, err := b.agreed(branches, name); n != nil || err != nil {
				return n, err
			}
		}
	}
	return nil, nil
}

// agreed is the node of a field that all branches that admit objects have alike, or nil.
func (b *builder) agreed(branches []*jsonschema.Schema, name string) (*node, error) {
	var common *node
	for _, branch := range branches {
		all := b.together(branch)
		if b.shapeOf(all).kinds&objectKind == 0 {
			continue
		}
		n, err := b.fieldNode(all, name)
		if n == nil || err != nil {
			return nil, err
		}
		if common == nil {
			common = n
		}
		if common = meet(common, n); common == nil {
			return nil, nil
		}
	}
	return common, nil
}

// meet is a node that describes the values of both, or nil. Only scalars are looked into.
func meet(a, b *node) *node {
	switch {
	case a == b:
		return a
	case a.kind != b.kind || a.kind < boolNode || a.kind > textNode:
		return nil
	}
	n := *a
	n.texts = max(a.texts, b.texts)
	if n.nullable = a.nullable || b.nullable; n.nullable != a.nullable {
		n.celType = b.celType
	}
	if n.words = nil; a.words != nil && b.words != nil {
		n.words = append(slices.Clone(a.words), b.words...)
		slices.Sort(n.words)
		n.words = slices.Compact(n.words)
	}
	return &n
}

// entry is the node of a map's values.
func (b *builder) entry(all []*jsonschema.Schema) (*node, error) {
	var schemas []*jsonschema.Schema
	for _, s := range all {
		if len(s.PatternProperties) > 0 {
			return dynamic, nil
		}
		if a, is := s.AdditionalProperties.(*jsonschema.Schema); is {
			schemas = append(schemas, a)
		}
	}
	return b.node(schemas)
}

// limits bounds the sizes of a node's values: by the schemas, else as usual.
func limits(n *node, all []*jsonschema.Schema) {
	least := func(of func(*jsonschema.Schema) *int) uint64 {
		var least uint64 = math.MaxUint64
		for _, s := range all {
			if m := of(s); m != nil && *m >= 0 {
				least = min(least, uint64(*m))
			}
		}
		return least
	}
	declared := func(n *uint64, usual uint64) bool {
		if *n == math.MaxUint64 {
			*n = usual
			return false
		}
		*n = min(*n, maxValueBytes)
		return true
	}
	n.texts = least(func(s *jsonschema.Schema) *int { return s.MaxLength })
	if n.declared.texts = declared(&n.texts, maxText); n.declared.texts {
		const perCharacter = 4 // bytes, in UTF-8
		n.texts = min(perCharacter*n.texts, maxValueBytes)
	}
	if n.words != nil {
		n.texts = 0
		for _, w := range n.words {
			n.texts = max(n.texts, uint64(len(w)))
		}
	}
	n.items = least(func(s *jsonschema.Schema) *int { return s.MaxItems })
	n.declared.items = declared(&n.items, maxItems)
	n.entries = least(func(s *jsonschema.Schema) *int { return s.MaxProperties })
	n.declared.entries = declared(&n.entries, maxProperties)
}

// keyOf names a set of schemas by their places.
func keyOf(all []*jsonschema.Schema) string {
	places := make([]string, len(all))
	for i, s := range all {
		_, fragment, _ := strings.Cut(s.Location, "#")
		if plain, err := url.PathUnescape(fragment); err == nil {
			fragment = plain
		}
		places[i] = fragment
	}
	slices.Sort(places)
	return strings.Join(places, " & ")
}
