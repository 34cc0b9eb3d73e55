package condition

import (
	"fmt"
	"testing"

	"github.com/waybill-go/waybill/eventing"
)

// caseSchema is what the tests compile conditions against.
const caseSchema = `{
	"type": "object",
	"required": ["case_id", "new_status"],
	"properties": {
		"case_id": {"type": "string", "maxLength": 64},
		"new_status": {"type": "string", "enum": ["intake", "validation", "approved", "rejected"]},
		"old_status": {"enum": ["intake", "validation", null]},
		"amount": {"type": "number"},
		"score": {"type": "integer", "minimum": 0},
		"urgent": {"type": "boolean"},
		"flag": {"type": ["boolean", "null"]},
		"nick": {"type": ["string", "null"]},
		"limit": {"type": ["number", "null"]},
		"note": {"type": "string"},
		"other": {"type": "string"},
		"day-of-week": {"type": "string"},
		"meta": {},
		"labels": {"type": "object", "additionalProperties": {"type": "string"}},
		"tags": {"type": "array", "maxItems": 20, "items": {"type": "string", "enum": ["red", "green", "blue"]}},
		"numbers": {"type": "array", "maxItems": 20, "items": {"type": "number"}},
		"signals": {"type": "array", "maxItems": 20, "items": {
			"type": "object",
			"properties": {"kind": {"type": "string", "maxLength": 20}, "weight": {"type": "integer"}}
		}},
		"changed_by": {"$ref": "#/$defs/actor"},
		"approved_by": {"anyOf": [{"$ref": "#/$defs/actor"}, {"type": "null"}]}
	}
}`

const actorSchema = `{
	"type": "object",
	"required": ["user_id"],
	"properties": {
		"user_id": {"type": "string"},
		"role": {"type": "string", "enum": ["case_handler", "supervisor", "system"]},
		"system_triggered": {"type": "boolean"},
		"deputy": {"$ref": "#/$defs/actor"}
	}
}`

const casePayload = `{
	"case_id": "GA-20240115-0042", "new_status": "approved", "old_status": "intake", "amount": 1500, "score": 78, "urgent": false, "note": "wizard completed",
	"tags": ["red", "blue"], "labels": {"team": "north"}, "meta": {"source": "portal"}, "numbers": [1, 2.5],
	"signals": [{"kind": "DUPLICATE_ADDRESS", "weight": 30}, {"kind": "RAPID_REAPPLICATION", "weight": 20}],
	"changed_by": {"user_id": "u1", "role": "case_handler"}
}`

func caseScope(tb testing.TB) (*Scope, *Schema) {
	tb.Helper()
	s := schema(tb, "case_status_changed/1", caseSchema, map[string]any{"actor": decoded(tb, actorSchema)})
	scope, err := NewScope(Variable{"payload", s}, Variable{"any", nil})
	if err != nil {
		tb.Fatal(err)
	}
	return scope, s
}

func caseValues(tb testing.TB, s *Schema) *Values {
	tb.Helper()
	v, err := s.Decode([]byte(casePayload))
	if err != nil {
		tb.Fatal(err)
	}
	dyn, err := DecodeAny([]byte(casePayload))
	if err != nil {
		tb.Fatal(err)
	}
	return &Values{Event: &eventing.Header{ID: "evt_1", Type: "case_status_changed", TenantID: "t1"}, Severity: "NORMAL", Vars: []any{v, dyn}}
}

func BenchmarkBool(b *testing.B) {
	scope, s := caseScope(b)
	values := caseValues(b, s)
	for _, bench := range []struct{ name, text string }{
		{"equal", `payload.new_status == "approved"`},
		{"in", `payload.new_status in ["rejected", "approved"]`},
		{"flag", `!payload.urgent`},
		{"has", `has(payload.amount)`},
		{"nested", `payload.changed_by.role == "supervisor"`},
		{"order", `payload.amount > 1000`},
		{"event", `event.severity == "CRITICAL"`},
		{"and", `payload.new_status == "approved" && !payload.urgent && payload.changed_by.role != "system"`},
		{"dyn", `any.new_status == "approved"`},
		{"cel", `payload.score + 1 == 79`},
		{"mixed", `payload.new_status == "approved" && payload.score * 2 > 100`},
		{"exists", `payload.signals.exists(s, s.weight > 25)`},
	} {
		p, err := scope.Compile(bench.text, Bool)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Bool(values); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkText(b *testing.B) {
	scope, s := caseScope(b)
	values := caseValues(b, s)
	p, err := scope.Compile("payload.changed_by.user_id", Text)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Text(values); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRules tries many rules on one event.
func BenchmarkRules(b *testing.B) {
	const rules = 10_000
	scope, s := caseScope(b)
	values := caseValues(b, s)
	programs := make([]*Program, rules)
	for i := range programs {
		var err error
		if programs[i], err = scope.Compile(fmt.Sprintf(`payload.case_id == "GA-%d" && payload.amount > %d`, i, i), Bool); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range programs {
			if _, err := p.Bool(values); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rules, "ns/rule")
}

func BenchmarkCompile(b *testing.B) {
	scope, _ := caseScope(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := scope.Compile(`payload.new_status == "approved" && !payload.urgent`, Bool); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	_, s := caseScope(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Decode([]byte(casePayload)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompileSchema(b *testing.B) {
	doc, actor := decoded(b, caseSchema), decoded(b, actorSchema)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CompileSchema("case/1", doc, map[string]any{"actor": actor}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewScope(b *testing.B) {
	_, s := caseScope(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewScope(Variable{"payload", s}); err != nil {
			b.Fatal(err)
		}
	}
}
