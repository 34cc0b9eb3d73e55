package routing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

func parseTests(t *testing.T, text string) *routing.TestFile {
	t.Helper()
	f, err := routing.ParseTests("routes_test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// passing are tests of orders that pass.
const passing = `
lookups:
  customer: {level: new, branch: north}
tests:
  - name: a gift for a good customer
    event: {type: order_placed, schema_version: 2, payload: {customer: c-1, total: 20, items: [gift]}}
    lookups:
      customer: {$keys: {c-1: {level: gold, sms: true, branch: north}}}
      branch: {post: true}
    expect:
      mail:
        - {do: send, with: {letter: thanks for the gift, channels: [post]}}
        - {do: send, with: {letter: confirmation, channels: [email, sms, post]}}
      billing: [{do: charge}]
      audit: [{do: record}]
    lane: normal
  - name: the lookup of the file
    event: {event_type: order_placed, schema_version: 2, payload: {customer: c-1, total: 2000, items: [book]}}
    lookups: {branch: {$error: slow}}
    expect:
      mail: [{do: send, with: {letter: confirmation, channels: [email]}}]
      billing: [{do: charge}]
      audit: [{do: record}]
    lane: critical
  - name: failures
    event: {type: order_placed, schema_version: 2, payload: {customer: c-1, total: 0}}
    lookups: {customer: {$error: down}}
    expect:
      mail: {$error: retry}
      billing: []
      audit: [{do: record}]
  - name: failures for ever
    event: {type: order_placed, schema_version: 2, payload: {customer: c-1, total: 0}}
    lookups: {customer: {$error: down, $reason: NO_CUSTOMER}}
    expect: {mail: {$error: NO_CUSTOMER}, billing: [], audit: [{do: record}]}
`

func TestTests(t *testing.T) {
	t.Parallel()
	r := orders(t).Test(t.Context(), parseTests(t, passing))
	if r.Tests != 4 || r.Passed != 4 || len(r.Failures) > 0 {
		t.Errorf("%+v", r)
	}
	want := routing.Coverage{
		Cells: routing.Covered{Reached: 3, Total: 5}, Rules: routing.Covered{Reached: 4, Total: 6}, Modifiers: routing.Covered{Reached: 2, Total: 2},
		Unreached: []routing.Unreached{
			{Line: 29, Kind: "cell", Name: "order_cancelled at search"}, {Line: 30, Kind: "cell", Name: "order_cancelled at audit"},
			{Line: 44, Kind: "rule", Name: "do note"}, {Line: 49, Kind: "rule", Name: `when event.tenant_id == "north": do remove`},
		},
	}
	if got := fmt.Sprintf("%+v", r.Coverage); got != fmt.Sprintf("%+v", want) {
		t.Errorf("coverage:\n got %s\nwant %+v", got, want)
	}
	tried := parseTests(t, `
tests:
  - name: a rule is tried, and does not match
    event: {type: order_cancelled}
    expect: {search: [], audit: [{do: record}]}
  - name: a modifier is tried, and does not match
    event: {type: order_placed, schema_version: 2, payload: {customer: c-1, total: 20, items: [book]}}
    lookups: {customer: {level: new, sms: true, branch: b}, branch: {post: false}}
    expect: {mail: [{do: send, with: {letter: confirmation, channels: [email, sms]}}], billing: [{do: charge}], audit: [{do: record}]}
`)
	r = orders(t).Test(t.Context(), tried)
	if r.Passed != 2 || r.Coverage.Rules.Reached != 3 || r.Coverage.Modifiers.Reached != 0 || r.Coverage.Cells.Reached != 5 {
		t.Errorf("what is tried is not reached: %+v", r)
	}
	more := parseTests(t, `
tests:
  - name: the rest
    event: {type: order_cancelled, tenant_id: north}
    expect: {search: [{do: remove}], audit: [{do: record}]}
  - name: a customer of no level
    event: {type: order_placed, schema_version: 2, payload: {customer: c-1, total: 20, items: [book]}}
    lookups: {customer: {level: none}}
    expect: {mail: [{do: note}], billing: [{do: charge}], audit: [{do: record}]}
`)
	r = orders(t).Test(t.Context(), parseTests(t, passing), more)
	if r.Tests != 6 || r.Passed != 6 || len(r.Coverage.Unreached) > 0 || r.Coverage.Rules.Reached != 6 {
		t.Errorf("with more tests: %+v", r)
	}
}

func TestTestsThatFail(t *testing.T) {
	t.Parallel()
	const event = "{type: order_placed, schema_version: 2, payload: {customer: c-1, total: 20, items: [book]}}"
	const found = "{customer: {level: new}, branch: {}}"
	for _, test := range []struct{ name, event, lookups, expect, more, want string }{
		{"another action", event, found, "{mail: [{do: note}], billing: [{do: charge}], audit: [{do: record}]}", "",
			"5 mail: mail does something else: [note] / [send {channels: [email], letter: confirmation}]"},
		{"parameters in full", event, found, "{mail: [{do: send, with: {letter: confirmation}}], billing: [{do: charge}], audit: [{do: record}]}", "",
			"5 mail: mail does something else: [send {letter: confirmation}] / [send {channels: [email], letter: confirmation}]"},
		{"an unexpected consumer", event, found, "{mail: [{do: send, with: {letter: confirmation, channels: [email]}}], audit: [{do: record}]}", "",
			"5 billing: billing gets the event, by row order_placed of the matrix, line 28, and is not expected to:  / [charge]"},
		{"a consumer that does not get it", "{type: order_cancelled}", "{}", "{mail: [], search: [], audit: [{do: record}]}", "",
			"5 mail: mail does not get the event: no row of the matrix sends order_cancelled to it: [] / "},
		{"an unknown consumer", "{type: order_cancelled}", "{}", "{serch: [], search: [], audit: [{do: record}]}", "",
			"5 serch: testdata/explain/routes.yaml declares no consumer serch (did you mean `search`?):  / "},
		{"an action that fails", event, "{customer: {$error: down}}", "{mail: [{do: note}], billing: [{do: charge}], audit: [{do: record}]}", "",
			"5 mail: mail fails: lookup customer: down: [note] / {$error: retry}"},
		{"a failure of another kind", event, "{customer: {$error: down}}", "{mail: {$error: NO_ROUTE}, billing: [{do: charge}], audit: [{do: record}]}", "",
			"5 mail: mail fails otherwise: lookup customer: down: {$error: NO_ROUTE} / {$error: retry}"},
		{"no failure", event, found, "{mail: {$error: retry}, billing: [{do: charge}], audit: [{do: record}]}", "",
			"5 mail: mail does not fail: {$error: retry} / [send {channels: [email], letter: confirmation}]"},
		{"no action", "{type: order_cancelled}", "{}", "{search: [{do: remove}], audit: [{do: record}]}", "",
			"5 search: search does nothing: no rule matches: [remove] / []"},
		{"another lane", "{type: order_cancelled}", "{}", "{search: [], audit: [{do: record}]}", "lane: critical",
			"6 : it goes in another lane: critical / normal"},
		{"an unknown type", "{type: order_canceled}", "{}", "{}", "", "3 : testdata/explain/routes.yaml declares no event type order_canceled (did you mean `order_cancelled`?):  / "},
		{"an older version", "{type: order_placed, payload: {customer: c-1}}", "{}", "{}", "",
			"3 : version 1 of its schema is brought to version 2 by Go functions, which a routing file does not have: test it in Go, with routing.Router.Test:  / "},
		{"an unknown lookup", "{type: order_cancelled}", "{custmer: {}}", "{search: [], audit: [{do: record}]}", "",
			"4 : testdata/explain/routes.yaml declares no lookup custmer (did you mean `customer`?):  / "},
		{"a lookup that is not given", event, "{customer: {level: new, branch: b}}", "{mail: [{do: send, with: {letter: confirmation, channels: [email]}}], billing: [{do: charge}], audit: [{do: record}]}", "",
			"2 : lookup branch is asked for the key \"b\", and the test does not say what it finds: add it to the test's lookups, or {$error: …}:  / "},
		{"a key that is not given", event, "{customer: {$keys: {c-2: {level: new}}}}", "{mail: {$error: retry}, billing: [{do: charge}], audit: [{do: record}]}", "",
			"2 : lookup customer is asked for the key \"c-1\", and the test does not say what it finds: add it to the test's lookups, or {$error: …}:  / "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := parseTests(t, fmt.Sprintf("tests:\n- name: x\n  event: %s\n  lookups: %s\n  expect: %s\n  %s\n", test.event, test.lookups, test.expect, test.more))
			r := orders(t).Test(t.Context(), f)
			if len(r.Failures) != 1 || r.Passed != 0 {
				t.Fatalf("%+v", r.Failures)
			}
			got := r.Failures[0]
			if text := fmt.Sprintf("%d %s: %s: %s / %s", got.Line, got.Consumer, got.Problem, got.Expected, got.Got); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
			if got.File != "routes_test.yaml" || got.Test != "x" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The router has the upcasters that a file does not have.
func TestRouterTests(t *testing.T) {
	t.Parallel()
	missing := func(context.Context, string) (any, error) { return nil, errors.New("tests have lookups of their own") }
	app, err := routing.New(router.Config{Store: memstore.New()}, orders(t), routing.Config{
		Lookups: map[string]routing.LookupFunc{"customer": missing, "branch": missing},
		Upcasters: []routing.Upcaster{{EventType: "order_placed", From: 1, Upcast: func(json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"customer": "c-1", "total": 5, "items": ["book"]}`), nil
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := parseTests(t, `
tests:
  - name: of version 1
    event: {type: order_placed, payload: {customer: c-1}}
    lookups: {customer: {level: none}}
    expect: {mail: [{do: note}], billing: [{do: charge}], audit: [{do: record}]}
`)
	if r := app.Test(t.Context(), f); r.Passed != 1 {
		t.Errorf("%+v", r.Failures)
	}
}

// An event that leaves things out is always the same.
func TestTestEvents(t *testing.T) {
	t.Parallel()
	f := parseTests(t, `
tests:
  - {name: little, event: {type: a}, expect: {}}
  - name: much
    event:
      event_id: e-1
      event_type: a
      occurred_at: 2026-02-26T12:00:00+01:00
      correlation_id: c
      causation_id: d
      tenant_id: t
      station_id: s
      schema_version: 3
      aggregate_type: order
      aggregate_id: "7"
      ordering_key: k
      idempotency_key: i
      payload: {n: 1.50, list: [a, null, true], text: "\u001b[31m"}
    expect: {}
`)
	little, much := f.Tests[0].Envelope, f.Tests[1].Envelope
	if little.ID != "test" || little.Type != "a" || little.SchemaVersion != 1 || !little.OccurredAt.Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) || string(little.Payload) != `{}` {
		t.Errorf("%+v", little)
	}
	want := eventing.Header{
		ID: "e-1", Type: "a", OccurredAt: time.Date(2026, 2, 26, 11, 0, 0, 0, time.UTC), CorrelationID: "c", CausationID: "d", TenantID: "t", StationID: "s", SchemaVersion: 3,
		AggregateType: "order", AggregateID: "7", OrderingKey: "k", IdempotencyKey: "i",
	}
	if much.Header != want || string(much.Payload) != `{"list":["a",null,true],"n":1.50,"text":"\u001b[31m"}` {
		t.Errorf("%+v %s", much.Header, much.Payload)
	}
	if f.Name != "routes_test.yaml" || f.Tests[1].Name != "much" || f.Tests[1].Line != 4 {
		t.Errorf("%+v", f)
	}
}

func TestTestFileFaults(t *testing.T) {
	t.Parallel()
	one := func(rest string) string {
		return "tests:\n- name: x\n  " + strings.ReplaceAll(rest, "\n", "\n  ") + "\n"
	}
	for text, want := range map[string]string{
		"":                           "the file is empty",
		"[]":                         "1:1: a file of tests is a mapping with the key `tests`",
		"test: []":                   "1:1: unknown key `test` (did you mean `tests`?)",
		"lookups: {}":                "1:1: the file lacks the key `tests`",
		"tests: {}":                  "1:8: `tests` has to be a list",
		"tests: [7]":                 "1:9: this has to be a mapping",
		"tests:\n  - {}":             "2:5: this lacks the key `name`",
		"tests:\n\t- {}":             "not valid YAML",
		one("expect: {}"):            "2:3: this lacks the key `event`",
		one("event: {type: a}"):      "2:3: this lacks the key `expect`",
		one("event: {}\nexpect: {}"): "3:10: `event` lacks the key `type`",
		one("event: 7\nexpect: {}"):  "3:10: `event` has to be a mapping",
		one("event: {type: a, tpye: b}\nexpect: {}"):                                          "3:20: unknown key `tpye` (did you mean `type`?)",
		one("event: {type: a, event_type: b}\nexpect: {}"):                                    "`type` and `event_type` are the same: write one of them",
		one("event: {type: a, event_id: 7}\nexpect: {}"):                                      "3:30: `event_id` has to be a text",
		one("event: {type: a, occurred_at: yesterday}\nexpect: {}"):                           "3:10: not an envelope",
		one("event: {type: a, schema_version: x}\nexpect: {}"):                                "3:36: `schema_version` has to be a whole number",
		one("event: {type: a, schema_version: 99999999999999999999}\nexpect: {}"):             "not an envelope",
		one("event: {type: " + strings.Repeat("a", 300) + "}\nexpect: {}"):                    "3:17: `event_type` has 300 bytes, more than 255",
		one("event: {type: a}\nexpect: []"):                                                   "4:11: `expect` has to be a mapping",
		one("event: {type: a}\nexpect: {mail: yes}"):                                          "4:18: `mail` has to be a list of actions, [] if it takes none, or {$error: retry}",
		one("event: {type: a}\nexpect: {mail: {error: retry}}"):                               "unknown key `error` (did you mean `$error`?)",
		one("event: {type: a}\nexpect: {mail: [send]}"):                                       "4:19: this has to be a mapping",
		one("event: {type: a}\nexpect: {mail: [{with: {}}]}"):                                 "4:19: this lacks the key `do`",
		one("event: {type: a}\nexpect: {mail: [{do: a, when: 'true'}]}"):                      "4:27: unknown key `when`",
		one("event: {type: a}\nexpect: {mail: [{do: a, with: {n: [1]}}]}"):                    "`n` has to be a list of texts: put numbers, true and false in quotes",
		one("event: {type: a}\nexpect: {mail: [{do: a, with: {n: {}}}]}"):                     "`n` has to be a text, a number, true or false, or a list of texts",
		one("event: {type: a}\nexpect: {}\nlane: slow"):                                       "5:9: `lane` has to be `critical` or `normal`",
		one("event: {type: a}\nexpect: {}\nlookups: []"):                                      "5:12: `lookups` has to be a mapping",
		one("event: {type: a}\nexpect: {}\nlookups: {a: {$keys: 7}}"):                         "5:16: `$keys` goes alone, with a mapping of keys to results",
		one("event: {type: a}\nexpect: {}\nlookups: {a: {$keys: {}, b: 1}}"):                  "5:16: `$keys` goes alone, with a mapping of keys to results",
		one("event: {type: a}\nexpect: {}") + "- name: x\n  event: {type: a}\n  expect: {}\n": "5:9: the name `x` is there twice: first at 2:9",
		one("event: {type: a}\nexpect: {a: [], a: []}"):                                       "the key `a` is there twice: first at 4:12",
		"tests: &a [*a]": "",
	} {
		f, err := routing.ParseTests("routes_test.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "routes_test.yaml:") {
			t.Errorf("%.200q: %v, %v; want %s", text, f, err, want)
		}
	}
	if _, err := routing.LoadTests(filepath.Join(t.TempDir(), "missing.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := routing.LoadTests(t.TempDir()); err == nil {
		t.Error("a folder is no file of tests")
	}
}

func FuzzParseTests(f *testing.F) {
	f.Add([]byte(passing))
	f.Add([]byte("tests:\n- {name: x, event: {type: a, payload: &p {n: 1e400}}, lookups: {a: *p}, expect: {a: {$error: retry}}}"))
	f.Add([]byte("tests: [{name: \"\\e[31m\", event: {type: a, occurred_at: 0000-00-00}, expect: {\"*\": []}}]"))
	table, err := routing.Load("testdata/explain/routes.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tests, err := routing.ParseTests("t.yaml", text)
		if (tests == nil) == (err == nil) {
			t.Fatalf("%v, %v", tests, err)
		}
		if err != nil {
			return
		}
		if r := table.Test(t.Context(), tests); r.Tests != len(tests.Tests) || r.Passed > r.Tests || r.Passed == r.Tests != (len(r.Failures) == 0) {
			t.Errorf("%+v", r)
		}
	})
}
