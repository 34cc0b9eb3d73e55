package routing_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/router/routing"
)

// letters is a routing file; %s are what its consumer mail does about events of type sent, and the rest of the file.
const letters = `
routing: 1
consumers: {mail: {}, audit: {ordered: true}}
events:
  sent:
    schemas:
      1: {type: object, properties: {to: {type: string}}}
      2: {type: object, properties: {to: {type: string}, urgent: {type: boolean}}}
  lost: {schemas: {2: {$ref: "#/$defs/parcel"}}}
definitions: {parcel: {type: object}}
matrix: {sent: [mail], lost: [], "*": [audit]}
actions:
  sent: {mail: [%s]}
  "*": {audit: [{do: record}]}
lookups:
  person: {key: payload.to, on_error: retry}
  town: {key: payload.to, on_error: default, default: {big: false}}
  street: {key: town.street, on_error: retry}
%s
`

func lettersTable(t *testing.T, rules, rest string) *routing.Table {
	t.Helper()
	return table(t, fmt.Sprintf(letters, rules, rest))
}

func TestDiff(t *testing.T) {
	t.Parallel()
	const send = "{do: send, with: {by: [post]}}"
	for _, test := range []struct {
		name            string
		before, after   string // rules
		version         int
		lookups         string
		want            string // kind: before → after
		missing, lookup string // why it was not compared
	}{
		{name: "the same", before: send, after: send, version: 2},
		{name: "the same in other words", before: send, after: "{with: {by: [ post ]}, do: send, continue: false}", version: 2},
		{name: "another action", before: send, after: "{do: keep}", version: 2, want: "changed: [send {by: [post]}] → [keep]"},
		{name: "other parameters", before: send, after: "{do: send, with: {by: [post, air]}}", version: 2, want: "changed: [send {by: [post]}] → [send {by: [post, air]}]"},
		{name: "another order", before: "{do: a, continue: true}, {do: b}", after: "{do: b, continue: true}, {do: a}", version: 2, want: "changed: [a b] → [b a]"},
		{name: "a condition that holds", before: send, after: "{when: payload.urgent, do: send, with: {by: [post]}}", version: 2},
		{name: "a condition that does not", before: send, after: "{when: '!payload.urgent', do: send, with: {by: [post]}}", version: 2, want: "changed: [send {by: [post]}] → []"},
		{name: "a failure", before: send, after: "{when: 1 / (size(payload.to) - 3) > 0, do: send}", version: 2, want: "changed: [send {by: [post]}] → ROUTING_RULE_FAILED"},
		{name: "another failure", before: "{when: person.a, do: a}", after: "{when: 1 / (size(payload.to) - 3) > 0, do: a}", version: 2, lookups: `{"person": {"*": {"$error": "x"}}}`, want: "changed: retried → ROUTING_RULE_FAILED"},
		{name: "a failure with another text", before: "{when: person.a, do: a}", after: "{when: person.b, do: a}", version: 2, lookups: `{"person": {"*": {"$error": "x"}}}`},
		{name: "a lookup that is not given", before: "{when: person.a, do: a}", after: "{when: person.b, do: a}", version: 2, missing: "lookup person has no result", lookup: "person"},
		{name: "a lookup that is not given, on one side", before: "{do: a}", after: "{when: person.b, do: a}", version: 2, missing: "lookup person has no result", lookup: "person"},
		{name: "a default for what is not given, to the same effect", before: "{when: town.big, do: a}", after: "{when: town.big, do: b}", version: 2, missing: "lookup town has no result", lookup: "town"},
		{name: "a default for what is not given, to another effect", before: "{when: town.big, do: a}", after: "{when: '!town.big', do: b}", version: 2, want: "changed: [] → [b]"},
		{name: "a lookup that does not matter", before: "{when: person.a, do: a}", after: "{when: person.a, do: a}", version: 2},
		{name: "an older version", before: send, after: "{do: keep}", version: 1, missing: "version 1 of its schema is brought to version 2 by Go functions"},
		{name: "an older version, of a cell that is the same", before: send, after: send, version: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := routing.NewDiffer(lettersTable(t, test.before, ""), lettersTable(t, test.after, ""), lookups(t, cmp.Or(test.lookups, "{}")))
			got := told(d.Event(t.Context(), order("sent", test.version, `{"to": "c-1", "urgent": true}`)))
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			r := d.Report()
			if n := len(r.Changes); r.Events != 1 || n != min(len(test.want), 1) || r.Differing != n || r.Same() != (test.want == "" && test.missing == "") {
				t.Errorf("%+v", r)
			}
			switch {
			case test.missing == "" && len(r.Uncompared) > 0:
				t.Errorf("not compared: %+v", r.Uncompared)
			case test.missing != "" && (len(r.Uncompared) != 1 || !strings.HasPrefix(r.Uncompared[0].Why, test.missing) || r.Uncompared[0].Lookup != test.lookup || r.Uncompared[0].Example != "event-1"):
				t.Errorf("not compared: %+v, want %s", r.Uncompared, test.missing)
			}
		})
	}
}

// A change anywhere in what a delivery depends on is looked at.
func TestDiffOfWhatADeliveryDependsOn(t *testing.T) {
	t.Parallel()
	const send, asks = "{do: send, with: {by: [post]}}", "{when: town.big, do: a}, {do: b}"
	for _, test := range []struct{ name, rules, rest, from, to, lookups, want string }{
		{"added", send, "modifiers: [{name: m, add: {by: [air]}}]", "[air]", "[sea]", "{}", "[send {by: [post, air]}] → [send {by: [post, sea]}]"},
		{"set", send, "modifiers: [{name: m, set: {by: [air]}}]", "[air]", "[sea]", "{}", "[send {by: [air]}] → [send {by: [sea]}]"},
		{"removed", send, "modifiers: [{name: m, remove: {by: [air]}}]", "[air]", "[post]", "{}", "[send {by: [post]}] → [send {by: []}]"},
		{"a modifier's condition", send, "modifiers: [{name: m, when: payload.urgent, remove: {by: [post]}}]", "payload.urgent", `payload.to == ""`, "{}", "[send {by: []}] → [send {by: [post]}]"},
		{"a modifier less", send, "modifiers: [{name: m, remove: {by: [post]}}]", "modifiers: [{name: m, remove: {by: [post]}}]", "", "{}", "[send {by: []}] → [send {by: [post]}]"},
		{"the order of modifiers", send, "modifiers: [{name: m, set: {by: [a]}}, {name: n, set: {by: [b]}}]", "[a]}}, {name: n, set: {by: [b]", "[b]}}, {name: n, set: {by: [a]", "{}", "[send {by: [b]}] → [send {by: [a]}]"},
		{"a default", asks, "", "big: false", "big: true", `{"town": {"*": {"$error": "x"}}}`, "[b] → [a]"},
		{"a policy", asks, "", "on_error: default, default: {big: false}", "on_error: retry", `{"town": {"*": {"$error": "x"}}}`, "[b] → retried"},
		{"a lookup's schema", asks, "", "{key: payload.to, on_error: default", "{schema: {type: object, maxProperties: 1}, key: payload.to, on_error: default", `{"town": {"*": {"big": true, "old": true}}}`, "[a] → [b]"},
		{"a key", asks, "", "town: {key: payload.to", "town: {key: event.id", `{"town": {"c-1": {"big": true}, "event-1": {"big": false}}}`, "[a] → [b]"},
		{"the key of another lookup", "{when: street.wide, do: a}, {do: b}", "", "town: {key: payload.to", "town: {key: event.id",
			`{"town": {"c-1": {"street": "x"}, "event-1": {"street": "y"}}, "street": {"x": {"wide": true}, "y": {"wide": false}}}`, "[a] → [b]"},
		{"what makes it urgent", "{when: event.severity == 'CRITICAL', do: a}", "", "  sent:\n", "  sent:\n    critical: payload.to == \"c-1\"\n", "{}", "[] → [a] critical"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before := fmt.Sprintf(letters, test.rules, test.rest)
			after := strings.Replace(before, test.from, test.to, 1)
			if after == before {
				t.Fatalf("there is no %q", test.from)
			}
			got := told(routing.Diff(t.Context(), table(t, before), table(t, after), order("sent", 2, `{"to": "c-1", "urgent": true}`), lookups(t, test.lookups)))
			if got != "changed: "+test.want {
				t.Errorf("got %s, want changed: %s", got, test.want)
			}
		})
	}
}

// told are changes in one line.
func told(changes []routing.Change) string {
	side := func(d *routing.Delivery) string {
		switch {
		case d == nil:
			return ""
		case d.Error != "" && d.Reason == "":
			return "retried"
		case d.Error != "":
			return string(d.Reason)
		case d.Lane != "":
			return fmt.Sprint(d.Actions, " ", d.Lane)
		}
		return fmt.Sprint(d.Actions)
	}
	var list []string
	for _, c := range changes {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s: %s → %s", c.Consumer, c.Kind, side(c.Old), side(c.New))))
	}
	return strings.TrimPrefix(strings.Join(list, ", "), "mail ")
}

// What else a file can change.
func TestDiffOfMatrices(t *testing.T) {
	t.Parallel()
	const mail = "{do: send}"
	before := fmt.Sprintf(letters, mail, "")
	for _, test := range []struct{ name, from, to, typ, want string }{
		{"gained", "lost: []", "lost: [mail]", "lost", "gained:  → [record]"},
		{"lost", "sent: [mail]", "sent: []", "sent", "lost: [send] → "},
		{"a new consumer", "audit: {ordered: true}", "audit: {ordered: true}, mall: {}", "sent", ""},
		{"a consumer of all", `"*": [audit]`, `"*": []`, "lost", "audit lost: [record] →"},
		{"a critical type", "lost: {schemas", "lost: {critical: true, schemas", "lost", ""}, // its only consumer is ordered, and knows no lanes
		{"a critical type with a schema", "    schemas:", "    critical: true\n    schemas:", "sent", "changed: [send] → [send] critical"},
		{"no longer ordered", "audit: {ordered: true}", "audit: {}", "lost", ""},
		{"an event type less", "  lost: {schemas: {2: {$ref: \"#/$defs/parcel\"}}}\n", "", "lost", "unroutable:  →, audit lost: [record] →"},
		{"another definition", "{parcel: {type: object}}", "{parcel: {type: object, required: [weight]}}", "lost", "audit changed: [record] → SCHEMA_VIOLATION"},
		{"another schema", "2: {type: object,", "2: {type: object, maxProperties: 1,", "sent", "changed: [send] → SCHEMA_VIOLATION, audit changed: [record] → SCHEMA_VIOLATION"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			after := strings.Replace(before, test.from, test.to, 1)
			if test.to == "" {
				after = strings.Replace(after, "lost: [], ", "", 1)
			}
			after = strings.Replace(after, `"*": {audit: [{do: record}]}`, `"*": {audit: [{do: record}], mail: [{do: record}]}`, 1)
			old, now := table(t, before), table(t, after)
			e := order(test.typ, 2, `{"to": "c-1", "urgent": true}`)
			got := told(routing.Diff(t.Context(), old, now, e, nil))
			if strings.TrimSpace(got) != strings.TrimSpace(test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if back := routing.Diff(t.Context(), now, old, e, nil); len(back) != strings.Count(got, "→") {
				t.Errorf("turned round: %q", told(back))
			}
		})
	}
}

// A differ is as large after a million events as after one.
func TestDifferIsBounded(t *testing.T) { // alone: it looks at the heap
	d := routing.NewDiffer(lettersTable(t, "{do: a}", ""), lettersTable(t, "{do: b}", ""), nil)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	d.Event(t.Context(), order("sent", 2, `{}`))
	before := heap()
	const n = 50_000
	for i := range n {
		e := order("sent", 2, `{}`)
		e.ID = fmt.Sprintf("%0200d", i)
		d.Event(t.Context(), e)
		e.Type = e.ID // anybody may send events of types that nobody knows
		d.Event(t.Context(), e)
	}
	after := heap()
	if after > before+1<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", before, after)
	}
	r := d.Report()
	if r.Events != 2*n+1 || r.Unroutable != n || r.Differing != n+1 || len(r.Changes) != 1 || r.Changes[0].Count != n+1 || len(r.Changes[0].Examples) != 3 || len(r.UnroutableTypes) != 3 {
		t.Errorf("%+v", r)
	}
}

func TestDifferNamesUnroutableTypes(t *testing.T) {
	t.Parallel()
	d := routing.NewDiffer(lettersTable(t, "{do: a}", ""), lettersTable(t, "{do: a}", ""), nil)
	for _, typ := range []string{"sent", "b", "a", "b", "lost"} {
		d.Event(t.Context(), order(typ, 2, `{}`))
	}
	r := d.Report()
	if want := []string{"b", "a"}; r.Unroutable != 3 || !slices.Equal(r.UnroutableTypes, want) {
		t.Errorf("%d events of %q are unroutable, want 3 of %q", r.Unroutable, r.UnroutableTypes, want)
	}
}

func TestDiffReportAsJSON(t *testing.T) {
	t.Parallel()
	d := routing.NewDiffer(lettersTable(t, "{when: person.a, do: a}", ""), lettersTable(t, "{when: person.a, do: a, with: {by: air}}", ""), lookups(t, `{"person": {"c-1": {"a": true}, "c-2": {"$error": "x"}}}`))
	for i, to := range []string{"c-1", "c-1", "c-2", "c-3"} {
		e := order("sent", 2, fmt.Sprintf(`{"to": %q}`, to))
		e.ID = fmt.Sprintf("event-%d", i)
		d.Event(t.Context(), e)
	}
	text, err := json.MarshalIndent(d.Report(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "explain/diff.json", string(text)+"\n")
}

func BenchmarkDiffer(b *testing.B) {
	load := func(rules string) *routing.Table {
		table, err := routing.Parse("routes.yaml", fmt.Appendf(nil, letters, rules, ""), nil)
		if err != nil {
			b.Fatal(err)
		}
		return table
	}
	for name, after := range map[string]string{"same": "{do: a}", "changed": "{when: '!payload.urgent', do: a}"} {
		b.Run(name, func(b *testing.B) {
			d := routing.NewDiffer(load("{do: a}"), load(after), nil)
			e := order("sent", 2, `{"to": "c-1"}`)
			for b.Loop() {
				d.Event(b.Context(), e)
			}
		})
	}
}
