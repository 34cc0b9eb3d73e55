package condition

import (
	"fmt"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// path is a variable, and the way from it to a part of it.
type path struct {
	slot  int
	event *eventField // a field of `event`, with no steps
	steps []step
	node  *node // of what is found
	typed bool  // all steps are fields of objects: there is no error
}

// step goes into a value.
type step struct {
	kind  stepKind
	name  string // of a field or a key
	index int    // of an element
	zero  any    // what an absent field reads as
}

type stepKind uint8

const (
	fieldStep stepKind = iota
	keyStep
	indexStep
)

// path is what an expression selects of a variable, if that is all that it does.
func (c *compiler) path(t *sight, e ast.Expr) (path, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		slot, is := t.slot(e)
		if !is {
			return path{}, false
		}
		return path{slot: slot, node: c.scope.nodeOf(slot), typed: true}, true
	case ast.SelectKind:
		sel := e.AsSelect()
		if sel.IsTestOnly() {
			return path{}, false
		}
		if name, is := t.global(sel.Operand()); is && name == "event" {
			return eventPath(sel.FieldName())
		}
		p, is := c.path(t, sel.Operand())
		if !is || p.event != nil {
			return path{}, false
		}
		return p.into(sel.FieldName()), true
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
			return path{}, false
		}
		p, is := c.path(t, call.Args()[0])
		if !is || p.event != nil {
			return path{}, false
		}
		switch at := call.Args()[1].AsLiteral().(type) {
		case types.String:
			return p.then(step{kind: keyStep, name: string(at)}), true
		case types.Int:
			return p.then(step{kind: indexStep, index: int(at)}), p.node.kind == listNode
		}
	}
	return path{}, false
}

// shared is the path with the steps of the first one that was the same: of many conditions on a field, what they read is
// in the processor's cache.
func (s *Scope) shared(p path) path {
	const many = 10_000
	if !p.typed || p.event != nil {
		return p
	}
	var key strings.Builder
	for _, st := range p.steps {
		key.WriteString(strconv.Itoa(len(st.name)) + ":" + st.name)
	}
	id := pathID{p.slot, key.String()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if steps, known := s.steps[id]; known {
		p.steps = steps
	} else if len(s.steps) < many {
		s.steps[id] = p.steps
	}
	return p
}

// pathID tells typed paths apart.
type pathID struct {
	slot  int
	names string
}

func eventPath(name string) (path, bool) {
	for i := range eventFields {
		if f := &eventFields[i]; f.name == name {
			return path{event: f, node: eventNode.fields[name].node, typed: true}, true
		}
	}
	return path{}, false
}

// into goes to a field, or to a key of what is no object.
func (p path) into(name string) path {
	if p.node.kind != objectNode || p.node.fields[name] == nil {
		return p.then(step{kind: keyStep, name: name})
	}
	f := p.node.fields[name]
	typed := p.typed
	p = p.then(step{kind: fieldStep, name: f.name, zero: f.node.zero()})
	p.node, p.typed = f.node, typed
	return p
}

func (p path) then(s step) path {
	p.steps = append(p.steps[:len(p.steps):len(p.steps)], s)
	p.typed = false
	p.node = p.node.element()
	return p
}

// read follows a path on which there is no error.
func (p *path) read(v *Values) any {
	if p.event != nil {
		return p.event.read(v)
	}
	at := v.at(p.slot)
	if len(p.steps) == 0 && at == nil {
		return p.node.zero()
	}
	for i := range p.steps {
		s := &p.steps[i]
		object, _ := at.(map[string]any)
		found, is := object[s.name]
		if !is {
			found = s.zero
		}
		at = found
	}
	return at
}

// text follows a path to a text.
func (p *path) text(v *Values) (string, bool) {
	if p.event != nil && p.event.text != nil {
		return p.event.text(v), true
	}
	s, is := p.read(v).(string)
	return s, is
}

// find follows any path.
func (p *path) find(v *Values) (any, error) {
	if p.typed {
		return p.read(v), nil
	}
	at := v.at(p.slot)
	for i := range p.steps {
		s := &p.steps[i]
		var is bool
		switch s.kind {
		case fieldStep:
			object, _ := at.(map[string]any)
			if at, is = object[s.name]; !is {
				at = s.zero
			}
		case keyStep:
			object, _ := at.(map[string]any)
			if at, is = object[s.name]; !is {
				return nil, fmt.Errorf("no such key: %s", clip(s.name, maxPointerBytes))
			}
		case indexStep:
			list, _ := at.([]any)
			if s.index < 0 || s.index >= len(list) {
				return nil, fmt.Errorf("index out of bounds: %d", s.index)
			}
			at = list[s.index]
		}
	}
	return at, nil
}
