package condition

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// provider tells CEL the types of schemas, and of the event. The values stay as they were decoded:
// maps, lists and scalars.
type provider struct{ schemas map[string]*Schema } // by name

// node is an object's by the name of its type.
func (p *provider) node(typeName string) *node {
	if typeName == eventType {
		return eventNode
	}
	schema, _, _ := strings.Cut(typeName, "#")
	if s := p.schemas[schema]; s != nil {
		return s.types[typeName]
	}
	return nil
}

// EnumValue implements [types.Provider]: there are none.
func (p *provider) EnumValue(name string) ref.Val { return types.NewErr("there is no enum %s", name) }

// builtIn are the types that expressions may name.
var builtIn = func() map[string]ref.Val {
	named := map[string]ref.Val{}
	for _, t := range []*types.Type{
		types.BoolType, types.BytesType, types.DoubleType, types.DurationType, types.IntType, types.ListType, types.MapType,
		types.NullType, types.StringType, types.TimestampType, types.TypeType, types.UintType,
	} {
		named[t.TypeName()] = t
	}
	return named
}()

// FindIdent implements [types.Provider].
func (p *provider) FindIdent(name string) (ref.Val, bool) {
	t, found := builtIn[name]
	return t, found
}

// FindStructType implements [types.Provider].
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	n := p.node(name)
	if n == nil {
		return nil, false
	}
	return types.NewTypeTypeWithParam(n.celType), true
}

// FindStructFieldNames implements [types.Provider].
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	n := p.node(name)
	if n == nil {
		return nil, false
	}
	return slices.Sorted(maps.Keys(n.fields)), true
}

// FindStructFieldType implements [types.Provider].
func (p *provider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	n := p.node(name)
	if n == nil || n.fields[fieldName] == nil {
		return nil, false
	}
	return n.fields[fieldName].celField, true
}

// NewValue implements [types.Provider]: expressions make no objects.
func (p *provider) NewValue(name string, _ map[string]ref.Val) ref.Val {
	return types.NewErr("a condition cannot make a %s", name)
}

// NativeToValue implements [types.Adapter].
func (p *provider) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case nil:
		return types.NullValue
	case ref.Val:
		return v
	case string:
		return types.String(v)
	case bool:
		return types.Bool(v)
	case int64:
		return types.Int(v)
	case float64:
		return types.Double(v)
	case map[string]any:
		return types.NewStringInterfaceMap(p, v)
	case []any:
		return types.NewList(p, v)
	case time.Time:
		return types.Timestamp{Time: v}
	case *Values:
		return eventValue{v}
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

// access tells CEL how to read a field. Absent, it is zero; null, too, where it is not allowed:
// of an object that was null or absent itself.
func (f *field) access() *types.FieldType {
	name, zero := f.name, f.node.zero()
	return &types.FieldType{
		Type: f.node.orDyn(),
		IsSet: func(target any) bool {
			object, _ := target.(map[string]any)
			_, is := object[name]
			return is
		},
		GetFrom: func(target any) (any, error) {
			object, _ := target.(map[string]any)
			if v, is := object[name]; is {
				return v, nil
			}
			return zero, nil
		},
	}
}

// eventType is the name of the type of `event`, which no text can say.
const eventType = "event#"

// eventField is a field of `event`.
type eventField struct {
	name    string
	celType *types.Type
	read    func(*Values) any
	text    func(*Values) string // the same of a text, without making an any of it
}

func eventText(name string, read func(*Values) string) eventField {
	return eventField{name, types.StringType, func(v *Values) any { return read(v) }, read}
}

var eventFields = []eventField{
	eventText("id", func(v *Values) string { return v.header().ID }),
	eventText("type", func(v *Values) string { return v.header().Type }),
	{"occurred_at", types.TimestampType, func(v *Values) any { return v.header().OccurredAt }, nil},
	eventText("correlation_id", func(v *Values) string { return v.header().CorrelationID }),
	eventText("causation_id", func(v *Values) string { return v.header().CausationID }),
	eventText("tenant_id", func(v *Values) string { return v.header().TenantID }),
	eventText("station_id", func(v *Values) string { return v.header().StationID }),
	eventText("aggregate_type", func(v *Values) string { return v.header().AggregateType }),
	eventText("aggregate_id", func(v *Values) string { return v.header().AggregateID }),
	eventText("ordering_key", func(v *Values) string { return v.header().OrderKey() }),
	eventText("idempotency_key", func(v *Values) string { return v.header().IdempotencyKey }),
	{"schema_version", types.IntType, func(v *Values) any { return int64(v.header().SchemaVersion) }, nil},
	eventText("severity", func(v *Values) string { return v.Severity }),
}

// maxHeaderText is the most that an envelope has in one of its texts, in bytes.
const maxHeaderText = 1024

// eventNode is that of `event`.
var eventNode = func() *node {
	n := &node{kind: objectNode, typeName: eventType, fields: map[string]*field{}, celType: types.NewObjectType(eventType)}
	for _, f := range eventFields {
		of := &node{kind: dynNode, celType: f.celType, texts: maxHeaderText}
		of.declared.texts = true
		switch f.celType {
		case types.StringType:
			of.kind = textNode
		case types.IntType:
			of.kind = intNode
		}
		if f.name == "severity" {
			of.words = []string{"", "CRITICAL", "NORMAL"}
		}
		n.fields[f.name] = &field{name: f.name, node: of, required: true, celField: &types.FieldType{
			Type:  f.celType,
			IsSet: func(any) bool { return true },
			GetFrom: func(target any) (any, error) {
				v, is := target.(*Values)
				if !is {
					return nil, errors.New("it is no event")
				}
				return f.read(v), nil
			},
		}}
	}
	n.measure()
	return n
}()

// eventValue is `event` where it is a value of its own, as in [event].
type eventValue struct{ of *Values }

// ConvertToNative implements [ref.Val].
func (e eventValue) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("an event is no %s", t)
}

// ConvertToType implements [ref.Val].
func (e eventValue) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return eventNode.celType
	}
	return types.WrapErr(errors.New("an event cannot be converted"))
}

// Equal implements [ref.Val].
func (e eventValue) Equal(other ref.Val) ref.Val {
	o, is := other.(eventValue)
	return types.Bool(is && o.of == e.of)
}

// Type implements [ref.Val].
func (e eventValue) Type() ref.Type { return eventNode.celType }

// Value implements [ref.Val].
func (e eventValue) Value() any { return e.of }
