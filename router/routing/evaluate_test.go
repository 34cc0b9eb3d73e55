package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// decideFor opens an event and has a consumer decide.
func decideFor(t *testing.T, table *Table, consumer string, e eventing.Envelope, ups upcasters, from source) ([]Action, error) {
	t.Helper()
	opened, err := table.open(e, ups)
	if err != nil {
		return nil, err
	}
	return table.decide(t.Context(), consumer, opened, from, nil)
}

func asJSON(t *testing.T, actions []Action) string {
	t.Helper()
	text, err := json.Marshal(actions)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	table := parse(t, shop)
	nobody := fixed{"customer/c": `{"vip":false,"private":false}`}
	vip := fixed{"customer/c": `{"vip":true,"private":false}`}
	private := fixed{"customer/c": `{"vip":true,"private":true}`}
	small := placed(2, `{"order_id":"a","total":5,"customer_id":"c"}`)
	big := placed(2, `{"order_id":"a","total":500,"customer_id":"c"}`)
	huge := placed(2, `{"order_id":"a","total":5000,"customer_id":"c"}`)
	cancelled := func(why string) eventing.Envelope {
		return eventing.Envelope{Header: eventing.Header{ID: "e2", Type: "order_cancelled", SchemaVersion: 1}, Payload: json.RawMessage(`{"why":"` + why + `"}`)}
	}
	for _, test := range []struct {
		name, consumer string
		e              eventing.Envelope
		from           source
		want           string
	}{
		{"the first rule that matches decides", "mail", big, nobody, `[{"do":"send","with":{"template":"big","to":["customer"],"urgent":false}}]`},
		{"the next, if it does not", "mail", small, nobody, `[{"do":"send","with":{"template":"small","to":["customer","clerk"],"urgent":false}}]`},
		{"an addition", "mail", small, vip, `[{"do":"send","with":{"template":"small","to":["customer","clerk","boss"],"urgent":false}}]`},
		{"removals win", "mail", small, private, `[{"do":"send","with":{"template":"small","to":["customer"],"urgent":false}}]`},
		{"all together", "mail", huge, private, `[{"do":"send","with":{"template":"big","to":["customer"],"urgent":true}}]`},
		{"no modifier invents a parameter", "stock", huge, nil, `[{"do":"reserve"}]`},
		{"continue", "stock", cancelled("late"), nil, `[{"do":"complain"},{"do":"release"}]`},
		{"a rule that does not match and says continue", "stock", cancelled("dear"), nil, `[{"do":"release"}]`},
		{`a cell of "*"`, "log", cancelled("dear"), nil, `[{"do":"write"}]`},
	} {
		actions, err := decideFor(t, table, test.consumer, test.e, nil, test.from)
		if got := asJSON(t, actions); err != nil || got != test.want {
			t.Errorf("%s: %s, %v; want %s", test.name, got, err, test.want)
		}
	}
	if again, err := decideFor(t, table, "mail", small, nil, nobody); err != nil || asJSON(t, again) != `[{"do":"send","with":{"template":"small","to":["customer","clerk"],"urgent":false}}]` {
		t.Errorf("a modifier has changed the table: %s, %v", asJSON(t, again), err)
	}
}

func TestDecisionsThatFail(t *testing.T) {
	t.Parallel()
	table := parse(t, shop)
	down := fixed{"customer/c": errors.New("down")}
	for _, test := range []struct {
		name, consumer string
		e              eventing.Envelope
		reason         eventing.ReasonCode // "": transient
		want           string
	}{
		{"a lookup that is down", "mail", placed(2, `{"order_id":"a","total":5,"customer_id":"c"}`), "", "lookup customer: down"},
		{"a lookup without a key", "mail", placed(2, `{"order_id":"a","total":5,"customer_id":""}`), ReasonRuleFailed, "lookup customer: the event has no key for it"},
		{"a payload that is not the schema's", "mail", placed(2, `{"order_id":7}`), ReasonSchemaViolation, "/order_id"},
		{"no JSON", "mail", placed(2, `{`), ReasonSchemaViolation, "order_placed version 2"},
		{"an unknown version", "mail", placed(3, `{}`), ReasonSchemaUnknown, "no schema of order_placed version 3"},
		{"an unknown type", "mail", eventing.Envelope{Header: eventing.Header{Type: "order_lost"}}, ReasonNotRouted, "declares no event type order_lost"},
		{"a cell that is not ticked", "mail", eventing.Envelope{Header: eventing.Header{Type: "stock_counted"}, Payload: json.RawMessage(`{}`)}, ReasonNotRouted, "sends no stock_counted to mail"},
		{"an old version without its upcaster", "mail", placed(1, `{"order_id":"a"}`), ReasonUpcastFailed, "there is no upcaster"},
	} {
		_, err := decideFor(t, table, test.consumer, test.e, nil, down)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %s", test.name, err, test.want)
			continue
		}
		if permanent := eventing.IsPermanent(err); permanent != (test.reason != "") || permanent && eventing.ReasonOf(err) != test.reason {
			t.Errorf("%s: permanent %v, reason %s; want %q", test.name, permanent, eventing.ReasonOf(err), test.reason)
		}
	}
}

func TestUpcasting(t *testing.T) {
	t.Parallel()
	table := parse(t, shop)
	ups := upcasters{"order_placed": {1: func(p json.RawMessage) (json.RawMessage, error) {
		if strings.Contains(string(p), "bad") {
			return nil, errors.New("it is bad")
		}
		if strings.Contains(string(p), "wrong") {
			return json.RawMessage(`{"order_id":1}`), nil
		}
		return json.RawMessage(`{"order_id":"a","total":500,"customer_id":"c"}`), nil
	}}}
	opened, err := table.open(placed(1, `{"order_id":"a"}`), ups)
	if err != nil {
		t.Fatal(err)
	}
	if opened.SchemaVersion != 2 || !strings.Contains(string(opened.Payload), "customer_id") {
		t.Errorf("the event has version %d and payload %s", opened.SchemaVersion, opened.Payload)
	}
	actions, err := table.decide(t.Context(), "mail", opened, fixed{"customer/c": `{}`}, nil)
	if err != nil || len(actions) != 1 || actions[0].Text("template") != "big" {
		t.Errorf("decided %s, %v", asJSON(t, actions), err)
	}
	for payload, want := range map[string]string{`{"order_id":"bad"}`: "it is bad", `{"order_id":"wrong"}`: "/order_id"} {
		if _, err := table.open(placed(1, payload), ups); err == nil || eventing.ReasonOf(err) != ReasonUpcastFailed || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

// chained has lookups that need each other, each with another policy.
const chained = `
routing: 1
consumers: {c: {}}
events: {e: {schema: {type: object, properties: {id: {type: string}}}}}
matrix: {e: [c]}
actions:
  e:
    c:
      - {when: b.ok, do: first, continue: true}
      - {do: second, with: {list: [x]}}
modifiers:
  - {name: m, when: d.ok, add: {list: [y]}}
lookups:
  a: {key: payload.id, schema: {type: object, properties: {next: {type: string}}}, on_error: POLICY}
  b: {key: a.next, schema: {type: object, properties: {ok: {type: boolean}}}, on_error: skip}
  d: {key: a.next, schema: {type: object, properties: {ok: {type: boolean}}}, on_error: default, default: {ok: true}}
`

func TestLookupPolicies(t *testing.T) {
	t.Parallel()
	e := eventing.Envelope{Header: eventing.Header{ID: "1", Type: "e", SchemaVersion: 1}, Payload: json.RawMessage(`{"id":"k"}`)}
	down := errors.New("down")
	for _, test := range []struct {
		name, policy string
		from         fixed
		want, err    string
	}{
		{"all there", "retry", fixed{"a/k": `{"next":"n"}`, "b/n": `{"ok":true}`, "d/n": `{"ok":false}`}, `[{"do":"first"},{"do":"second","with":{"list":["x"]}}]`, ""},
		{"skip", "retry", fixed{"a/k": `{"next":"n"}`, "b/n": down, "d/n": `{"ok":false}`}, `[{"do":"second","with":{"list":["x"]}}]`, ""},
		{"default", "retry", fixed{"a/k": `{"next":"n"}`, "b/n": `{"ok":false}`, "d/n": down}, `[{"do":"second","with":{"list":["x","y"]}}]`, ""},
		{"a result of another shape is a failure", "retry", fixed{"a/k": `{"next":"n"}`, "b/n": `{"ok":3}`, "d/n": `[]`}, `[{"do":"second","with":{"list":["x","y"]}}]`, ""},
		{"retry goes before those that need it", "retry", fixed{"a/k": down}, "", "lookup a: down"},
		{"what needs a skipped one fails itself", "skip", fixed{"a/k": down}, `[{"do":"second","with":{"list":["x","y"]}}]`, ""},
		{"a key that is empty", "skip", fixed{"a/k": `{}`}, `[{"do":"second","with":{"list":["x","y"]}}]`, ""},
		{"what needs a default uses it", "default\n    default: {next: o}", fixed{"a/k": down, "b/o": `{"ok":true}`, "d/o": `{"ok":true}`}, `[{"do":"first"},{"do":"second","with":{"list":["x","y"]}}]`, ""},
	} {
		text := strings.Replace(chained, "on_error: POLICY}", "on_error: "+strings.ReplaceAll(test.policy, "\n    ", ", ")+"}", 1)
		actions, err := decideFor(t, parse(t, text), "c", e, nil, test.from)
		if test.err != "" {
			if err == nil || err.Error() != test.err || eventing.IsPermanent(err) {
				t.Errorf("%s: %v; want %s", test.name, err, test.err)
			}
			continue
		}
		if got := asJSON(t, actions); err != nil || got != test.want {
			t.Errorf("%s: %s, %v; want %s", test.name, got, err, test.want)
		}
	}
}

func TestActionParameters(t *testing.T) {
	t.Parallel()
	a := Action{Name: "a", params: map[string]any{"l": []string{"x", "y"}, "t": "text", "n": 2.5, "b": true}}
	a.List("l")[0] = "z"
	a.Params()["l"].([]string)[1] = "z"
	a.Params()["t"] = "other"
	if !slices.Equal(a.List("l"), []string{"x", "y"}) || a.Text("t") != "text" || a.Number("n") != 2.5 || !a.Bool("b") {
		t.Errorf("the action is %v", a.Params())
	}
	if a.List("t") != nil || a.Text("l") != "" || a.Number("b") != 0 || a.Bool("none") {
		t.Error("a parameter of another kind is not empty")
	}
	other := Action{Name: "a", Line: 7, params: a.Params()}
	if !a.Equal(other) {
		t.Error("a copy differs")
	}
	other.params["l"] = []string{"y", "x"}
	if a.Equal(other) || a.Equal(Action{Name: "b", params: a.params}) || a.Equal(Action{Name: "a", params: map[string]any{"l": "x"}}) {
		t.Error("other actions are equal")
	}
}

const guarded = `
routing: 1
consumers: {c: {}}
events: {e: {schema: {type: object, properties: {kind: {type: string}, guest: {type: string}}}}}
matrix: {e: [c]}
actions:
  e:
    c:
      - {when: payload.kind == "a" && (has(payload.guest) && guest.vip), do: both}
      - {when: payload.kind == "b" || guest.vip, do: either}
      - {do: neither}
lookups:
  guest: {key: payload.guest, schema: {type: object, properties: {vip: {type: boolean}}}, on_error: retry}
`

// What the event decides alone needs no lookup: it may be down, or have no key.
func TestGuardsKeepLookupsFromBeingMade(t *testing.T) {
	t.Parallel()
	table := parse(t, guarded)
	down, vip := fixed{"guest/g": errors.New("down")}, fixed{"guest/g": `{"vip":true}`}
	for _, test := range []struct {
		payload   string
		from      source
		want, err string
	}{
		{`{"kind":"b"}`, down, "either", ""},
		{`{"kind":"a"}`, down, "", "no key"}, // by the second rule
		{`{"kind":"b","guest":"g"}`, down, "either", ""},
		{`{"kind":"a","guest":"g"}`, down, "", "lookup guest: down"},
		{`{"kind":"a","guest":"g"}`, vip, "both", ""},
		{`{"kind":"c","guest":"g"}`, vip, "either", ""},
		{`{"kind":"c","guest":"g"}`, fixed{"guest/g": `{}`}, "neither", ""},
	} {
		e := eventing.Envelope{Header: eventing.Header{ID: "1", Type: "e", SchemaVersion: 1}, Payload: json.RawMessage(test.payload)}
		actions, err := decideFor(t, table, "c", e, nil, test.from)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v; want %s", test.payload, err, test.err)
			}
		case err != nil || len(actions) != 1 || actions[0].Name != test.want:
			t.Errorf("%s: %s, %v; want %s", test.payload, asJSON(t, actions), err, test.want)
		}
	}
}

// What an explanation has is its own: writing to it changes neither the table nor what is cached.
func TestExplanationsShareNothing(t *testing.T) {
	t.Parallel()
	table := parse(t, shop)
	value := map[string]any{"vip": true, "private": false}
	from := source(remembered{value})
	x := table.explain(t.Context(), placed(2, `{"order_id":"a","total":5,"customer_id":"c"}`), nil, from)
	if len(x.Consumers[0].Lookups) == 0 || len(x.Consumers[2].Actions) == 0 {
		t.Fatalf("the explanation is %+v", x)
	}
	x.Consumers[0].Lookups[0].Value.(map[string]any)["vip"] = false
	x.Consumers[2].Actions[0] = Action{Name: "other"}
	for _, m := range x.Consumers[0].Modifiers {
		for _, list := range []map[string]any{m.Add, m.Remove} {
			for _, words := range list {
				words.([]string)[0] = "other"
			}
		}
	}
	y := table.explain(t.Context(), placed(2, `{"order_id":"a","total":5,"customer_id":"c"}`), nil, from)
	if !slices.Contains(y.Consumers[0].Actions[0].List("to"), "boss") || y.Consumers[2].Actions[0].Name != "write" {
		t.Errorf("the next explanation is %+v", y)
	}
}

// remembered finds the same value, as a cache does.
type remembered struct{ value any }

func (r remembered) find(context.Context, *lookup, string) (any, error) { return r.value, nil }

// An empty cell is a cell of its own, which lint complains of: "*" does not fill it.
func TestEmptyCellIsNotThatOfAll(t *testing.T) {
	t.Parallel()
	table := parse(t, "routing: 1\nconsumers: {c: {}}\nevents: {e: {}, f: {}}\nmatrix: {\"*\": [c]}\nactions: {e: {c: []}, \"*\": {c: [{do: x}]}}\n")
	if n := len(table.types["e"].cells["c"].rules); n != 0 {
		t.Errorf("the empty cell has %d rules", n)
	}
	if n := len(table.types["f"].cells["c"].rules); n != 1 {
		t.Errorf("the other has %d rules, want 1", n)
	}
	var codes []string
	for _, f := range table.Lint() {
		codes = append(codes, f.Code)
	}
	if !slices.Contains(codes, "cell-without-action") {
		t.Errorf("lint finds %v", codes)
	}
}

// A function may have a deadline of its own, which is not the lookup's.
func TestLookupWithADeadlineOfItsOwnFails(t *testing.T) {
	t.Parallel()
	table := parse(t, shop)
	calls := 0
	from := newFunctions(table, map[string]LookupFunc{"customer": func(context.Context, string) (any, error) {
		if calls++; calls == 1 {
			return nil, fmt.Errorf("ask the register: %w", context.DeadlineExceeded)
		}
		return map[string]bool{"vip": true}, nil
	}}, time.Now, slog.New(slog.DiscardHandler))
	e := placed(2, `{"order_id":"a","total":5,"customer_id":"c"}`)
	if _, err := decideFor(t, table, "mail", e, nil, from); err == nil || !strings.Contains(err.Error(), "lookup customer: ask the register") {
		t.Errorf("got %v; want the register's error", err)
	}
	if actions, err := decideFor(t, table, "mail", e, nil, from); err != nil || !slices.Contains(actions[0].List("to"), "boss") {
		t.Errorf("the next attempt decides %v, %v", actions, err)
	}
}
