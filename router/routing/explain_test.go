package routing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

// orders is the routing file of these tests.
func orders(t *testing.T) *routing.Table {
	t.Helper()
	table, err := routing.Load("testdata/explain/routes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// order is an event of these tests.
func order(typ string, version int, payload string) eventing.Envelope {
	at := time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)
	return eventing.Envelope{Header: eventing.Header{ID: "event-1", Type: typ, SchemaVersion: version, OccurredAt: at, CorrelationID: "event-1"}, Payload: json.RawMessage(payload)}
}

func lookups(t *testing.T, text string) routing.Lookups {
	t.Helper()
	l, err := routing.ParseLookups([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func explanation(t *testing.T, x routing.Explanation) string {
	t.Helper()
	var b strings.Builder
	if err := x.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s(-update writes it)", got, want)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	const gold = `{"customer": {"c-1": {"level": "gold", "sms": true, "branch": "north"}}, "branch": {"north": {"post": true}}}`
	for _, test := range []struct {
		name, typ, payload string
		version            int
		lookups            string
	}{
		{"two actions", "order_placed", `{"customer": "c-1", "total": 20, "items": ["gift", "book"]}`, 2, gold},
		{"critical", "order_placed", `{"customer": "c-1", "total": 2000, "items": ["book"]}`, 2, gold},
		{"rule fails", "order_placed", `{"customer": "c-1", "total": 0}`, 2, gold},
		{"lookup fails", "order_placed", `{"customer": "c-1", "total": 1, "items": ["book"]}`, 2, `{"customer": {"*": {"$error": "out of reach"}}}`},
		{"lookup fails for ever", "order_placed", `{"customer": "c-1", "total": 1, "items": ["book"]}`, 2, `{"customer": {"*": {"$error": "no such customer", "$reason": "CUSTOMER_UNKNOWN"}}}`},
		{"lookup is skipped", "order_placed", `{"customer": "c-1", "total": 1, "items": ["book"]}`, 2, `{"customer": {"*": {"level": "new", "branch": "b"}}, "branch": {"*": {"$error": "slow"}}}`},
		{"lookup is not given", "order_placed", `{"customer": "c-1", "total": 1, "items": ["book"]}`, 2, `{}`},
		{"lookup is not as its schema", "order_placed", `{"customer": "c-1", "total": 1, "items": ["book"]}`, 2, `{"customer": {"*": {"sms": true}}}`},
		{"no key", "order_placed", `{"customer": "", "total": 1, "items": ["book"]}`, 2, gold},
		{"no rule matches", "order_cancelled", `{}`, 1, `{}`},
		{"no version", "order_cancelled", `{}`, 0, `{}`},
		{"violation", "order_placed", `{"customer": 7}`, 2, gold},
		{"unknown version", "order_placed", `{"customer": "c-1"}`, 3, gold},
		{"older version", "order_placed", `{"customer": "c-1"}`, 1, gold},
		{"unroutable", "order_lost", `{}`, 1, gold},
		{"misspelt-type", "order_plced", `{}`, 1, gold},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := orders(t).Explain(t.Context(), order(test.typ, test.version, test.payload), lookups(t, test.lookups))
			golden(t, "explain/"+strings.ReplaceAll(test.name, " ", "-")+".txt", explanation(t, x))
		})
	}
}

// What explanations encode to is for scripts.
func TestExplainAsJSON(t *testing.T) {
	t.Parallel()
	x := orders(t).Explain(t.Context(), order("order_placed", 2, `{"customer": "c-1", "total": 2000, "items": ["book"]}`),
		lookups(t, `{"customer": {"*": {"level": "new", "branch": "b"}}, "branch": {"*": {"$error": "slow"}}}`))
	text, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "explain/explanation.json", string(text)+"\n")
	undecided, err := json.Marshal(orders(t).Explain(t.Context(), order("order_placed", 1, `{"customer": "c-1"}`), nil))
	if err != nil || !strings.Contains(string(undecided), `"delivered":true,"why":"row order_placed of the matrix, line 28","actions":null`) {
		t.Errorf("actions that are not known: %s, %v", undecided, err)
	}
}

// A running router has the upcasters, and its own lookups.
func TestRouterExplains(t *testing.T) {
	t.Parallel()
	table := orders(t)
	app, err := routing.New(router.Config{Store: memstore.New()}, table, routing.Config{
		Lookups: map[string]routing.LookupFunc{
			"customer": func(_ context.Context, key string) (any, error) { return map[string]any{"level": "gold " + key}, nil },
			"branch":   func(context.Context, string) (any, error) { return nil, errors.New("closed") },
		},
		Upcasters: []routing.Upcaster{{EventType: "order_placed", From: 1, Upcast: func(json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"customer": "upcast", "total": 3, "items": ["book"]}`), nil
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := app.Explain(t.Context(), order("order_placed", 1, `{"customer": "c-1"}`))
	if text := explanation(t, x); x.Undecided != "" || !strings.Contains(text, `customer.level = "gold upcast"`) || !strings.Contains(text, "does charge") {
		t.Errorf("%s", text)
	}
	x = app.Explain(t.Context(), order("order_placed", 1, `{}`))
	if c := x.Consumers[0]; c.Reason != routing.ReasonSchemaViolation {
		t.Errorf("a violation of the older schema: %+v", c)
	}
}

// What an attempt would not survive, an explanation does. A lookup that panics has failed, like others.
func TestRouterExplainsWhatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mode := ""
		rules := table(t, `
routing: 1
consumers: {mail: {timeout: 5s}}
events: {sent: {schemas: {1: {type: object}, 2: {type: object}}}}
matrix: {sent: [mail]}
actions: {sent: {mail: [{when: a.ok && b.ok, do: send}]}}
lookups: {a: {key: '"k"', timeout: 4s, on_error: default, default: {ok: true}}, b: {key: '"k"', timeout: 4s, on_error: default, default: {ok: true}}}
`)
		look := func(ctx context.Context, _ string) (any, error) {
			switch mode {
			case "panic":
				panic("no such table")
			case "slow":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return map[string]bool{"ok": true}, nil
		}
		app, err := routing.New(router.Config{Store: memstore.New(), Logger: slog.New(slog.DiscardHandler)}, rules, routing.Config{
			Lookups: map[string]routing.LookupFunc{"a": look, "b": look},
			Upcasters: []routing.Upcaster{{EventType: "sent", From: 1, Upcast: func(json.RawMessage) (json.RawMessage, error) {
				panic("no such version")
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			mode    string
			version int
			want    string
		}{
			{"panic", 2, ""}, {"slow", 2, "context deadline exceeded"}, {"", 1, "handler panicked: no such version"}, {"", 2, ""},
		} {
			mode = test.mode
			c := app.Explain(t.Context(), order("sent", test.version, `{}`)).Consumers[0]
			if c.Error != test.want || c.Reason != "" || (len(c.Actions) == 1) != (test.want == "") {
				t.Errorf("%s: %+v", test.mode, c)
			}
		}
	})
}

// Events are written by others: what they bring along is cut, and steers no terminal.
func TestExplainIsSafeToPrint(t *testing.T) {
	t.Parallel()
	table, err := routing.Parse("routes.yaml", []byte(`
routing: 1
consumers: {mail: {}}
events: {said: {}}
matrix: {said: [mail]}
actions: {said: {mail: [{when: 'payload.text == who.name', do: send}]}}
lookups: {who: {key: payload.text, on_error: retry}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	evil := "\x1b[2J\u202egnp.exe\u009b31m\r\nforged line"
	quoted, _ := json.Marshal(evil)
	for name, text := range map[string]string{"escapes": string(quoted), "long": `"` + strings.Repeat("x", 60_000) + `"`, "bad UTF-8": "\"\xff\xfe\""} {
		for _, result := range []string{`{"name": ` + string(quoted) + `}`, `{"$error": ` + string(quoted) + `}`} {
			l := routing.Lookups{"who": {"*": json.RawMessage(result)}}
			e := order("said", 1, `{"text": `+text+`}`)
			e.ID, e.TenantID = evil, evil
			shown := explanation(t, table.Explain(t.Context(), e, l))
			if len(shown) > 10_000 || !utf8.ValidString(shown) || strings.ContainsAny(shown, "\x1b\u202e\u009b\r") || strings.Contains(shown, "\nforged") {
				t.Errorf("%s: it shows %d bytes: %.3000q", name, len(shown), shown)
			}
		}
	}
	x := table.Explain(t.Context(), order(evil, 1, `{}`), nil)
	if shown := explanation(t, x); strings.Contains(shown, "\x1b") || !strings.Contains(shown, "declares no event type") {
		t.Errorf("%q", shown)
	}
}

func TestLookups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "lookups.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, want := range map[string]string{
		``:                              "no lookups",
		`[]`:                            "no lookups",
		`"x"`:                           "it is a JSON string, and not an object; they look like",
		`{"customer": {}} {}`:           "something follows",
		`{"customer": {"a": {}`:         "no lookups",
		"{\"customer\": {\"a\": \"\xff": "no lookups",
	} {
		if _, err := routing.LoadLookups(write(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "lookups.json") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"customer": 7}`:                           `did you mean {"customer": {"*": 7}}?`,
		`{"customer": null}`:                        `did you mean {"customer": {"*": null}}?`,
		`{"customer": [ "a" ]}`:                     `did you mean {"customer": {"*": ["a"]}}?`,
		`{"customer": {"$error": "down"}}`:          `did you mean {"customer": {"*": {"$error":"down"}}}?`,
		`{"customer": {"$keys": {"c-1": {}}}}`:      "$keys is for files of tests",
		`{"branch": {"*": {}}, "customer": "gold"}`: `did you mean {"customer": {"*": "gold"}}?`,
	} {
		if _, err := routing.LoadLookups(write(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "lookups.json") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := routing.LoadLookups(filepath.Join(dir, "missing.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	l, err := routing.LoadLookups(write(`{"customer": {"*": null}, "brunch": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Check(orders(t)); err == nil || !strings.Contains(err.Error(), "did you mean `branch`?") {
		t.Errorf("a misspelt lookup: %v", err)
	}
	delete(l, "brunch")
	if err := l.Check(orders(t)); err != nil {
		t.Error(err)
	}
}

// The properties of a result may stand where the keys should be.
func TestLookupsWithoutKeys(t *testing.T) {
	t.Parallel()
	const file = `
routing: 1
consumers: {mail: {}}
events: {sent: {}}
matrix: {sent: [mail]}
actions: {sent: {mail: [{when: 'has(person.name) || town == ""', do: send}]}}
lookups:
  person: {key: payload.to, schema: %s, on_error: skip}
  town: {key: payload.to, schema: {type: string}, on_error: skip}
`
	person := table(t, fmt.Sprintf(file, `{type: object, properties: {name: {type: string}, age: {type: integer}}}`))
	other := table(t, fmt.Sprintf(file, `{type: object, properties: {title: {type: string}, name: {type: object}}}`))
	for text, ok := range map[string]bool{
		`{"person": {"name": "Rosa", "age": 7}}`:           false,
		`{"person": {"name": "Rosa"}}`:                     false,
		`{"person": {"name": 7}}`:                          false,
		`{"person": {}}`:                                   true,
		`{"person": {"*": {"name": "Rosa"}}}`:              true,
		`{"person": {"c-1": {"name": 7}}}`:                 true, // wrong, in another way
		`{"person": {"c-1": {}, "name": "Rosa"}}`:          true,
		`{"person": {"name": {"name": "Rosa"}}}`:           true, // a key that is called like a property
		`{"person": {"name": {"$error": "out of reach"}}}`: true,
		`{"town": {"name": 7}}`:                            true,
	} {
		switch err := lookups(t, text).Check(person); {
		case ok && err != nil:
			t.Errorf("%s: %v", text, err)
		case !ok && (err == nil || !strings.Contains(err.Error(), `did you mean {"person": {"*": {"`)):
			t.Errorf("%s: %v, want a question after the key", text, err)
		}
	}
	if err := lookups(t, `{"person": {"title": {}}}`).Check(person, other); err != nil {
		t.Errorf("keys by one of the tables: %v", err)
	}
}
