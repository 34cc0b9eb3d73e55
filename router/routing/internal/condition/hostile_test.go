package condition

import (
	"fmt"
	"strings"
)

// expressions are some of which most compile.
var expressions = []string{
	`payload.new_status == "approved"`, `payload.new_status in ["approved", "rejected"] && !payload.urgent`, `has(payload.amount) || payload.amount > 5`,
	`payload.signals.exists(s, s.kind.startsWith("D") && s.weight > 3)`, `payload.tags.all(t, t != "red")`, `payload.changed_by.deputy.deputy.user_id == event.id`,
	`any.x.y[0] == "a"`, `"a" in payload.labels`, `size(payload.note) > 3 ? payload.flag : payload.urgent`, `payload.numbers.map(n, n * 2.0)[0] == 2.0`,
	`payload.case_id.matches("^GA-[0-9]+$")`, `event.occurred_at.getHours("Europe/Berlin") > 8`, `duration("1h") < event.occurred_at - timestamp(0)`,
	`[event].exists(e, e.type == "case")`, `{"a": [1, 2u, 3.0]}["a"][0] == 1`, `type(payload.score) == int`, `dyn(payload).none == b"\x00"`, "payload.`day-of-week` == 'mon'",
	`any == payload`, `any.list == [any.list]`, `.payload.score == 1`, `[payload].exists(payload, payload == .payload)`, `payload.nick == null`, `1 == 1.0 || 1 < 2u`,
	`payload.signals.filter(s, s.weight > 1).map(s, s.kind).exists_one(k, k == "x")`, `any.exists(k, any[k] == k)`, `payload.labels.exists(k, payload.labels[k] == "x")`,
}

// bombs are expressions that take for ever, or memory without end, if nothing is done about it.
func bombs() []string {
	double := `"0123456789"`
	for range 40 {
		double = "[" + double + "].map(s, s + s)[0]"
	}
	nested := `any.a.exists(x, x == 1)`
	for i := range 8 {
		nested = fmt.Sprintf("any.a.exists(x%d, %s)", i, nested)
	}
	lists := `[[0]]`
	for range 20 {
		lists = "[" + lists + "].map(l, [l, l, l, l])"
	}
	return []string{
		double + ` == ""`,
		nested,
		lists + ` == ` + lists,
		`any.a.exists(x, any.b.exists(y, any.c.exists(z, x == z)))`,
		`any.a.map(x, any.b.map(y, any.c.map(z, x))) == []`,
		`any.a.exists(x, any.b == any.c)`,
		`any.a.all(x, any.a.all(y, x == y))`,
		`payload.note.matches("(a?){200}a{200}")`,
		`any.a.exists(x, payload.note.contains(x))`,
		`any.a.map(x, payload.note + payload.note) == []`,
		`(` + strings.TrimSuffix(strings.Repeat("any.a + ", 400), " + ") + `).exists(x, x == 1)`,
		strings.TrimSuffix(strings.Repeat("payload.note + ", 250), " + ") + ` == ""`,
		strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100),
		strings.Repeat("!", 4000) + "true",
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + " == []",
		"any" + strings.Repeat(".a", 2000) + " == 1",
		strings.TrimSuffix(strings.Repeat("true && ", 500), " && "),
		strings.Repeat("true ? true : ", 280) + "true",
		`"` + strings.Repeat("a", 4000) + `" == ""`,
		`payload.note.matches("` + strings.Repeat("(a*)*", 190) + `")`,
		`timestamp(payload.note).getHours(payload.note) == 1`,
		`any.a.exists(x, timestamp(x).getHours("Europe/Berlin") == 1)`,
		`{any.a: any.b} == {any.b: any.a}`,
		`any.a.map(x, {"k": any}).exists(m, m == {"k": any})`,
		`any.a.map(x, any.a).exists(y, y.exists(z, z == any))`,
		`[any.a, any.a, any.a].exists(x, x.exists(y, y.exists(z, z == "a")))`,
		`any.a in any.b && any.b in any.a`,
		`any.a.exists(x, x in any.b)`,
		`b"` + strings.Repeat(`\x00`, 900) + `" + bytes(payload.note) == b""`,
	}
}

// hostileSchemas are documents that are no schemas, or that take for ever to compile or to check with.
func hostileSchemas() []string {
	var properties []string
	for i := range 3000 {
		properties = append(properties, fmt.Sprintf(`"p%d": {"type": "string"}`, i))
	}
	doubling := `{"$defs": {"a0": {"type": "string"}`
	for i := range 40 {
		doubling += fmt.Sprintf(`, "a%d": {"allOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]}`, i+1, i, i)
	}
	branching := strings.ReplaceAll(doubling, "allOf", "anyOf")
	return []string{
		`{"$ref": "#"}`,
		`{"allOf": [{"$ref": "#"}]}`,
		`{"anyOf": [{"type": "string"}, {"$ref": "#"}]}`,
		`{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}`,
		`{"$ref": "#/$defs/none"}`,
		`{"$ref": "other.json"}`,
		`{"$ref": "https://example.com/schema.json"}`,
		`{"$ref": "file:///etc/passwd"}`,
		`{"$schema": "https://example.com/meta"}`,
		`{"$dynamicRef": "#a", "$dynamicAnchor": "a"}`,
		`{"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"}`,
		`{"type": "wrong"}`,
		`{"properties": []}`,
		`{"pattern": "("}`,
		`{"pattern": "(a{1000}){1000}"}`,
		`{"pattern": "` + strings.Repeat("a{900}", 150) + `"}`,
		`{"pattern": "` + strings.Repeat("a", 2000) + `"}`,
		`{"minimum": 1e999999999}`,
		`{"multipleOf": 1e-999999999}`,
		`{"maxLength": 1e400}`,
		`{"const": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
		`{"properties": {` + strings.Join(properties, ", ") + `}}`,
		doubling + `}, "$ref": "#/$defs/a40"}`,
		branching + `}, "$ref": "#/$defs/a40"}`,
		branching + `}, "properties": {"a": {"$ref": "#/$defs/a40"}}}`,
		`{"anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}, "b": {"type": "string"}}}]}`,
		`[]`, `null`, `"schema"`, `1`, `false`,
		`{"description": "` + strings.Repeat("a", 2<<20) + `"}`,
	}
}
