package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// many is a routing file with n rules on events of type "busy", none of which matches but the last, one type
// beside it, "quiet", and n more with a rule each.
func many(n int, same bool) string {
	var b strings.Builder
	b.WriteString("routing: 1\nconsumers: {c: {}}\nevents:\n")
	schema := "{schema: {type: object, properties: {kind: {type: string}, n: {type: integer}}}}\n"
	b.WriteString("  quiet: " + schema + "  busy: " + schema)
	if !same {
		for i := range n {
			fmt.Fprintf(&b, "  other_%d: %s", i, schema)
		}
	}
	b.WriteString("matrix: {\"*\": [c]}\nactions:\n  quiet: {c: [{when: payload.kind == \"x\" && payload.n > 3, do: act, with: {to: [a]}}]}\n")
	if same {
		b.WriteString("  busy:\n    c:\n")
		for i := range n {
			fmt.Fprintf(&b, "      - {when: payload.kind == \"kind_%d\" && payload.n > 3, do: act, with: {to: [a]}}\n", i)
		}
		b.WriteString("      - {do: act}\n")
	} else {
		b.WriteString("  busy: {c: [{do: act}]}\n")
		for i := range n {
			fmt.Fprintf(&b, "  other_%d: {c: [{when: payload.kind == \"kind_%d\" && payload.n > 3, do: act}]}\n", i, i)
		}
	}
	return b.String()
}

func benchEvent(b *testing.B, table *Table, eventType string) *event {
	b.Helper()
	e, err := table.open(eventing.Envelope{
		Header: eventing.Header{ID: "1", Type: eventType, SchemaVersion: 1}, Payload: json.RawMessage(`{"kind":"x","n":4}`),
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkRulesOfOtherTypes decides who gets an event, and what they do, by one rule, beside none and 10,000 rules on
// other types.
func BenchmarkRulesOfOtherTypes(b *testing.B) {
	for _, n := range []int{0, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := parse(b, many(n, false))
			e := benchEvent(b, table, "quiet")
			b.ReportAllocs()
			for b.Loop() {
				routes, _ := table.Route("quiet")
				if _, err := table.decide(context.Background(), routes[0].Consumer, e, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRulesOfSameType decides about an event that the last of n rules is for.
func BenchmarkRulesOfSameType(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := parse(b, many(n, true))
			e := benchEvent(b, table, "busy")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.decide(context.Background(), "c", e, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
		})
	}
}

// The lookups of examples/casework, as a small database would answer them.
var caseworkLookups = map[string]LookupFunc{
	"case": func(context.Context, string) (any, error) {
		return json.RawMessage(`{"citizen_id":"` + citizenID + `","fraud_risk_level":"HIGH","office_id":"` + officeID + `","handler_id":"` + userID + `","status":"intake"}`), nil
	},
	"citizen": func(context.Context, string) (any, error) {
		return json.RawMessage(`{"notification_preferences":{"sms":false},"district":"north"}`), nil
	},
	"user":   func(context.Context, string) (any, error) { return json.RawMessage(`{"role":"system_admin"}`), nil },
	"office": func(context.Context, string) (any, error) { return json.RawMessage(`{"district":"north"}`), nil },
}

const (
	citizenID = "0198a000-0000-7000-8000-000000000001"
	officeID  = "0198a000-0000-7000-8000-000000000002"
	userID    = "0198a000-0000-7000-8000-000000000003"
)

// caseworkMix are the events of examples/casework/routes_test.yaml, which has each of the 29 types, opened.
func caseworkMix(b *testing.B) (*Table, []*event, source) {
	b.Helper()
	table, err := Load("../../examples/casework/routes.yaml")
	if err != nil {
		b.Fatal(err)
	}
	tests, err := LoadTests("../../examples/casework/routes_test.yaml")
	if err != nil {
		b.Fatal(err)
	}
	var mix []*event
	for _, test := range tests.Tests {
		e := test.Envelope
		opened, err := table.open(e, upcasters{})
		if err == nil {
			mix = append(mix, opened)
		}
	}
	seen := map[string]bool{}
	for _, e := range mix {
		seen[e.Type] = true
	}
	if len(seen) != len(table.types) {
		b.Fatalf("the mix has %d types of %d", len(seen), len(table.types))
	}
	return table, mix, newFunctions(table, caseworkLookups, time.Now, slog.New(slog.DiscardHandler))
}

// BenchmarkMatrix decides who gets an event, for the casework mix of types.
func BenchmarkMatrix(b *testing.B) {
	table, mix, _ := caseworkMix(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		routes, _ := table.Route(mix[n%len(mix)].Type)
		n += max(len(routes), 1)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

// BenchmarkEvaluation decides what each consumer does about an event, with modifiers and cached lookups, for the
// casework mix of types: an op is one delivery.
func BenchmarkEvaluation(b *testing.B) {
	table, mix, from := caseworkMix(b)
	type delivery struct {
		e        *event
		consumer string
	}
	var deliveries []delivery
	for _, e := range mix {
		routes, _ := table.Route(e.Type)
		for _, r := range routes {
			deliveries = append(deliveries, delivery{e, r.Consumer})
		}
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		d := deliveries[n%len(deliveries)]
		n++
		if _, err := table.decide(context.Background(), d.consumer, d.e, from, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}
