package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/service/internal/schemas"
)

func TestSchemas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	get := func(path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
		return f.do(r)
	}
	var list schemaList
	w := get("/schemas")
	if wantJSON(t, w, http.StatusOK, &list); len(list.Schemas) != len(schemas.All()) || w.Header().Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("got %s, %v", w.Body, w.Header())
	}
	for i, item := range list.Schemas {
		w := get(item.Href)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/schema+json" || !bytes.Equal(w.Body.Bytes(), schemas.All()[i].Text) ||
			w.Header().Get("Cache-Control") != "public, max-age=3600" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %v", item.Href, w.Code, w.Header())
		}
		if again := get(item.Href, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d %s", item.Href, again.Code, again.Body)
		}
	}
	for _, path := range []string{"/schemas/courier-event/2", "/schemas/courier-event/01", "/schemas/courier-event/x", "/schemas/nothing/1"} {
		w := get(path)
		wantProblem(t, w, 404, "GET /schemas")
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
}

// What the OpenAPI document says of an event is what its schema says, and it says where that is.
func TestOpenAPIAndSchemaAgree(t *testing.T) {
	t.Parallel()
	raw := newFixture(t).do(httptest.NewRequest(http.MethodGet, "/openapi.json", nil)).Body.Bytes()
	if !bytes.Contains(raw, []byte("/schemas/courier-event/1")) {
		t.Error("the OpenAPI document does not name the event's schema")
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	s, _ := schemas.Find("courier-event", 1)
	var text struct {
		Defs map[string]*schema `json:"$defs"`
		schema
	}
	if err := json.Unmarshal(s.Text, &text); err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]*schema{
		"EventBody":    {d.Components.Schemas["EventBody"], &text.schema},
		"EventPayload": {d.Components.Schemas["EventPayload"], text.Properties["payload"]},
	} {
		of, want := pair[0].Fields(), pair[1].Fields()
		if len(of) != len(want) {
			t.Fatalf("%s has %d fields, the schema %d", name, len(of), len(want))
		}
		for i, f := range of {
			w := want[i].Schema
			if ref, is := strings.CutPrefix(w.Ref, "#/$defs/"); is {
				w = text.Defs[ref]
			}
			sameLength := f.Schema.MaxLength == nil && w.MaxLength == nil || f.Schema.MaxLength != nil && w.MaxLength != nil && *f.Schema.MaxLength == *w.MaxLength
			if f.Name != want[i].Name || f.Required != want[i].Required || !sameLength || f.Schema.Ref == "" && typeOf(f.Schema) != typeOf(w) {
				t.Errorf("%s: %+v %s, the schema has %+v %s", name, f, typeOf(f.Schema), want[i], typeOf(w))
			}
		}
	}
}
