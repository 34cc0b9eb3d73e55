package condition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
)

// byCEL evaluates all of an expression by CEL.
func byCEL(t interface{ Fatalf(string, ...any) }, scope *Scope, text string, v *Values) (bool, error) {
	checked, issues := scope.env.Compile(text)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", text, issues.Err())
	}
	c := &compiler{scope: scope, checked: checked.NativeRep(), top: newSight(scope), guarded: map[int64]bool{}}
	if err := c.allowed(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	program, err := c.plan(c.checked.Expr())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c.testByCEL(program)(v)
}

// agree compares an outcome with CEL's.
func agree(t interface{ Fatalf(string, ...any) }, scope *Scope, text string, v *Values, got bool, gotErr error) {
	want, wantErr := byCEL(t, scope, text, v)
	if (gotErr == nil) != (wantErr == nil) || gotErr == nil && got != want {
		t.Fatalf("%s is %v, %v; by CEL it is %v, %v, with %v", text, got, gotErr, want, wantErr, v.Vars)
	}
}

// drawCondition makes a condition of the shapes that have shortcuts, and of others.
func drawCondition(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		sub := func(name string) string { return drawCondition(depth-1).Draw(t, name) }
		if depth > 0 {
			switch rapid.IntRange(0, 5).Draw(t, "operator") {
			case 0:
				return "(" + sub("a") + " && " + sub("b") + ")"
			case 1:
				return "(" + sub("a") + " || " + sub("b") + " || " + sub("c") + ")"
			case 2:
				return "!(" + sub("a") + ")"
			case 3:
				return "(" + sub("a") + " ? " + sub("b") + " : " + sub("c") + ")"
			}
		}
		return drawLeaf(t)
	})
}

func drawLeaf(t *rapid.T) string {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	texts := []string{
		"payload.case_id", "payload.new_status", "payload.note", "payload.other", "payload.changed_by.user_id", "payload.changed_by.role",
		"payload.changed_by.deputy.user_id", "payload.`day-of-week`", "event.id", "event.type", "event.severity", "event.tenant_id",
	}
	nullable := []string{"payload.old_status", "payload.nick", "payload.approved_by.user_id"}
	dyn := []string{"payload.meta", "payload.meta.source", "any.new_status", "any.missing", "any.meta.source", "payload.tags[0]", "payload.labels.team", "payload.labels['team']"}
	words := []string{`"approved"`, `"intake"`, `"a"`, `""`, `"supervisor"`, `"NORMAL"`, `"nowhere"`}
	numbers := []string{"payload.amount", "payload.score", "payload.limit"}
	word := func(name string) string { return pick(name, words...) }
	equal := pick("==", "==", "!=")
	switch rapid.IntRange(0, 13).Draw(t, "leaf") {
	case 0:
		return pick("text", texts...) + " " + equal + " " + word("word")
	case 1:
		return word("word") + " " + equal + " " + pick("nullable", append(nullable, dyn...)...)
	case 2:
		return pick("text", texts...) + " " + equal + " " + pick("other text", append(texts, nullable...)...)
	case 3:
		more := pick("more", "", `, "1", "2", "3", "4", "5", "6", "7", "8"`)
		return pick("text", append(append(texts, nullable...), dyn...)...) + " in [" + word("a") + ", " + word("b") + more + "]"
	case 4:
		return pick("flag", "payload.urgent", "payload.flag", "payload.changed_by.system_triggered", "payload.meta", "any.urgent", "true", "false")
	case 5:
		return "has(" + pick("field", "payload.amount", "payload.nick", "payload.changed_by.role", "payload.approved_by.role", "payload.meta", "any.meta", "any.meta.source", "payload.labels.team", "payload.meta.source", "payload.meta.x.y") + ")"
	case 6:
		return pick("text", texts...) + "." + pick("function", "startsWith", "endsWith", "contains") + "(" + word("word") + ")"
	case 7:
		return pick("number", numbers...) + " " + pick("order", "<", "<=", ">", ">=") + " " + pick("bound", "0", "78", "1500", "1500.0", "77.5", "-1", "9007199254740993")
	case 8:
		return pick("bound", "0", "78", "77.0", "77.5", "9.5e15", "9007199254740993") + " " + pick("order", "<", "<=", ">", ">=") + " " + pick("number", numbers...)
	case 9:
		return pick("number", "payload.score == 78", "payload.amount == 1500.0", "payload.limit == 2.5", "payload.limit != null", "payload.nick == null", "payload.approved_by == null",
			"payload.amount == payload.amount", "payload.score != payload.score", "payload.urgent == false", "payload.flag == true", "payload.flag != payload.urgent", "any.score == 78", "payload.meta == null")
	case 10:
		return `payload.tags.exists(x, x == ` + pick("colour", `"red"`, `"blue"`) + `)`
	case 11:
		return `payload.signals.` + pick("macro", "all", "exists", "exists_one") + `(s, s.weight > 25)`
	case 12:
		return pick("error", `payload.tags[7] == "red"`, `payload.score / 0 == 1`, `payload.labels["none"] == ""`, `any.none`, `payload.meta.x.y == "a"`)
	}
	return pick("rest", `size(payload.tags) == 2`, `payload.score + 1 > 78`, `"red" in payload.tags`, `payload.changed_by == payload.changed_by.deputy`, `payload.meta == any.meta`,
		`event.occurred_at < timestamp("2030-01-01T00:00:00Z")`, `payload.numbers.map(n, n * 2.0) == [2.0, 5.0]`, `event.schema_version > 0`, `payload == payload`)
}

// drawPayload leaves out any of the optional parts, and makes null of what may be.
func drawPayload(t *rapid.T) map[string]any {
	maybe := func(into map[string]any, name string, values ...any) {
		if i := rapid.IntRange(-1, len(values)-1).Draw(t, name); i >= 0 {
			into[name] = values[i]
		}
	}
	actor := func(name string, deputy any) map[string]any {
		a := map[string]any{"user_id": rapid.SampledFrom([]string{"", "a", "u1"}).Draw(t, name)}
		maybe(a, "role", "case_handler", "supervisor")
		maybe(a, "system_triggered", true, false)
		if deputy != nil {
			maybe(a, "deputy", deputy)
		}
		return a
	}
	p := map[string]any{
		"case_id":    rapid.SampledFrom([]string{"", "a", "GA-1"}).Draw(t, "case_id"),
		"new_status": rapid.SampledFrom([]string{"intake", "approved"}).Draw(t, "new_status"),
	}
	maybe(p, "old_status", "intake", nil)
	maybe(p, "amount", 0, 1500, 77.5, json.Number("9007199254740992"))
	maybe(p, "score", 0, 77, 78, json.Number("9007199254740993"))
	maybe(p, "urgent", true, false)
	maybe(p, "flag", true, false, nil)
	maybe(p, "nick", "a", nil, "")
	maybe(p, "limit", 2.5, nil, 78)
	maybe(p, "note", "a", "")
	maybe(p, "other", "a", "b")
	maybe(p, "day-of-week", "a")
	maybe(p, "meta", nil, true, "a", map[string]any{"source": "a"}, []any{})
	maybe(p, "labels", map[string]any{}, map[string]any{"team": "a"})
	maybe(p, "tags", []any{}, []any{"red"}, []any{"red", "blue"})
	maybe(p, "numbers", []any{1, 2.5})
	maybe(p, "signals", []any{}, []any{map[string]any{"weight": 30}, map[string]any{"kind": "a"}})
	maybe(p, "changed_by", actor("by", actor("deputy", nil)))
	maybe(p, "approved_by", nil, actor("approver", nil))
	return p
}

// TestShortcutsAgree shows that the Go functions and CEL have the same results.
func TestShortcutsAgree(t *testing.T) {
	t.Parallel()
	scope, s := caseScope(t)
	rapid.Check(t, func(t *rapid.T) {
		text := drawCondition(3).Draw(t, "condition")
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		payload, err := s.Normalise(drawPayload(t))
		if err != nil {
			t.Fatal(err)
		}
		v := &Values{Event: &eventing.Header{ID: "a", Type: "intake"}, Severity: "NORMAL", Vars: []any{payload, map[string]any{"new_status": "a", "urgent": true, "meta": map[string]any{}, "score": int64(78)}}}
		if rapid.Bool().Draw(t, "nothing") {
			v = &Values{}
		}
		got, err := p.Bool(v)
		agree(t, scope, text, v, got, err)
		if value, is := p.Constant(); is && (err != nil || value != got) {
			t.Fatalf("%s is always %v, but it is %v, %v with %v", text, value, got, err, payload)
		}
		first := *v
		first.Vars = v.Vars[:min(len(v.Vars), 1)]
		if holds, decided := p.Early(&first); decided && (err != nil || holds != got) {
			t.Fatalf("%s is decided early as %v, but it is %v, %v with %v", text, holds, got, err, payload)
		}
		again, err := scope.Compile(p.Key(), Bool)
		if err != nil || again.Key() != p.Key() {
			t.Fatalf("the key of %s is %s, whose key is another: %v", text, p.Key(), err)
		}
	})
}

// drawSchema makes a schema, with references to definitions that may refer to themselves.
func drawSchema(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := []string{"string", "integer", "number", "boolean", "null"}
		one := func(name string) any { return drawSchema(depth-1).Draw(t, name) }
		s := map[string]any{}
		n := 5
		if depth > 0 {
			n = 13
		}
		switch rapid.IntRange(0, n).Draw(t, "schema") {
		case 0:
			s["type"] = rapid.SampledFrom(kinds).Draw(t, "type")
		case 1:
			s["type"] = []any{rapid.SampledFrom(kinds).Draw(t, "type"), "null"}
		case 2:
			s["enum"] = []any{"a", "b", rapid.SampledFrom([]any{"c", json.Number("1"), nil, true, json.Number("1.5")}).Draw(t, "enum")}
		case 3:
			s["const"] = rapid.SampledFrom([]any{"a", json.Number("1"), nil, map[string]any{}}).Draw(t, "const")
		case 4:
			s["$ref"] = rapid.SampledFrom([]string{"#/$defs/x", "#/$defs/y"}).Draw(t, "ref")
		case 5:
			return true
		case 6:
			s["type"], s["items"] = "array", one("items")
		case 7:
			s["type"], s["additionalProperties"] = "object", one("entries")
		case 8:
			s[rapid.SampledFrom([]string{"anyOf", "oneOf", "allOf"}).Draw(t, "of")] = []any{one("a"), one("b")}
		case 9:
			s["anyOf"] = []any{map[string]any{"type": "object", "properties": map[string]any{"a": one("a")}, "required": []any{"a"}}, map[string]any{"properties": map[string]any{"a": one("b")}}}
		case 10:
			s["prefixItems"], s["items"] = []any{one("first")}, one("rest")
		default:
			properties := map[string]any{}
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.ID[string]).Draw(t, "names") {
				properties[name] = one(name)
			}
			s["properties"] = properties
			if rapid.Bool().Draw(t, "typed") {
				s["type"] = "object"
			}
		}
		return s
	})
}

func drawInstance(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		n := 8
		if depth > 0 {
			n = 12
		}
		switch rapid.IntRange(0, n).Draw(t, "kind") {
		case 0, 1, 2, 3:
			return rapid.SampledFrom([]any{"a", "b", "c", ""}).Draw(t, "text")
		case 4:
			return nil
		case 5:
			return rapid.Bool().Draw(t, "bool")
		case 6, 7, 8:
			return rapid.SampledFrom([]any{json.Number("1"), json.Number("1.0"), json.Number("1e2"), json.Number("1.5"), json.Number("-7"), json.Number("9223372036854775807")}).Draw(t, "number")
		case 9:
			return rapid.SliceOfN(drawInstance(depth-1), 0, 3).Draw(t, "list")
		}
		object := map[string]any{}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ID[string]).Draw(t, "names") {
			object[name] = drawInstance(depth-1).Draw(t, name)
		}
		return object
	})
}

// TestTypesHold shows that what a schema admits has the types that CEL is told.
func TestTypesHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		definitions := map[string]any{"x": drawSchema(2).Draw(t, "x"), "y": drawSchema(1).Draw(t, "y")}
		doc := drawSchema(3).Draw(t, "schema")
		s, err := CompileSchema("any/1", doc, definitions)
		if err != nil {
			return // it refers to itself without end
		}
		for range 5 {
			if v, err := s.Normalise(drawInstance(3).Draw(t, "instance")); err == nil {
				conforms(t, v, s.root, "")
			}
		}
	})
}

// conforms checks that a value is what CEL is told of it.
func conforms(t interface{ Fatalf(string, ...any) }, v any, n *node, at string) {
	is := map[nodeKind]func(any) bool{
		nullNode: func(v any) bool { return v == nil }, boolNode: isA[bool], intNode: isA[int64], doubleNode: isA[float64], textNode: isA[string],
		listNode: isA[[]any], mapNode: isA[map[string]any],
	}[n.kind]
	if is != nil && !is(v) && (v != nil || !n.nullable) {
		t.Fatalf("%s is a %T, and its type is %s", at, v, n.celType)
	}
	switch v := v.(type) {
	case string:
		if n.words != nil && !slices.Contains(n.words, v) {
			t.Fatalf("%s is %q, none of %q", at, v, n.words)
		}
		if uint64(len(v)) > max(n.texts, maxText) {
			t.Fatalf("%s has %d bytes, more than %d", at, len(v), n.texts)
		}
	case []any:
		for i, e := range v {
			conforms(t, e, n.element(), fmt.Sprintf("%s/%d", at, i))
		}
	case map[string]any:
		if n.kind == objectNode && !n.open && len(v) > len(n.fields) {
			t.Fatalf("%s has more fields than its type: %v", at, slices.Collect(maps.Keys(v)))
		}
		for name, e := range v {
			switch f := n.fields[name]; {
			case f != nil:
				conforms(t, e, f.node, at+"/"+name)
			case n.kind != objectNode:
				conforms(t, e, n.element(), at+"/"+name)
			}
		}
		for name, f := range n.fields {
			if _, has := v[name]; !has && f.required && n.kind == objectNode {
				t.Fatalf("%s has no %s, which is required", at, name)
			}
		}
	case json.Number:
		t.Fatalf("%s is a number as it is written", at)
	}
}

func isA[T any](v any) bool { _, is := v.(T); return is }

// TestKeysAgree shows that blanks and parentheses do not matter.
func TestKeysAgree(t *testing.T) {
	t.Parallel()
	scope, _ := caseScope(t)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawLeaf(t), drawLeaf(t), drawLeaf(t)
		operator := rapid.SampledFrom([]string{" && ", " || "}).Draw(t, "operator")
		var keys []string
		for _, text := range []string{
			a + operator + b + operator + c, "(" + a + operator + b + ")" + operator + c, a + operator + "(" + b + operator + "((" + c + ")))",
			strings.ReplaceAll("\n "+a+operator+b+operator+c+"\t", " ", "  "),
		} {
			p, err := scope.Compile(text, Bool)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			keys = append(keys, p.Key())
		}
		if keys[1] != keys[0] || keys[2] != keys[0] || keys[3] != keys[0] {
			t.Fatalf("the keys differ:\n%s", strings.Join(keys, "\n"))
		}
	})
}
