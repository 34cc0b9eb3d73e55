package httpapi

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// document is what the page shows of an OpenAPI document.
type document struct {
	OpenAPI string
	Info    struct{ Title, Version, Description string }
	Paths   map[string]map[string]*operation

	Components struct {
		Schemas         map[string]*schema
		SecuritySchemes map[string]struct{ Description string }
	}
}

type operation struct {
	ID          string `json:"operationId"`
	Summary     string
	Description string
	Parameters  []struct {
		Name, In, Description string
		Required              bool
		Schema                *schema
		Example               any
	}
	RequestBody *struct {
		Required bool
		Content  map[string]struct{ Schema *schema }
	}
	Responses map[string]struct {
		Description string
		Content     map[string]struct{ Schema *schema }
	}
	Security []map[string][]string

	Method, Path string `json:"-"`
}

// schema is one of the kinds that the gateway's document has.
type schema struct {
	Ref         string `json:"$ref"`
	Type        any    // a name, or several
	Format      string
	Description string
	Enum        []any
	Examples    []any
	Items       *schema
	Properties  map[string]*schema
	Required    []string
	MinLength   *int
	MaxLength   *int
}

// renderPage writes an OpenAPI document as a page for people. It needs nothing beside it: no script, no other request.
func renderPage(openAPI []byte) (page []byte, policy string, err error) {
	var d document
	if err := json.Unmarshal(openAPI, &d); err != nil {
		return nil, "", err
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(pageCSS) }, //nolint:gosec // our own file
		"type":  typeOf, "bounds": boundsOf, "example": d.example, "name": refName, "yes": func(v any) bool { return v != nil }, "text": inJSON,
	}).Parse(pageHTML)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, &d); err != nil {
		return nil, "", err
	}
	style := sha256.Sum256([]byte(pageCSS))
	return b.Bytes(), "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", nil
}

// page returns the handler of GET /docs.
func (a *api) page(openAPI []byte) (http.HandlerFunc, error) {
	page, policy, err := renderPage(openAPI)
	if err != nil {
		return nil, fmt.Errorf("render the OpenAPI document: %w", err)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		if _, err := w.Write(page); err != nil {
			a.Logger.DebugContext(r.Context(), "write the answer", "error", err, "traceId", traceID(r.Context()))
		}
	}, nil
}

// Operations returns those of the document, the versioned ones first.
func (d *document) Operations() (all []*operation) {
	for path, methods := range d.Paths {
		for method, op := range methods {
			op.Method, op.Path = strings.ToUpper(method), path
			all = append(all, op)
		}
	}
	open := func(o *operation) int {
		if strings.HasPrefix(o.Path, "/v1/") {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b *operation) int {
		return cmp.Or(cmp.Compare(open(a), open(b)), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return all
}

// property is a field of an object.
type property struct {
	Name     string
	Required bool
	Schema   *schema
}

// Fields returns the properties, the required ones first.
func (s *schema) Fields() (all []property) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, property{name, slices.Contains(s.Required, name), s.Properties[name]})
	}
	slices.SortStableFunc(all, func(a, b property) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return all
}

const refPrefix = "#/components/schemas/"

// refName returns the name of the schema that s, or what it lists, refers to.
func refName(s *schema) string {
	if s != nil && s.Items != nil {
		s = s.Items
	}
	if s == nil {
		return ""
	}
	name, _ := strings.CutPrefix(s.Ref, refPrefix)
	return name
}

// typeOf says what kind of value a schema describes, but for what it refers to.
func typeOf(s *schema) string {
	if s == nil {
		return ""
	}
	var names []string
	switch t := s.Type.(type) {
	case string:
		names = []string{t}
	case []any:
		for _, name := range t {
			names = append(names, fmt.Sprint(name))
		}
	}
	if s.Items != nil {
		return strings.TrimSpace("array of " + typeOf(s.Items))
	}
	text := strings.Join(names, " or ")
	if s.Format != "" {
		text += " (" + s.Format + ")"
	}
	return text
}

// boundsOf says what else a value must satisfy.
func boundsOf(s *schema) string {
	var parts []string
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, fmt.Sprint(v))
		}
		parts = append(parts, "one of "+strings.Join(values, ", "))
	}
	if s.MinLength != nil {
		parts = append(parts, fmt.Sprintf("at least %d long", *s.MinLength))
	}
	if s.MaxLength != nil {
		parts = append(parts, fmt.Sprintf("at most %d long", *s.MaxLength))
	}
	return strings.Join(parts, "; ")
}

// example returns a value of a schema as JSON, of the examples in it; empty, if it has none.
func (d *document) example(s *schema) string {
	v, ok := d.exampleOf(s)
	if !ok {
		return ""
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return ""
	}
	return string(b)
}

func (d *document) exampleOf(s *schema) (v any, ok bool) {
	if s == nil {
		return nil, false
	}
	if name, is := strings.CutPrefix(s.Ref, refPrefix); is {
		return d.exampleOf(d.Components.Schemas[name])
	}
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0], true
	case len(s.Enum) > 0:
		return s.Enum[0], true
	case s.Items != nil:
		item, ok := d.exampleOf(s.Items)
		return []any{item}, ok
	}
	object := map[string]any{}
	for name, p := range s.Properties {
		if v, has := d.exampleOf(p); has {
			object[name] = v
		}
	}
	return object, len(object) > 0
}

// inJSON is a value as it stands in JSON, but for strings, which need no quotes to be read.
func inJSON(v any) string {
	if s, is := v.(string); is {
		return s
	}
	b, _ := json.Marshal(v) // it came from JSON
	return string(b)
}
