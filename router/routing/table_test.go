package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// shop is a routing file with a bit of everything.
const shop = `
routing: 1
consumers:
  mail:
    retry: {max_attempts: 3, base: 1s}
    parameters:
      to: {list: [customer, clerk, boss]}
      template: {text: any}
      urgent: {bool: any}
  stock: {ordered: true, topic: goods}
  log: {}
events:
  order_placed:
    category: sales
    critical: payload.total > 1000.0
    schemas:
      1: {type: object, required: [order_id], properties: {order_id: {type: string}, total: {type: number}}}
      2:
        type: object
        required: [order_id, total, customer_id]
        properties: {order_id: {type: string}, total: {type: number}, customer_id: {type: string}, lines: {type: array, maxItems: 100, items: {type: string, maxLength: 100}}}
  order_cancelled:
    schema: {type: object, properties: {order_id: {type: string}, why: {type: string, enum: [late, dear, other]}}}
  stock_counted: {critical: "true"}
matrix:
  order_placed: [mail, stock]
  order_cancelled: [stock]
  "*": [log]
actions:
  order_placed:
    mail:
      - {when: payload.total > 100.0, do: send, with: {template: big, to: [customer], urgent: false}}
      - {do: send, with: {template: small, to: [customer, clerk], urgent: false}}
    stock: [{do: reserve}]
  order_cancelled:
    stock:
      - {when: payload.why == "late", do: complain, continue: true}
      - {do: release}
  "*":
    log: [{do: write}]
modifiers:
  - {name: boss, consumers: [mail], when: customer.vip, add: {to: [boss]}}
  - {name: no_clerk, consumers: [mail], when: customer.private, remove: {to: [clerk, boss]}}
  - {name: urgent, when: event.severity == "CRITICAL", set: {urgent: true}}
lookups:
  customer:
    key: payload.customer_id
    schema: {type: object, properties: {vip: {type: boolean}, private: {type: boolean}}}
    timeout: 1m
    on_error: retry
retention:
  sales: {keep: 2y, after: [order_cancelled]}
`

func parse(tb testing.TB, text string) *Table {
	tb.Helper()
	table, err := Parse("routes.yaml", []byte(text), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

func consumersOf(routes []eventing.Route) (names []string) {
	for _, r := range routes {
		names = append(names, r.Consumer)
	}
	return names
}

func TestMatrixRoutes(t *testing.T) {
	t.Parallel()
	table := parse(t, shop)
	for eventType, want := range map[string][]string{
		"order_placed": {"mail", "stock", "log"}, "order_cancelled": {"stock", "log"}, "stock_counted": {"log"},
	} {
		routes, routed := table.Route(eventType)
		if got := consumersOf(routes); !routed || !slices.Equal(got, want) {
			t.Errorf("%s is routed to %v, %v; want %v", eventType, got, routed, want)
		}
	}
	if routes, routed := table.Route("order_lost"); routed || routes != nil {
		t.Errorf("an unknown type is routed to %v", routes)
	}
	stock, known := table.Consumer("stock")
	if want := (eventing.Route{Consumer: "stock", Topic: "goods", Ordered: true}); !known || stock != want {
		t.Errorf("stock is %+v, %v; want %+v", stock, known, want)
	}
	if _, known := table.Consumer("nobody"); known {
		t.Error("nobody is known")
	}
	if policy, known := table.Policy("mail"); !known || policy.Retry.MaxAttempts != 3 || policy.Concurrency != 8 {
		t.Errorf("the policy of mail is %+v", policy)
	}
	if got := table.EventTypes(); !slices.Equal(got, []string{"order_placed", "order_cancelled", "stock_counted"}) {
		t.Errorf("event types: %v", got)
	}
	if got := table.Consumers(); !slices.Equal(got, []string{"mail", "stock", "log"}) {
		t.Errorf("consumers: %v", got)
	}
	retention := table.Retention()
	if len(retention) != 1 || retention[0].Category != "sales" || retention[0].Keep.Years != 2 ||
		!slices.Equal(retention[0].Types, []string{"order_placed"}) || !slices.Equal(retention[0].After, []string{"order_cancelled"}) {
		t.Errorf("retention: %+v", retention)
	}
}

func TestMatrixDoesNotAllocate(t *testing.T) {
	table := parse(t, shop)
	if n := testing.AllocsPerRun(100, func() { table.Route("order_placed") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func placed(version int, payload string) eventing.Envelope {
	return eventing.Envelope{Header: eventing.Header{ID: "e1", Type: "order_placed", SchemaVersion: version, OccurredAt: time.Unix(0, 0)}, Payload: json.RawMessage(payload)}
}

func TestLane(t *testing.T) {
	t.Parallel()
	table := parse(t, shop)
	for _, test := range []struct {
		e    eventing.Envelope
		want eventing.Lane
	}{
		{placed(2, `{"order_id":"a","total":1000.5,"customer_id":"c"}`), eventing.Critical},
		{placed(2, `{"order_id":"a","total":1000,"customer_id":"c"}`), ""},
		{placed(1, `{"order_id":"a","total":2000}`), eventing.Critical},
		{placed(1, `{"order_id":"a"}`), ""},
		{placed(2, `{"total":2000}`), ""},
		{placed(3, `{"total":2000}`), ""},
		{eventing.Envelope{Header: eventing.Header{Type: "stock_counted", SchemaVersion: 7}}, eventing.Critical},
		{eventing.Envelope{Header: eventing.Header{Type: "order_lost"}}, ""},
	} {
		if got := table.Lane(test.e); got != test.want {
			t.Errorf("%s version %d %s is in lane %q; want %q", test.e.Type, test.e.SchemaVersion, test.e.Payload, got, test.want)
		}
	}
}

func TestLoadReadsSchemaFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "routing: 1\nconsumers: {log: {}}\nevents: {a: {schema: schemas/a.json}}\nmatrix: {a: [log]}\nactions: {a: {log: [{when: payload.n > 1, do: write}]}}\n"
	write("routes.yaml", text)
	write("schemas/a.json", `{"type":"object","properties":{"n":{"type":"integer"}}}`)
	first, err := Load(filepath.Join(dir, "routes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write("schemas/a.json", `{"type":"object","properties":{"n":{"type":"string"}}}`)
	if _, err := Load(filepath.Join(dir, "routes.yaml")); err == nil || !strings.Contains(err.Error(), "routes.yaml:5:") {
		t.Errorf("a text is compared with an integer, and the error is %v", err)
	}
	write("schemas/a.json", `{"type":"object","properties":{"n":{"type":"integer","maximum":7}}}`)
	second, err := Load(filepath.Join(dir, "routes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Version()) != 12 || first.Version() == second.Version() {
		t.Errorf("the versions are %s and %s; a schema has changed", first.Version(), second.Version())
	}
	write("routes.yaml", strings.Replace(text, "schemas/a.json", "../a.json", 1))
	if _, err := Load(filepath.Join(dir, "routes.yaml")); err == nil {
		t.Error("a schema outside of the folder was read")
	}
	if _, err := Load(dir); err == nil {
		t.Error("a folder was loaded")
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestCompilerNamesThePlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ old, new, want string }{
		"unknown type in the matrix":      {"order_cancelled: [stock]", "order_canceled: [stock]", "routes.yaml:27:3: event type order_canceled is not declared (did you mean `order_cancelled`?)"},
		"unknown consumer in the matrix":  {"order_cancelled: [stock]", "order_cancelled: [stocks]", "routes.yaml:27:21: consumer stocks is not declared (did you mean `stock`?)"},
		"misspelt field":                  {"when: payload.total > 100.0", "when: payload.totel > 100.0", `routes.yaml:32:23: payload has no field "totel"`},
		"misspelt field of a lookup":      {"when: customer.vip", "when: customer.vipp", "(for order_placed)"},
		"unknown parameter":               {"template: small", "templat: small", "consumer mail declares no parameter templat (did you mean `template`?)"},
		"word that is not declared":       {"to: [customer, clerk]", "to: [customer, clark]", "parameter to may not be \"clark\" (did you mean `clerk`?)"},
		"parameter of another kind":       {"to: [customer, clerk]", "to: customer", "parameter to is declared as a list, and this is a text"},
		"modifier with an unknown word":   {"add: {to: [boss]}", "add: {to: [bos]}", `parameter to may not be "bos"`},
		"wide modifier with another kind": {"set: {urgent: true}", "set: {to: customer}", "parameter to is declared as a list"},
		"wide modifier, unknown word":     {"set: {urgent: true}", "set: {to: [clark]}", `parameter to may not be "clark"`},
		"modifier of another kind":        {"set: {urgent: true}", "set: {urgent: yes please}", "modifier urgent sets urgent to a text"},
		"category without retention":      {"category: sales", "category: sale", "category sale has no retention (did you mean `sales`?)"},
		"policy that cannot hold":         {"max_attempts: 3, base: 1s", "max_attempts: 100, base: 2h", "InboxRetention is"},
		"lookup without a key":            {"key: payload.customer_id", "key: {order_cancelled: payload.order_id}", "lookup customer has no key for order_placed"},
		"lookup that needs itself":        {"key: payload.customer_id", "key: 'customer.vip ? \"a\" : \"b\"'", "customer → customer"},
		"key that is no text":             {"key: payload.customer_id", "key: payload.total", "routes.yaml:47:10: "},
		"condition that is no bool":       {"when: customer.vip", "when: payload.order_id", "routes.yaml:42:43: "},
		"retention after an unknown type": {"after: [order_cancelled]", "after: [order_canceled]", "event type order_canceled is not declared"},
		"condition on one version only":   {"critical: payload.total > 1000.0", "critical: payload.customer_id == \"\"", "(for order_placed version 1)"},
		"a default that is no default":    {"on_error: retry", "on_error: default\n    default: {vip: 7}", "the default of lookup customer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(shop, test.old) {
				t.Fatalf("the file has no %q", test.old)
			}
			_, err := Parse("routes.yaml", []byte(strings.Replace(shop, test.old, test.new, 1)), nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want %s", err, test.want)
			}
		})
	}
}

func TestEachPlaceOfAFaultIsNamed(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(strings.ReplaceAll(shop, "when: payload.total > 100.0", "when: payload.totel > 1.0"), "when: customer.vip", "when: payload.totel > 1.0")
	_, err := Parse("routes.yaml", []byte(text), nil)
	if err == nil || strings.Count(err.Error(), `no field "totel"`) != 2 {
		t.Errorf("one expression is wrong in two places: %v", err)
	}
}

// Files that multiply into more than a table should hold are refused.
func TestWhatMultipliesIsBounded(t *testing.T) {
	t.Parallel()
	most := bounds{programs: 30, words: 300, scopes: 10, schemas: 31, values: 100, patterns: 1000, cells: 50, rules: 50, visited: 100}
	lines := func(format string, count int) string {
		var b strings.Builder
		for i := range count {
			b.WriteString(strings.ReplaceAll(format, "#", strconv.Itoa(i)))
		}
		return b.String()
	}
	one, events := "consumers: {c: {}}\n", "events:\n"+lines("  e#: {}\n", 10)
	rules := func(rule string, count int) string {
		return "matrix: {\"*\": [c]}\nactions:\n  \"*\":\n    c:\n" + lines("      - "+rule+"\n", count)
	}
	for name, test := range map[string]struct {
		text func(n int) string
		fits int
		want string
	}{
		"cells": {func(n int) string {
			return "consumers:\n" + lines("  c#: {}\n", n) + events + "matrix: {\"*\": [" + strings.TrimSuffix(lines("c#, ", n), ", ") + "]}\n"
		}, 5, "more than 50 cells"},
		"rules":      {func(n int) string { return one + events + rules("{do: a, continue: true}", n) }, 5, "more than 50 rules"},
		"conditions": {func(n int) string { return one + events + rules("{do: a, when: event.id == \"#\"}", n) }, 3, "more than 30 conditions"},
		"words": {func(n int) string {
			return one + events + rules("{do: a, when: event.id == \"1\""+strings.Repeat(" + \"1\"", n)+"}", 1)
		}, 5, "more than 300 words and signs"},
		"versions": {func(n int) string {
			return one + "events: {e: {critical: true, schemas: {" + strings.TrimSuffix(lines("1#: {}, ", n), ", ") + "}}}\nmatrix: {}\n"
		}, 30, "more than 30 conditions"},
		"scopes": {func(n int) string {
			return one + "lookups:\n" + lines("  l#: {key: event.id}\n", n) + events + rules("{do: a, when: event.id == \"\"}", 1)
		}, 1, "more than 10 pairs of a lookup"},
		"schemas": {func(n int) string {
			return one + "definitions: {a: {type: string}, b: {type: string}}\nevents:\n" + lines("  e#: {schema: {type: object}}\n", n) + "matrix: {}\n"
		}, 16, "more than 100 keys and values, those of definitions counted"}, // 4 and 2 each
		"many schemas": {func(n int) string {
			return one + "events:\n" + lines("  e#: {schema: {type: object}}\n", n) + "matrix: {}\n"
		}, 31, "more than 31 schemas"},
		"schemas of lookups": {func(n int) string {
			return one + "lookups:\n" + lines("  l#: {key: event.id, schema: {type: object, required: [a, b, c, d, e, f, g]}}\n", n) + "events: {}\nmatrix: {}\n"
		}, 10, "more than 100 keys and values"},
		"patterns": {func(n int) string {
			return one + "events:\n" + lines("  e#: {schema: {pattern: \"a{90}\"}}\n", n) + "matrix: {}\n"
		}, 5, "compile to more than 1000 instructions"},
		"cells of \"*\"": {func(n int) string {
			return "consumers:\n" + lines("  c#: {}\n", n) + events + "matrix: {}\nactions:\n  \"*\":\n" + lines("    c#: [{do: a}]\n", n)
		}, 10, "more than 100 cells that"},
		"modifiers": {func(n int) string {
			return one + events + rules("{do: a, with: {x: 1}}", 1) + "modifiers:\n" + lines("  - {name: m#, set: {x: 2}}\n", n)
		}, 10, "more than 100 pairs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n, want := range map[int]string{test.fits: "", test.fits + 1: test.want} {
				file, err := routefile.Parse("routes.yaml", []byte("routing: 1\n"+test.text(n)), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err = compile(file, most); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%d: got %v; want %q", n, err, want)
				}
			}
		})
	}
}

// What there is to compile is counted before the first condition is compiled: none is complained of.
func TestConditionsAreCountedFirst(t *testing.T) {
	t.Parallel()
	rules := strings.Repeat("      - {do: a, when: event.nothing, continue: true}\n      - {do: a, when: event.none == 1, continue: true}\n", 2)
	text := "routing: 1\nconsumers: {c: {}}\nevents: {e: {critical: event.nil}, f: {}}\nmatrix: {\"*\": [c]}\nactions:\n  \"*\":\n    c:\n" + rules
	file, err := routefile.Parse("routes.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	most := usual
	most.programs = 4
	const want = `routes.yaml:9:23: more than 4 conditions, those of "*" counted for each event type: say which types they are for (for f)`
	if _, err = compile(file, most); err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	most.programs = 5
	if _, err = compile(file, most); err == nil || !strings.Contains(err.Error(), `no field "nothing"`) || strings.Contains(err.Error(), "more than") {
		t.Errorf("five conditions are as many as there may be, and the error is %v", err)
	}
}

// However many conditions are faulty in however many places, only some are compiled.
func TestFaultyConditionsAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("routing: 1\nconsumers: {c: {}}\nmatrix: {\"*\": [c]}\nactions: {\"*\": {c: [{do: a, when: event.nothing}]}}\nevents:\n")
	for i := range 2 * maxFaulty {
		fmt.Fprintf(&b, "  e%d: {}\n", i)
	}
	file, err := routefile.Parse("routes.yaml", []byte(b.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newCompiler(file, usual)
	if _, err := c.compile(); err == nil || !strings.Contains(err.Error(), `event has no field "nothing" (for e0, e1, e2 and more)`) {
		t.Errorf("got %v", err)
	}
	if c.met.faulty != maxFaulty {
		t.Errorf("%d conditions were found faulty; want %d", c.met.faulty, maxFaulty)
	}
}

// fixed are lookups with fixed results.
type fixed map[string]any

func (f fixed) find(_ context.Context, l *lookup, key string) (any, error) {
	switch v := f[l.src.Text+"/"+key].(type) {
	case error:
		return nil, v
	case string:
		return l.decode([]byte(v))
	}
	return nil, context.DeadlineExceeded
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // stands for whatever is no file; opening a pipe would wait
	for name, load := range map[string]func() error{
		"routing file": func() error { _, err := Load(dir); return err },
		"tests":        func() error { _, err := LoadTests(dir); return err },
	} {
		if err := load(); err == nil || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
