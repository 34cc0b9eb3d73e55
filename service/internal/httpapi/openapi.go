package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/credentials"
)

// eventBody documents what the intake takes; [courier.Parse] checks it.
type eventBody struct {
	_              struct{}     `additionalProperties:"true"`
	EventID        string       `json:"eventId" minLength:"1" maxLength:"255" doc:"The courier's own name for the event." example:"evt_123"`
	EventType      string       `json:"eventType" minLength:"1" maxLength:"128" example:"shipment.status.updated"`
	OccurredAt     time.Time    `json:"occurredAt" doc:"When it happened, by the courier's clock (RFC 3339)." example:"2026-02-26T12:00:00Z"`
	Source         string       `json:"source" minLength:"1" maxLength:"255" doc:"Who sends." example:"courier-x"`
	IdempotencyKey string       `json:"idempotencyKey" minLength:"1" maxLength:"255" doc:"One key, one event: a repeat with the same body changes nothing, another body is refused." example:"courier-x:evt_123"`
	Payload        eventPayload `json:"payload"`
}

type eventPayload struct {
	_          struct{} `additionalProperties:"true"`
	ShipmentID string   `json:"shipmentId" minLength:"1" maxLength:"255" example:"shp_456"`
	OrderID    *string  `json:"orderId,omitempty" nullable:"true" maxLength:"255" example:"ord_789"`
	Status     *string  `json:"status,omitempty" nullable:"true" maxLength:"1024" doc:"Null or absent leaves the shipment's state as it is." example:"out_for_delivery"`
}

// routes registers every endpoint together with its documentation.
func (a *api) routes() error {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Waybill courier gateway", Version: a.Version,
				Description: "Takes couriers' signed events, stores them durably, and tells what became of them.",
				License:     &huma.License{Name: "MIT", Identifier: "MIT"},
			},
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"adminToken": {Type: "http", Scheme: "bearer", Description: "The gateway's ADMIN_TOKEN, which may do everything, or a token of its ADMIN_TOKENS_FILE, with the scopes read, or read and operate."},
					"signature": {Type: "apiKey", In: "header", Name: courier.HeaderSignature,
						Description: "HMAC-SHA256, in hexadecimal or base64, over the value of X-Signature-Timestamp, a dot, and the raw body. The secret may be bound to one source: then it signs for no other."},
				},
			},
		},
		Formats:       huma.DefaultFormats,
		DefaultFormat: contentTypeJSON,
	}
	d := documenter{registry: registry}
	reads := humachi.New(a.router.With(a.bearer(credentials.ScopeRead)), config)
	huma.Register(reads, d.operation("get-shipment", http.MethodGet, "/v1/shipments/{shipmentId}",
		"The shipment as its latest event by event time left it", "adminToken", 401, 403, 404, 503), a.shipment)
	huma.Register(reads, d.operation("get-event", http.MethodGet, "/v1/events/{eventId}",
		"What became of an event", "adminToken", 401, 403, 404, 503), a.events)

	a.deadLetters(d, reads.OpenAPI())
	a.schemas(d, reads.OpenAPI())

	// Without this, GET would fall through to the event that is called "courier".
	a.router.Handle(intakePath, a.allowOnly(http.MethodPost))
	a.router.Post(intakePath, a.intake)
	intake := d.operation("accept-event", http.MethodPost, intakePath,
		"Accept a courier's event, durably", "signature", 400, 401, 405, 408, 409, 413, 415, 503)
	intake.Description = "The JSON Schema of the body is at /schemas/courier-event/1."
	intake.Parameters = signatureParameters()
	intake.RequestBody = &huma.RequestBody{Required: true, Content: d.content(contentTypeJSON, eventBody{})}
	intake.Responses["202"] = &huma.Response{Description: "Stored: the event will be handled.", Content: d.content(contentTypeJSON, accepted{})}
	reads.OpenAPI().AddOperation(&intake)

	a.router.Get("/healthz", a.healthz)
	a.router.Get("/readyz", a.readyz)
	a.metrics()
	for _, op := range []huma.Operation{
		d.operation("get-health", http.MethodGet, "/healthz", "Whether the process serves", ""),
		d.operation("get-readiness", http.MethodGet, "/readyz", "Whether all that the gateway needs is there", "", 503),
	} {
		op.Responses["200"] = &huma.Response{Description: "Yes.", Content: d.content(contentTypeJSON, health{})}
		reads.OpenAPI().AddOperation(&op)
	}

	if a.Metrics != nil {
		d.openText(reads.OpenAPI(), "get-metrics", "/metrics", "What Prometheus scrapes", "text/plain", "Prometheus's text format.")
	}

	d.openText(reads.OpenAPI(), "get-docs", "/docs", "This document as a page for people", "text/html", "The page.")
	delete(registry.Map(), "ErrorModel") // huma's own problem, which nothing here answers with
	// Encoded once, here: huma's own endpoint encodes on first use, unlocked.
	document, err := json.Marshal(reads.OpenAPI())
	if err != nil {
		return fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	a.router.Get("/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		a.answer(w, r, http.StatusOK, "application/openapi+json", json.RawMessage(document))
	})
	page, err := a.page(document)
	if err != nil {
		return err
	}
	a.router.Get("/docs", page)
	return nil
}

// deadLetters registers the endpoints of dead letters.
func (a *api) deadLetters(d documenter, document *huma.OpenAPI) {
	a.router.With(a.bearer(credentials.ScopeRead)).Get("/v1/dead-letters", a.listDeadLetters)
	list := d.operation("list-dead-letters", http.MethodGet, "/v1/dead-letters", "Dead letters, the oldest first", "adminToken", 400, 401, 403, 503)
	text := &huma.Schema{Type: huma.TypeString}
	list.Parameters = []*huma.Param{
		{Name: "status", In: "query", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"pending", "reviewed", "replayed", "closed"}}},
		{Name: "consumer", In: "query", Schema: text},
		{Name: "limit", In: "query", Schema: &huma.Schema{Type: huma.TypeInteger}, Description: "1 to 1000; 100 by default."},
		{Name: "after", In: "query", Schema: text, Description: "The next of an earlier answer."},
	}
	list.Responses["200"] = &huma.Response{Description: "A page.", Content: d.content(contentTypeJSON, deadLetterPage{})}
	document.AddOperation(&list)
	for _, act := range []struct {
		name, summary string
		do            func(ctx context.Context, t eventing.Target, by, note string) error
	}{
		{"review", "Mark a dead letter as looked at", a.DeadLetters.Review},
		{"replay", "Send a dead letter to its consumer again", a.DeadLetters.Replay},
		{"discard", "Give a dead letter up for good", a.DeadLetters.Discard},
	} {
		path := "/v1/dead-letters/{eventId}/{consumer}/" + act.name
		a.router.Post(path, a.act(act.name, act.do))
		op := d.operation(act.name+"-dead-letter", http.MethodPost, path, act.summary+" (scope: operate)", "adminToken", 400, 401, 403, 404, 409, 413, 415, 503)
		op.Parameters = []*huma.Param{
			{Name: "eventId", In: "path", Required: true, Schema: text, Description: "The envelope's event id, as the list has it."},
			{Name: "consumer", In: "path", Required: true, Schema: text, Description: "As the list has it."},
		}
		op.RequestBody = &huma.RequestBody{Required: act.name == "discard", Content: d.content(contentTypeJSON, actBody{})}
		op.Responses["200"] = &huma.Response{Description: "Done, and recorded.", Content: d.content(contentTypeJSON, acted{})}
		document.AddOperation(&op)
	}
}

type documenter struct{ registry huma.Registry }

// openText adds an operation that anybody may GET, and whose answer is no JSON.
func (d documenter) openText(document *huma.OpenAPI, id, path, summary, contentType, answer string) {
	op := d.operation(id, http.MethodGet, path, summary, "")
	op.Responses = map[string]*huma.Response{"200": {Description: answer, Content: map[string]*huma.MediaType{contentType: {}}}}
	document.AddOperation(&op)
}

func (d documenter) content(contentType string, v any) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{contentType: {Schema: d.registry.Schema(reflect.TypeOf(v), true, "")}}
}

func (d documenter) operation(id, method, path, summary, security string, problems ...int) huma.Operation {
	op := huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary,
		SkipValidateParams: true, // the handlers do, and answer with our problems
		Responses:          map[string]*huma.Response{},
	}
	if security != "" {
		op.Security = []map[string][]string{{security: {}}}
	}
	for _, status := range append(problems, http.StatusInternalServerError) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content:     d.content(problemContentType, problem{}),
		}
	}
	return op
}

func signatureParameters() []*huma.Param {
	text := &huma.Schema{Type: huma.TypeString}
	return []*huma.Param{
		{Name: courier.HeaderTimestamp, In: "header", Required: true, Schema: text, Description: "When the request was signed, in Unix seconds.", Example: "1772107200"},
		{Name: courier.HeaderSignature, In: "header", Required: true, Schema: text, Description: "HMAC-SHA256 over \"<timestamp>.<raw body>\", hexadecimal or base64."},
		{Name: courier.HeaderKeyID, In: "header", Schema: text, Description: "The key id of the secret that signed, where the gateway has secrets with key ids; a name that it does not know, or that does not hold now, is a 401. Without it, all secrets that hold now are tried, at most 64."},
		{Name: "traceparent", In: "header", Schema: text, Description: "W3C trace context: its trace id becomes the event's."},
	}
}
