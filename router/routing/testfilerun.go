package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// testRetry is the expectation of an attempt that fails and is retried.
const testRetry = "retry"

// testRun is a run of one test.
type testRun struct {
	table *Table
	file  *routefile.TestFile
	test  *routefile.Test
	ups   upcasters
	cov   *coverage

	failures []TestFailure
}

func (r *testRun) fail(line int, consumer, expected, got, problem string, args ...any) {
	r.failures = append(r.failures, TestFailure{
		File: r.file.Name, Line: line, Test: r.test.Text, Consumer: consumer, Problem: fmt.Sprintf(problem, args...), Expected: expected, Got: got,
	})
}

func (r *testRun) run(ctx context.Context) {
	for _, list := range [][]routefile.TestLookup{r.file.Lookups, r.test.Lookups} {
		if at, hint, found := r.table.undeclared(list); found {
			r.fail(at.Pos.Line, "", "", "", "%s declares no lookup %s%s", r.table.file.Name, at.Text, hint)
		}
	}
	from := &strictLookups{Lookups: testLookups(r.file, r.test)}
	x := r.table.explainTo(ctx, r.test.Event, r.ups, from, r.cov)
	for _, missed := range from.missed {
		r.fail(r.test.Pos.Line, "", "", "", "lookup %s is asked for the key %q, and the test does not say what it finds: add it to the test's lookups, or {$error: …}", missed.name, missed.key)
	}
	switch {
	case x.Unroutable != "":
		r.fail(r.test.EventPos.Line, "", "", "", "%s declares no event type %s%s", x.File, x.EventType, suggest(x.EventType, slices.Values(r.table.EventTypes())))
		return
	case x.Undecided != "":
		r.fail(r.test.EventPos.Line, "", "", "", "%s: test it in Go, with routing.Router.Test", x.Undecided)
		return
	case len(r.failures) > 0: // what follows from those is of no interest
		return
	}
	if r.test.Lane != nil && *r.test.Lane != x.Lane {
		r.fail(r.test.LanePos.Line, "", laneWord(*r.test.Lane), laneWord(x.Lane), "it goes in another lane")
	}
	for i := range r.test.Expect {
		r.expect(&r.test.Expect[i], x)
	}
	for _, c := range x.Consumers {
		if c.Delivered && !slices.ContainsFunc(r.test.Expect, func(e routefile.Expectation) bool { return e.Consumer.Text == c.Consumer }) {
			r.fail(r.test.ExpectPos.Line, c.Consumer, "", c.got(), "%s gets the event, by %s, and is not expected to", c.Consumer, c.Why)
		}
	}
}

func laneWord(l eventing.Lane) string {
	if l == "" {
		return "normal"
	}
	return string(l)
}

// expect compares one consumer.
func (r *testRun) expect(e *routefile.Expectation, x Explanation) {
	name, line := e.Consumer.Text, e.Consumer.Pos.Line
	i := slices.IndexFunc(x.Consumers, func(c ConsumerExplanation) bool { return c.Consumer == name })
	switch {
	case i < 0:
		r.fail(line, name, "", "", "%s declares no consumer %s%s", x.File, name, suggest(name, slices.Values(r.table.Consumers())))
		return
	case !x.Consumers[i].Delivered:
		r.fail(line, name, expected(e), "", "%s does not get the event: %s", name, x.Consumers[i].Why)
		return
	}
	c := x.Consumers[i]
	if want, got := expected(e), c.got(); want != got {
		problem := name + " does something else"
		switch {
		case c.Error != "" && e.Error.Text == "":
			problem = name + " fails: " + c.Error
		case c.Error != "":
			problem = name + " fails otherwise: " + c.Error
		case e.Error.Text != "":
			problem = name + " does not fail"
		case len(c.Actions) == 0:
			problem = name + " does nothing: no rule matches"
		}
		r.fail(line, name, want, got, "%s", problem)
	}
}

// expected is an expectation in one line.
func expected(e *routefile.Expectation) string {
	if e.Error.Text != "" {
		return "{$error: " + e.Error.Text + "}"
	}
	actions := make([]Action, len(e.Actions))
	for i, a := range e.Actions {
		actions[i] = Action{Name: a.Do.Text, params: params(a.With)}
	}
	return inLine(actions)
}

// got is what a consumer does, in the same words.
func (x ConsumerExplanation) got() string {
	switch {
	case x.Error == "":
		return inLine(x.Actions)
	case x.Reason == "":
		return "{$error: " + testRetry + "}"
	}
	return "{$error: " + string(x.Reason) + "}"
}

func inLine(actions []Action) string {
	list := make([]string, len(actions))
	for i, a := range actions {
		list[i] = a.String()
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// strictLookups remember what they were asked for and do not have.
type strictLookups struct {
	Lookups

	missed []notGivenError
}

func (l *strictLookups) find(ctx context.Context, of *lookup, key string) (any, error) {
	value, err := l.Lookups.find(ctx, of, key)
	if missed := (*notGivenError)(nil); errors.As(err, &missed) && !slices.Contains(l.missed, *missed) {
		l.missed = append(l.missed, *missed)
	}
	return value, err
}
