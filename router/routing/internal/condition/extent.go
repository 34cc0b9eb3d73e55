package condition

import (
	"math"
)

// extent is how large a value can be.
type extent struct {
	node     *node     // what is known of it, if it is from a variable
	size     form      // bytes as JSON, at most
	text     form      // bytes, if it is a text
	length   float64   // elements, if it is a list or a map
	nodes    form      // values in it, itself among them
	elem     *extent   // of a list or a map that is from no variable
	key      *extent   // of such a map
	parts    []*extent // what it is one of, if it is from several places
	joins    float64   // lists that it was concatenated from: finding an element takes as many steps
	growing  bool      // the accumulator of a comprehension
	constant bool      // a literal, or a list of literals
}

const (
	scalarBytes = 24 // of a number, a bool or null as JSON
	leastBytes  = 2  // of an element: one digit, and a comma
)

// scalar is a value that is no text, list or map.
func scalar() *extent {
	return &extent{size: fixed(scalarBytes), nodes: fixed(1), text: fixed(scalarBytes)}
}

// ofText is a text of some bytes.
func ofText(bytes form) *extent {
	return &extent{size: bytes.plus(fixed(leastBytes)), nodes: fixed(1), text: bytes}
}

// ofNode is a value of a node that is part of one of the given size.
func (k *coster) ofNode(n *node, within form) *extent {
	x := &extent{node: n, length: n.length()}
	bytes, nodes := n.maxBytes, n.maxNodes
	x.size = k.bounded(bytes, within)
	x.nodes = k.bounded(nodes, within.times(1.0/leastBytes).plus(fixed(1)))
	x.text = k.bounded(float64(n.texts), within)
	return x
}

// length is how many elements a node's values have at most.
func (n *node) length() float64 {
	switch n.kind {
	case listNode:
		return float64(n.items)
	case mapNode, objectNode:
		return float64(n.entries)
	}
	return float64(max(n.items, n.entries))
}

// bounded is the lesser of a number and a form.
func (k *coster) bounded(n float64, within form) form {
	if math.IsInf(n, 1) {
		return within
	}
	return k.loops.less(fixed(n), within)
}

// measure sets the bytes and the values that a node's values have at most by their structure; infinite
// where nothing but the size of the whole bounds them.
func (n *node) measure() {
	if n.maxBytes > 0 {
		return
	}
	n.maxBytes, n.maxNodes = math.Inf(1), math.Inf(1) // what a node in itself sees
	switch n.kind {
	case nullNode, boolNode, intNode, doubleNode:
		n.maxBytes, n.maxNodes = scalarBytes, 1
	case textNode:
		n.maxBytes, n.maxNodes = float64(n.texts)+leastBytes, 1
	case listNode:
		e := n.element()
		e.measure()
		n.maxBytes, n.maxNodes = float64(n.items)*(e.maxBytes+leastBytes)+leastBytes, float64(n.items)*e.maxNodes+1
	case mapNode: // its keys may be long
		n.element().measure()
		n.maxNodes = float64(n.entries)*n.element().maxNodes + 1
	case objectNode:
		if n.open {
			break
		}
		bytes, nodes := float64(leastBytes), 1.0
		for name, f := range n.fields {
			f.node.measure()
			bytes += f.node.maxBytes + float64(len(name)) + 2*leastBytes
			nodes += f.node.maxNodes
		}
		n.maxBytes, n.maxNodes = bytes, nodes
	}
}

// element is what an index finds in a list or a map, and a loop over a list; nil if it is empty.
func (k *coster) element(x *extent) *extent {
	switch {
	case len(x.parts) > 0:
		return k.each(x, k.element)
	case x.node != nil:
		return k.ofNode(x.node.element(), x.size)
	}
	return x.elem
}

// keyOf is what a loop over a map is at.
func (k *coster) keyOf(x *extent) *extent {
	switch {
	case len(x.parts) > 0:
		return k.each(x, k.keyOf)
	case x.node != nil:
		return ofText(k.bounded(maxText, x.size))
	}
	return x.key
}

// field is what a name finds in an object or a map.
func (k *coster) field(x *extent, name string) *extent {
	if len(x.parts) > 0 {
		return k.each(x, func(x *extent) *extent { return k.field(x, name) })
	}
	if x.node != nil {
		if f := x.node.fields[name]; f != nil {
			return k.ofNode(f.node, x.size)
		}
	}
	return k.element(x)
}

// each is what is found in one of a value's parts.
func (k *coster) each(x *extent, of func(*extent) *extent) *extent {
	var found *extent
	for _, part := range x.parts {
		found = k.either(found, of(part))
	}
	return found
}

// either is a value that is one or the other. Nil is none.
func (k *coster) either(a, b *extent) *extent {
	switch {
	case a == nil:
		return b
	case b == nil || a == b || k.spent():
		return a
	}
	return &extent{
		size: a.size.or(b.size), text: a.text.or(b.text), nodes: a.nodes.or(b.nodes), length: max(a.length, b.length),
		joins: max(a.joins, b.joins), growing: a.growing || b.growing, parts: []*extent{a, b},
	}
}

// current is the element that the innermost loop is at: no larger than its share of the whole.
func (k *coster) current(e *extent) *extent {
	if e == nil || k.spent() {
		return scalar()
	}
	one, part := *e, share(len(k.loops)-1)
	one.size = k.loops.less(e.size, part)
	one.text = k.loops.less(e.text, part)
	one.nodes = k.loops.less(e.nodes, part.times(1.0/leastBytes).plus(fixed(1)))
	one.parts = make([]*extent, len(e.parts))
	for i, p := range e.parts {
		one.parts[i] = k.current(p)
	}
	return &one
}

// outside is a value of the innermost loop, as it is known outside of it.
func (k *coster) outside(x *extent) *extent {
	if x == nil || k.spent() {
		return nil
	}
	out := *x
	out.size, out.text, out.nodes = k.loops.single(x.size), k.loops.single(x.text), k.loops.single(x.nodes)
	out.elem, out.key = k.outside(x.elem), k.outside(x.key)
	out.parts = make([]*extent, len(x.parts))
	for i, part := range x.parts {
		out.parts[i] = k.outside(part)
	}
	return &out
}
