package routing_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/router/routing"
)

// checkInBubble checks a property where time passes when everybody waits.
func checkInBubble(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { rapid.Check(struct{ rapid.TB }{t}, property) }) // without a deadline, which bubbles do not have
}

// What explanations say is what running programs do: of all events, by all tables.
func TestExplainAndTheRunningSystemAgree(t *testing.T) {
	t.Parallel()
	checkInBubble(t, func(t *rapid.T) {
		f := generateFile(t).mend()
		table := f.compile(t)
		l, events := generateLookups(t), generateEvents(t, f, 12)
		ran, program := run(t, f, table, l, events)
		byRouter, byTable, decided := became{}, became{}, became{}
		for _, e := range events {
			x := program.app.Explain(t.Context(), e)
			maps.Copy(byRouter, explained(x))
			for _, c := range x.Consumers {
				checkSteps(t, c)
			}
			if x.Lane != program.lanes[e.ID] {
				t.Errorf("%s: explained in lane %q, and went in %q", e.ID, x.Lane, program.lanes[e.ID])
			}
			y := table.Explain(t.Context(), e, l)
			if y.Undecided != "" {
				if e.SchemaVersion != 1 || len(f.Events[e.Type].Schemas) < 2 {
					t.Errorf("%s is of the latest version, and undecided: %s", e.ID, y.Undecided)
				}
				continue
			}
			maps.Copy(byTable, explained(y))
			for key, text := range ran {
				if key.event == e.ID {
					decided[key] = text
				}
			}
		}
		if err := difference(byRouter, ran); err != nil {
			t.Errorf("Router.Explain against what ran:\n%v\n%s", err, f.text())
		}
		if err := difference(byTable, decided); err != nil {
			t.Errorf("Table.Explain against what ran:\n%v\n%s", err, f.text())
		}
	})
}

// checkSteps checks that an explanation of a delivery is in agreement with itself: the actions are those of the rules that matched.
func checkSteps(t *rapid.T, c routing.ConsumerExplanation) {
	var matched, did []int
	open := true // a rule that is tried comes after none that has decided
	for _, r := range c.Rules {
		tried := r.Outcome != routing.NotTried
		if tried != open && c.Error == "" {
			t.Errorf("%s: the rule in line %d: %s", c.Consumer, r.Line, r.Outcome)
		}
		if r.Outcome == routing.Matched {
			matched, open = append(matched, r.Line), r.Continue
		}
	}
	for _, a := range c.Actions {
		did = append(did, a.Line)
	}
	if c.Error == "" && !slices.Equal(matched, did) {
		t.Errorf("%s: rules %v matched, and actions of %v are taken", c.Consumer, matched, did)
	}
	if failed := slices.ContainsFunc(c.Rules, func(r routing.RuleTried) bool { return r.Outcome == routing.Failed }) ||
		slices.ContainsFunc(c.Modifiers, func(m routing.ModifierTried) bool { return m.Outcome == routing.Failed }); failed && c.Error == "" {
		t.Errorf("%s: something failed, and the attempt does not: %+v", c.Consumer, c)
	}
}
