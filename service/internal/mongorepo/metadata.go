package mongorepo

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// metadata is a JSON object. It is a document in the database if every database takes it as one, and gives it back as it was;
// otherwise it is text.
type metadata json.RawMessage

// MarshalBSONValue implements [bson.ValueMarshaler].
func (m metadata) MarshalBSONValue() (typ byte, data []byte, err error) {
	if doc, ok := document(m); ok {
		t, data, err := bson.MarshalValue(doc)
		return byte(t), data, err
	}
	t, data, err := bson.MarshalValue(string(m))
	return byte(t), data, err
}

// UnmarshalBSONValue implements [bson.ValueUnmarshaler].
func (m *metadata) UnmarshalBSONValue(typ byte, data []byte) error {
	value := bson.RawValue{Type: bson.Type(typ), Value: data}
	switch value.Type {
	case bson.TypeString:
		*m = metadata(value.StringValue())
		return nil
	case bson.TypeEmbeddedDocument:
		var doc bson.D
		if err := value.Unmarshal(&doc); err != nil {
			return err
		}
		text, err := appendJSON(nil, doc)
		*m = text
		return err
	}
	*m = metadata("{}")
	return nil
}

// document returns an object as a document, if that loses nothing.
func document(object []byte) (bson.D, bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	value, err := decode(d, 0)
	doc, ok := value.(bson.D)
	if err != nil || !ok {
		return nil, false
	}
	text, err := appendJSON(nil, doc)
	if err != nil {
		return nil, false
	}
	var compact bytes.Buffer
	return doc, json.Compact(&compact, object) == nil && bytes.Equal(compact.Bytes(), text)
}

var errNoDocument = errors.New("not every database takes it as a document")

// maxDepth is what every database takes.
const maxDepth = 80

func decode(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(token.String(), 10, 64); err == nil {
			return n, nil
		}
		return token.Float64()
	case json.Delim:
		if depth == maxDepth {
			return nil, errNoDocument
		}
		if token == '[' {
			return decodeArray(d, depth)
		}
		return decodeObject(d, depth)
	default:
		return token, nil
	}
}

func decodeArray(d *json.Decoder, depth int) (any, error) {
	values := bson.A{}
	for d.More() {
		v, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	_, err := d.Token()
	return values, err
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	doc := bson.D{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := name.(string)
		if key == "" || strings.ContainsAny(key, "$.\x00") {
			return nil, errNoDocument
		}
		v, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		doc = append(doc, eq(key, v))
	}
	_, err := d.Token()
	return doc, err
}

// appendJSON encodes what decode returns.
func appendJSON(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case bson.D:
		b = append(b, '{')
		for i, field := range v {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendJSON(b, field.Key); err != nil {
				return nil, err
			}
			b = append(b, ':')
			if b, err = appendJSON(b, field.Value); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case bson.A:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendJSON(b, item); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte{'\n'})...), nil
}
