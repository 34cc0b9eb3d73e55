package condition

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"cel.dev/cel-go/common/ast"
)

// Term is a part of a condition with its value.
type Term struct {
	// Text is the part, such as payload.new_status or has(payload.amount).
	Text string `json:"text"`
	// Value is what it has with the values given, cut if it is large: a text, number, bool, time,
	// list or object, or null.
	Value any `json:"value"`
	// Error says why there is no value.
	Error string `json:"error,omitempty"`
}

// leaf is a part of an expression that names a part of a variable.
type leaf struct {
	text string
	slot int // of the variable; of event 0, too
	read func(*Values) (any, error)
}

// Explain are the fields that the expression refers to, as far as their path is written down,
// with their values: of payload.items[0].kind that, of payload.items.exists(i, …) payload.items. In the order of the text,
// each once. Those of variables that are not there are left out.
func (p *Program) Explain(v *Values, there func(slot int) bool) []Term {
	terms := make([]Term, 0, len(p.leaves))
	for _, l := range p.leaves {
		if !there(l.slot) {
			continue
		}
		term := Term{Text: l.text}
		found, err := l.read(v)
		if err != nil {
			term.Error = err.Error()
		} else {
			size := maxTerm
			term.Value = excerpt(found, 0, &size)
		}
		terms = append(terms, term)
	}
	return terms
}

func (c *compiler) leaves() []leaf {
	var leaves []leaf
	seen := map[string]bool{}
	t := newSight(c.scope)
	t.walk(c.checked.Expr(), func(e ast.Expr) bool {
		slot, read := c.leaf(t, e)
		if read == nil {
			return true
		}
		if text := clip(textOf(e, c.checked), maxMessage); !seen[text] {
			seen[text] = true
			leaves = append(leaves, leaf{text, slot, read})
		}
		return false
	})
	return leaves
}

func (c *compiler) leaf(t *sight, e ast.Expr) (slot int, read func(*Values) (any, error)) {
	if p, is := c.path(t, e); is {
		return p.slot, p.find
	}
	if e.Kind() != ast.SelectKind || !e.AsSelect().IsTestOnly() {
		return 0, nil
	}
	p, is := c.path(t, e.AsSelect().Operand())
	if !is || p.event != nil {
		return 0, nil
	}
	name := e.AsSelect().FieldName()
	return p.slot, func(v *Values) (any, error) {
		found, err := p.find(v)
		if err != nil {
			return nil, err
		}
		object, _ := found.(map[string]any)
		_, has := object[name]
		return has, nil
	}
}

// Bounds of a term's value.
const (
	maxTerm      = 4096 // bytes, about
	maxTermText  = 200  // bytes of a text
	maxTermItems = 10   // of a list or an object
	maxTermDepth = 4
)

// excerpt copies what there is room for.
func excerpt(v any, depth int, size *int) any {
	const least = 8
	if *size -= least; *size < 0 || depth > maxTermDepth {
		return "…"
	}
	switch v := v.(type) {
	case string:
		v = clip(v, min(maxTermText, *size))
		*size -= len(v)
		return v
	case []any:
		list := make([]any, 0, min(len(v), maxTermItems)+1)
		for i, e := range v {
			if i == maxTermItems || *size < 0 {
				return append(list, fmt.Sprintf("… %d more", len(v)-i))
			}
			list = append(list, excerpt(e, depth+1, size))
		}
		return list
	case map[string]any:
		object := make(map[string]any, min(len(v), maxTermItems)+1)
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i == maxTermItems || *size < 0 {
				object["…"] = fmt.Sprintf("%d more", len(v)-i)
				break
			}
			*size -= len(k)
			object[clip(k, maxTermText)] = excerpt(v[k], depth+1, size)
		}
		return object
	case nil, bool, int64, float64, time.Time:
		return v
	}
	return clip(fmt.Sprint(v), maxTermText)
}
