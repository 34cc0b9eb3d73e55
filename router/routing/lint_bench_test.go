package routing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/router/routing"
)

// BenchmarkLint lints files of 10,000 rules and 10,000 modifiers: on one event type each, on many, and all modifiers of one type on
// a hundred of its rules each, which is as many pairs as a table may have.
func BenchmarkLint(b *testing.B) {
	for _, shape := range []struct {
		name                         string
		types, rules, modifiers, per int
	}{
		{"1_type", 1, 10_000, 10_000, 1},
		{"1000_types", 1000, 10_000, 10_000, 100},
		{"most_pairs", 1, 10_000, 10_000, 99},
	} {
		b.Run(shape.name, func(b *testing.B) {
			table, err := routing.Parse("routes.yaml", largeFile(shape.types, shape.rules, shape.modifiers, shape.per), nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				table.Lint()
			}
		})
	}
}

// largeFile has rules and modifiers that all are different, and that find each other by their parameters: per of each have the same.
func largeFile(types, rules, modifiers, per int) []byte {
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	say("routing: 1\nconsumers:\n  billing: {}\nevents:")
	for i := range types {
		say("  t%d:\n    schema: {type: object, properties: {n: {type: integer}}}", i)
	}
	say("matrix:\n  \"*\": [billing]\nactions:")
	each := rules / types
	for i := range types {
		say("  t%d:\n    billing:", i)
		for k := range each {
			n := i*each + k
			say("      - when: payload.n == %d\n        do: a%d\n        with: {p%d: [w%d]}", n, n, n/per, n)
		}
	}
	say("modifiers:")
	for n := range modifiers {
		say("  - name: m%d\n    events: [t%d]\n    when: payload.n > %d\n    add: {p%d: [v%d]}", n, n/each, n, n/per, n)
	}
	return []byte(text.String())
}
