package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// The page has all of the document, and asks for nothing else.
func TestPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.Version = `1.2<script>alert("x")</script>` })
	w := f.do(httptest.NewRequest(http.MethodGet, "/docs", nil))
	page := w.Body.String()
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("status %d, %s", w.Code, w.Header().Get("Content-Type"))
	}
	_, rest, _ := strings.Cut(page, "<style>")
	style, _, found := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if got := w.Header().Get("Content-Security-Policy"); !found || got != policy {
		t.Errorf("policy %s, want %s", got, policy)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, foreign := range []string{"<script", "<link", "<img", "<iframe", "src=", "//", "url(", "@import", " style=", " onclick"} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q", foreign)
		}
	}
	if !strings.Contains(page, "1.2&lt;script&gt;") {
		t.Error("the version is not escaped, or missing")
	}
	links := regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1)
	for _, link := range links {
		if id, within := strings.CutPrefix(link[1], "#"); within && strings.Count(page, ` id="`+id+`"`) != 1 || !within && link[1] != "/openapi.json" {
			t.Errorf("the link %s leads nowhere", link[1])
		}
	}

	var d document
	raw := f.do(httptest.NewRequest(http.MethodGet, "/openapi.json", nil)).Body.Bytes()
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Operations()) < 10 || len(links) < 50 {
		t.Errorf("%d operations, %d links", len(d.Operations()), len(links))
	}
	for _, op := range d.Operations() {
		_, article, _ := strings.Cut(page, `<article id="`+op.ID+`">`)
		article, _, _ = strings.Cut(article, "</article>")
		parts := []string{op.Method + "</span> " + op.Path + "<", template.HTMLEscapeString(op.Summary)}
		for _, p := range op.Parameters {
			parts = append(parts, "<code>"+p.Name+"</code>")
		}
		for status := range op.Responses {
			parts = append(parts, "<td>"+status+"</td>")
		}
		for _, part := range parts {
			if !strings.Contains(article, part) {
				t.Errorf("%s %s has no %q: %s", op.Method, op.Path, part, article)
			}
		}
	}
	for name, schema := range d.Components.Schemas {
		_, article, _ := strings.Cut(page, `<article id="schema-`+name+`">`)
		article, _, _ = strings.Cut(article, "</article>")
		for property := range schema.Properties {
			if !strings.Contains(article, "<code>"+property+"</code>") {
				t.Errorf("%s has no %s: %s", name, property, article)
			}
		}
	}
	// What to send, as it may be pasted.
	if !strings.Contains(page, "&#34;idempotencyKey&#34;: &#34;courier-x:evt_123&#34;") || !strings.Contains(page, "&#34;shipmentId&#34;: &#34;shp_456&#34;") {
		t.Error("no example of an event")
	}
}

func TestPageEscapes(t *testing.T) {
	t.Parallel()
	const hostile = `"><script>x</script>'`
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	page, _, err := renderPage([]byte(strings.ReplaceAll(`{"openapi": H, "info": {"title": H, "version": H, "description": H},
		"paths": {H: {"get": {"operationId": H, "summary": H, "parameters": [{"name": H, "in": H, "description": H, "example": H, "schema": {"type": H}}],
			"requestBody": {"content": {H: {"schema": {"$ref": "#/components/schemas/S"}}}}, "responses": {H: {"description": H}}, "security": [{H: []}]}}},
		"components": {"schemas": {"S": {"description": H, "properties": {H: {"type": [H], "enum": [H], "examples": [H], "description": H}}}},
			"securitySchemes": {H: {"description": H}}}}`, "H", string(text))))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(page), "<script") || strings.Contains(string(page), `"">`) {
		t.Errorf("got %s", page)
	}
	if _, _, err := renderPage([]byte(`{"paths": 1}`)); err == nil {
		t.Error("rendered what is no document")
	}
}
