package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/waybill-go/waybill/service/internal/schemas"
)

type schemaItem struct {
	EventType string `json:"eventType" example:"courier-event"`
	Version   int    `json:"version" example:"1"`
	ID        string `json:"id" doc:"The schema's $id." example:"urn:waybill:schema:courier-event:1"`
	Title     string `json:"title" example:"Courier event"`
	Href      string `json:"href" doc:"Where it is." example:"/schemas/courier-event/1"`
}

type schemaList struct {
	Schemas []schemaItem `json:"schemas"`
}

const contentTypeSchema = "application/schema+json"

// schemas registers the endpoints of JSON Schemas.
func (a *api) schemas(d documenter, document *huma.OpenAPI) {
	a.router.Get("/schemas", a.listSchemas)
	a.router.Get("/schemas/{eventType}/{version}", a.schema)

	list := d.operation("list-schemas", http.MethodGet, "/schemas", "JSON Schemas of what the gateway takes in and sends", "")
	list.Responses["200"] = &huma.Response{Description: "All of them.", Content: d.content(contentTypeJSON, schemaList{})}
	one := d.operation("get-schema", http.MethodGet, "/schemas/{eventType}/{version}", "A JSON Schema, draft 2020-12", "", 404)
	one.Parameters = []*huma.Param{
		{Name: "eventType", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}, Example: "courier-event"},
		{Name: "version", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeInteger}, Example: 1},
	}
	one.Responses["200"] = &huma.Response{Description: "It may be cached, and has an ETag.", Content: map[string]*huma.MediaType{contentTypeSchema: {}}}
	document.AddOperation(&list)
	document.AddOperation(&one)
}

func (a *api) listSchemas(w http.ResponseWriter, r *http.Request) {
	var list schemaList
	for _, s := range schemas.All() {
		list.Schemas = append(list.Schemas, schemaItem{s.Type, s.Version, s.ID, s.Title, s.Path()})
	}
	cacheable(w)
	a.answer(w, r, http.StatusOK, contentTypeJSON, list)
}

func (a *api) schema(w http.ResponseWriter, r *http.Request) {
	version, err := strconv.Atoi(chi.URLParam(r, "version"))
	s, ok := schemas.Find(chi.URLParam(r, "eventType"), version)
	if err != nil || !ok || chi.URLParam(r, "version") != strconv.Itoa(version) {
		a.refuse(w, r, problemNotFound.with("there is no schema of this type and version; GET /schemas lists them"))
		return
	}
	sum := sha256.Sum256(s.Text)
	cacheable(w)
	w.Header().Set("Content-Type", contentTypeSchema)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.Text))
}

// cacheable lets anybody keep the answer for an hour.
func cacheable(w http.ResponseWriter) { w.Header().Set("Cache-Control", "public, max-age=3600") }
