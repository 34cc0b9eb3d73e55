package condition

import "cel.dev/cel-go/common/types"

// What values may have at most where their schema does not say. What costs are estimated
// from is enforced when values are made.
const (
	maxText       = 64 << 10 // bytes
	maxItems      = 1000     // of a list
	maxProperties = 1000     // of a map or an object, or as many as its schema names
	maxValueBytes = 1 << 20  // of a whole value, as JSON
	maxValueDepth = 100
)

type nodeKind uint8

const (
	dynNode nodeKind = iota
	nullNode
	boolNode
	intNode
	doubleNode
	textNode
	listNode
	mapNode
	objectNode
)

// node is what CEL knows of the values at a place of a schema.
type node struct {
	kind     nodeKind
	nullable bool
	typeName string                               // of an object
	fields   map[string]*field                    // of an object
	elem     *node                                // of a list or a map
	words    []string                             // all that a text can be, sorted; nil: not known
	texts    uint64                               // bytes of a text at most
	items    uint64                               // elements of a list at most
	entries  uint64                               // properties of a map or an object at most
	open     bool                                 // an object may have other fields than these
	declared struct{ texts, items, entries bool } // which limits the schema gives
	maxBytes float64                              // of a value as JSON, see measure
	maxNodes float64                              // values in it, itself among them
	celType  *types.Type
}

// field is a field of an object.
type field struct {
	name     string
	node     *node
	required bool
	celField *types.FieldType
}

// dynamic is the node of values of which nothing is known.
var dynamic = &node{kind: dynNode, texts: maxText, items: maxItems, entries: maxProperties, celType: types.DynType}

func init() {
	dynamic.elem = dynamic
	dynamic.measure()
}

// Shared empty values, which nobody writes to.
var (
	noItems   = []any{}
	noEntries = map[string]any{}
)

// zero is what an absent optional value reads as.
func (n *node) zero() any {
	if n.nullable {
		return nil
	}
	switch n.kind {
	case boolNode:
		return false
	case intNode:
		return int64(0)
	case doubleNode:
		return float64(0)
	case textNode:
		return ""
	case listNode:
		return noItems
	case mapNode, objectNode:
		return noEntries
	}
	return nil
}

// element is the node of a list's or a map's elements.
func (n *node) element() *node {
	if n.elem == nil {
		return dynamic
	}
	return n.elem
}
