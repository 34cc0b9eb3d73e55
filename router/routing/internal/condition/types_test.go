package condition

import (
	"reflect"
	"testing"
	"time"

	"cel.dev/cel-go/common/types"

	"github.com/waybill-go/waybill/eventing"
)

// TestAbsent shows what fields read as that are not there, and that has() tells.
func TestAbsent(t *testing.T) {
	t.Parallel()
	s := schema(t, "x/1", `{"type": "object", "properties": {
		"s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}, "l": {"type": "array", "items": {"type": "string"}},
		"m": {"type": "object", "additionalProperties": {"type": "string"}}, "o": {"type": "object", "properties": {"s": {"type": "string"}, "o": {"type": "object", "properties": {"i": {"type": "integer"}}}}},
		"d": {}, "z": {"type": "null"}, "ns": {"type": ["string", "null"]}, "no": {"anyOf": [{"type": "object", "properties": {"s": {"type": "string"}}}, {"type": "null"}]}
	}}`, nil)
	scope, err := NewScope(Variable{"payload", s}, Variable{"items", schema(t, "list/1", `{"type": "array"}`, nil)}, Variable{"text", schema(t, "text/1", `{"type": "string"}`, nil)})
	if err != nil {
		t.Fatal(err)
	}
	full, err := s.Decode([]byte(`{"s": "", "i": 0, "n": 0, "b": false, "l": [], "m": {}, "o": {"s": "", "o": {"i": 0}}, "d": null, "z": null, "ns": null, "no": null}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`payload.s == ""`, `payload.i == 0`, `payload.n == 0.0`, `payload.b == false`, `!payload.b`, `payload.l == []`, `payload.m == {}`, `payload.o.s == ""`, `payload.o.o.i == 0`,
		`payload.o.o.i + 1 == 1`, `size(payload.l) + size(payload.m) == 0`, `!payload.l.exists(x, true)`, `payload.d == null`, `payload.z == null`, `payload.ns == null`, `payload.no == null`, `payload.no.s == ""`,
		`payload.no.s.startsWith("")`, `payload.s <= ""`,
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, v := range []any{full, map[string]any{}, nil} {
			if b, err := p.Bool(&Values{Vars: []any{v}}); err != nil || !b {
				t.Errorf("%s is %v, %v with %v", text, b, err, v)
			}
		}
		if b, err := p.Bool(&Values{}); err != nil || !b {
			t.Errorf("%s is %v, %v without values", text, b, err)
		}
	}
	for _, name := range []string{"s", "i", "n", "b", "l", "m", "o", "d", "z", "ns", "no"} {
		for _, text := range []string{"has(payload." + name + ")", "[has(payload." + name + ")].all(x, x)"} {
			p, err := scope.Compile(text, Bool)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				v    any
				want bool
			}{{full, true}, {map[string]any{}, false}, {nil, false}} {
				if b, err := p.Bool(&Values{Vars: []any{c.v}}); err != nil || b != c.want {
					t.Errorf("%s is %v, %v with %v", text, b, err, c.v)
				}
			}
		}
	}
	p, err := scope.Compile(`items == [] && text == "" && items.size() == 0 && event.id == "" && event.schema_version == 0`, Bool)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := p.Bool(&Values{}); err != nil || !b {
		t.Errorf("variables without values: %v, %v", b, err)
	}
}

// TestEventFields shows all of them, by shortcut and by CEL.
func TestEventFields(t *testing.T) {
	t.Parallel()
	scope, err := NewScope()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2024, 1, 15, 10, 30, 0, 0, time.UTC)
	v := &Values{Severity: "CRITICAL", Event: &eventing.Header{
		ID: "id", Type: "type", OccurredAt: at, CorrelationID: "correlation", CausationID: "causation", TenantID: "tenant", StationID: "station", SchemaVersion: 2,
		AggregateType: "case", AggregateID: "42", IdempotencyKey: "key",
	}}
	for name, want := range map[string]string{
		"id": `"id"`, "type": `"type"`, "occurred_at": `timestamp("2024-01-15T10:30:00Z")`, "correlation_id": `"correlation"`, "causation_id": `"causation"`, "tenant_id": `"tenant"`,
		"station_id": `"station"`, "aggregate_type": `"case"`, "aggregate_id": `"42"`, "ordering_key": `"case/42"`, "idempotency_key": `"key"`, "schema_version": `2`, "severity": `"CRITICAL"`,
	} {
		for _, text := range []string{"event." + name + " == " + want, "[event].all(e, e." + name + " == " + want + ") && has(event." + name + ")"} {
			p, err := scope.Compile(text, Bool)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if b, err := p.Bool(v); err != nil || !b {
				t.Errorf("%s is %v, %v", text, b, err)
			}
		}
	}
	if len(eventFields) != 13 {
		t.Errorf("there are %d fields", len(eventFields))
	}
	v.Event.OrderingKey = "own"
	p, err := scope.Compile(`event.ordering_key`, Text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Text(v); err != nil || got != "own" {
		t.Errorf("the ordering key is %q, %v", got, err)
	}
}

// TestEventValue shows what can be done with `event` as a value: next to nothing.
func TestEventValue(t *testing.T) {
	t.Parallel()
	scope, err := NewScope()
	if err != nil {
		t.Fatal(err)
	}
	v := &Values{Event: &eventing.Header{ID: "a"}}
	for text, want := range map[string]bool{
		`event == event`: true, `[event][0].id == "a"`: true, `{"e": event}["e"].id == "a"`: true, `dyn(event) == 1`: false, `type(event) == int`: false, `type(event) == type(event)`: true,
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if b, err := p.Bool(v); err != nil || b != want {
			t.Errorf("%s is %v, %v", text, b, err)
		}
	}
	e := eventValue{v}
	if _, err := e.ConvertToNative(reflect.TypeFor[string]()); err == nil {
		t.Error("an event is a string")
	}
	if !types.IsError(e.ConvertToType(types.StringType)) || e.Value() != v || e.Type() != eventNode.celType {
		t.Error("an event can be converted")
	}
}

// TestProvider shows that CEL gets to know nothing else.
func TestProvider(t *testing.T) {
	t.Parallel()
	p := &provider{schemas: map[string]*Schema{"case/1": schema(t, "case/1", `{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {}}}}}`, nil)}}
	if names, ok := p.FindStructFieldNames("case/1#"); !ok || !reflect.DeepEqual(names, []string{"a", "b"}) {
		t.Errorf("the fields are %v", names)
	}
	if _, ok := p.FindStructType("case/1#/properties/b"); !ok {
		t.Error("there is no nested type")
	}
	for _, name := range []string{"", "case/1", "case/1#/none", "other#", "google.protobuf.Struct", "event"} {
		_, isType := p.FindStructType(name)
		_, hasNames := p.FindStructFieldNames(name)
		_, hasField := p.FindStructFieldType(name, "a")
		if isType || hasNames || hasField {
			t.Errorf("%q is a type", name)
		}
	}
	if _, ok := p.FindStructFieldType("case/1#", "none"); ok {
		t.Error("there is a field that the schema does not have")
	}
	if v := p.NewValue("case/1#", nil); !types.IsError(v) {
		t.Errorf("it makes %v", v)
	}
	if v := p.EnumValue("x"); !types.IsError(v) {
		t.Errorf("it has an enum: %v", v)
	}
	if v := p.NativeToValue(int32(5)); v != types.Int(5) {
		t.Errorf("an int32 is %v", v)
	}
}
