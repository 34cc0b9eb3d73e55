package middleware_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

const orderSchema = `{
	"type": "object", "required": ["number"], "additionalProperties": false,
	"properties": {
		"number": {"type": "string", "maxLength": 5},
		"total": {"type": "number", "minimum": 0, "multipleOf": 0.01},
		"placed": {"type": "string", "format": "date-time"},
		"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}
	},
	"$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"a/b~c": {"const": 1}}}}
}`

func schemas(t *testing.T, cfg middleware.SchemasConfig) *middleware.Schemas {
	t.Helper()
	s := middleware.NewSchemas(cfg)
	if err := s.Add("OrderPlaced", 1, []byte(orderSchema)); err != nil {
		t.Fatal(err)
	}
	return s
}

func placed(version int, payload string) eventing.Envelope {
	return eventing.Envelope{
		Header:  eventing.Header{ID: "e1", Type: "OrderPlaced", OccurredAt: time.Now(), CorrelationID: "c", SchemaVersion: version},
		Payload: json.RawMessage(payload),
	}
}

// reason is where a dead letter shows the reason code of an error.
func reason(t *testing.T, err error) eventing.ReasonCode {
	t.Helper()
	var p topic
	if _, passed := call(deadLetter(t, &p), nil, func(*message.Message) ([]*message.Message, error) { return nil, err }); passed != nil || len(p.messages) != 1 {
		t.Fatalf("%v is no permanent error", err)
	}
	return eventing.ReasonCode(p.messages[0].Metadata.Get(middleware.MetadataReasonCode))
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	s := schemas(t, middleware.SchemasConfig{})
	for name, c := range map[string]struct {
		payload string
		says    string // empty: it satisfies the schema
	}{
		"what satisfies it": {`{"number":"7","total":1.10,"placed":"2026-01-01T00:00:00Z","lines":[{"sku":"a"}]}`, ""},
		"several places at fault, and no values": {
			`{"number":"a secret","total":-1,"lines":[{"sku":"a"},{}]}`, "OrderPlaced version 1: /lines/1 (required), /number (maxLength), /total (minimum)",
		},
		"the whole":                 {`[]`, "payload (type)"},
		"what is missing":           {`{}`, "payload (required)"},
		"what should not be there":  {`{"number":"7","password":"x"}`, "payload (additionalProperties)"},
		"a format":                  {`{"number":"7","placed":"yesterday"}`, "/placed (format)"},
		"a name that is escaped":    {`{"number":"7","lines":[{"sku":"a","a/b~c":2}]}`, "/lines/0/a~1b~0c (const)"},
		"an exact number":           {`{"number":"7","total":0.005}`, "/total (multipleOf)"},
		"an exponent beyond reason": {`{"number":"7","total":1e1000000000}`, "larger exponent"},
		"another":                   {`{"number":"7","total":1E-99999999999999999999}`, "larger exponent"},
		"too many digits":           {`{"number":"7","total":1` + strings.Repeat("0", 1000) + `}`, "more digits"},
		"many places, of which ten": {`{"number":"7","lines":[` + strings.Repeat(`1,`, 99) + `1]}`, "(type), and 90 more"},
		"more than are collected":   {`{"number":"7","lines":[` + strings.Repeat(`1,`, 100_000) + `1]}`, "(type), and many more"},
		"what is no JSON":           {`{`, "no JSON"},
		"more than one value":       {`{"number":"7"} {}`, "no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := s.Check(placed(1, c.payload))
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") || len(err.Error()) > 1400 {
				t.Fatalf("the error must say %q: %v", c.says, err)
			}
			if got := reason(t, err); got != middleware.ReasonSchemaViolation {
				t.Errorf("its reason is %s", got)
			}
		})
	}
}

func TestSchemasOfUnknownEvents(t *testing.T) {
	t.Parallel()
	for _, e := range []eventing.Envelope{placed(2, `{}`), {Header: eventing.Header{Type: "OrderCancelled", SchemaVersion: 1}, Payload: []byte(`{}`)}} {
		if err := schemas(t, middleware.SchemasConfig{}).Check(e); reason(t, err) != middleware.ReasonSchemaUnknown {
			t.Errorf("what is unknown is refused: %v", err)
		}
		if err := schemas(t, middleware.SchemasConfig{AllowUnknown: true}).Check(e); err != nil {
			t.Errorf("unless it is allowed: %v", err)
		}
	}
}

func TestSchemaMiddleware(t *testing.T) {
	t.Parallel()
	s := schemas(t, middleware.SchemasConfig{})
	handle := func(e eventing.Envelope) (handled bool, err error) {
		m, err := eventing.EnvelopeCodec{}.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Middleware(func(*message.Message) ([]*message.Message, error) {
			handled = true
			return nil, nil
		})(m)
		return handled, err
	}
	if handled, err := handle(placed(1, `{"number":"7"}`)); !handled || err != nil {
		t.Errorf("what satisfies its schema is handled: %v", err)
	}
	if handled, err := handle(placed(1, `{}`)); handled || reason(t, err) != middleware.ReasonSchemaViolation {
		t.Errorf("what does not is not: %v", err)
	}
	if _, err := call(s.Middleware, nil, produce()); reason(t, err) != eventing.ReasonEnvelopeMalformed {
		t.Errorf("nor what is no envelope: %v", err)
	}
}

// Nothing is loaded: no schema may depend on what somebody else can change, or on a
// server that is in reach of this process only.
func TestSchemasLoadNothing(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was asked for", r.URL) }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, ref := range []string{server.URL + "/schema.json", "file://" + file, file, "other.json", "urn:other"} {
		for _, schema := range []string{`{"$ref": %q}`, `{"$schema": %q}`} {
			if err := middleware.NewSchemas(middleware.SchemasConfig{}).Add("T", i+1, fmt.Appendf(nil, schema, ref)); err == nil {
				t.Errorf("%s of %s must be refused", schema, ref)
			}
		}
	}
}

func TestSchemasRefuse(t *testing.T) {
	t.Parallel()
	s := schemas(t, middleware.SchemasConfig{})
	for says, c := range map[string]struct {
		eventType string
		version   int
		schema    string
	}{
		"there is one already":      {"OrderPlaced", 1, `{}`},
		"a version from 1":          {"OrderPlaced", 0, `{}`},
		"an event type":             {"", 1, `{}`},
		"more than 1048576":         {"OrderPlaced", 2, `{"title":"` + strings.Repeat("x", middleware.MaxSchemaBytes) + `"}`},
		"unexpected EOF":            {"OrderPlaced", 2, `{`},
		"OrderPlaced version 2":     {"OrderPlaced", 2, `{"type":"no such"}`},
		"schema of OrderPlaced ver": {"OrderPlaced", 2, `{"pattern":"("}`},
	} {
		if err := s.Add(c.eventType, c.version, []byte(c.schema)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error must say %q: %v", says, err)
		}
	}
}

func FuzzSchemasCheck(f *testing.F) {
	s := middleware.NewSchemas(middleware.SchemasConfig{})
	if err := s.Add("OrderPlaced", 1, []byte(orderSchema)); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"number":"7","total":1e400,"lines":[{"sku":"a","a/b~c":1.0}]}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if err := s.Check(eventing.Envelope{Header: eventing.Header{Type: "OrderPlaced", SchemaVersion: 1}, Payload: payload}); err != nil && !eventing.IsPermanent(err) {
			t.Errorf("no retry can mend %s: %v", payload, err)
		}
	})
}
