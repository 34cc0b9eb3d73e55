package routing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// Explanation tells what becomes of an event by a table, and why: each consumer, also those that do
// not get it, and each rule that was tried, with the values that decided it.
type Explanation struct {
	File      string        `json:"file"`
	Version   string        `json:"routing_version"`
	EventID   string        `json:"event_id,omitempty"`
	EventType string        `json:"event_type"`
	Lane      eventing.Lane `json:"lane,omitempty"`
	// Unroutable says why the event goes nowhere at all: it would be a dead letter at dispatch.
	Unroutable string `json:"unroutable,omitempty"`
	// Undecided says why it is not known what the consumers would do: only of [Table.Explain], about an event of an
	// older schema version. Who gets it is known all the same.
	Undecided string                `json:"undecided,omitempty"`
	Consumers []ConsumerExplanation `json:"consumers"`
}

// ConsumerExplanation is what one consumer does about an event.
type ConsumerExplanation struct {
	Consumer  string `json:"consumer"`
	Delivered bool   `json:"delivered"`
	// Why it is delivered, or is not, with the line of the matrix.
	Why       string          `json:"why"`
	Rules     []RuleTried     `json:"rules,omitempty"`
	Modifiers []ModifierTried `json:"modifiers,omitempty"`
	Lookups   []LookupMade    `json:"lookups,omitempty"`
	// Actions are what the consumer would do. None, without an Error: no rule matches, and the event counts as
	// processed. Nil: it is not known, see [Explanation].Undecided.
	Actions []Action `json:"actions"`
	// Error is why there would be none: the attempt fails.
	Error string `json:"error,omitempty"`
	// Reason is that of the dead letter; empty: the attempt is retried as the consumer's policy says.
	Reason eventing.ReasonCode `json:"reason,omitempty"`
}

// Outcome is what became of a rule or a modifier.
type Outcome string

// The outcomes.
const (
	Matched    Outcome = "matched"
	NotMatched Outcome = "not matched"
	Skipped    Outcome = "skipped" // a lookup that it needs failed, and its policy is to skip
	Failed     Outcome = "failed"
	NotTried   Outcome = "not tried" // an earlier rule has decided
)

// Term is a part of a condition, as it is written, with what it was for the event.
type Term struct {
	Text  string `json:"text"`
	Value any    `json:"value"`
	// Error is why it has no value.
	Error string `json:"error,omitempty"`
}

// RuleTried is a rule of a cell, in the file's order.
type RuleTried struct {
	Line     int     `json:"line"`
	Do       string  `json:"do"`
	When     string  `json:"when,omitempty"` // empty: always
	Continue bool    `json:"continue,omitempty"`
	Outcome  Outcome `json:"outcome"`
	Why      string  `json:"why,omitempty"`
	Values   []Term  `json:"values,omitempty"`
}

// ModifierTried is a modifier that could change the action of a rule that has matched.
type ModifierTried struct {
	Name     string         `json:"name"`
	Line     int            `json:"line"`
	RuleLine int            `json:"rule_line"` // of that rule
	When     string         `json:"when,omitempty"`
	Add      map[string]any `json:"add,omitempty"`
	Remove   map[string]any `json:"remove,omitempty"`
	Set      map[string]any `json:"set,omitempty"`
	Outcome  Outcome        `json:"outcome"`
	Why      string         `json:"why,omitempty"`
	Values   []Term         `json:"values,omitempty"`
}

// LookupMade is a lookup that a condition needed.
type LookupMade struct {
	Name string `json:"name"`
	Key  string `json:"key,omitempty"`
	// Value is what conditions see: after an error, the default if the policy is to take it.
	Value any    `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	// OnError is the policy that was applied to the error: retry, skip or default.
	OnError string `json:"on_error,omitempty"`
	// Permanent: no retry can mend the error. It makes a dead letter where the policy is to retry.
	Permanent bool `json:"permanent,omitempty"`
}

// Explain tells what consumers that run this table would do about an event, and why, if lookups found what l says. It has no
// effect. An event of an older schema version is brought to the latest by Go functions, which a file does not have: then
// the result says who gets the event, and that the rest is not known; [Router.Explain] knows it.
func (t *Table) Explain(ctx context.Context, e eventing.Envelope, l Lookups) Explanation {
	return t.explain(ctx, e, nil, l)
}

// explain evaluates an event at every consumer, as they would. Without upcasters, it is not known what becomes of
// events that need one.
func (t *Table) explain(ctx context.Context, e eventing.Envelope, ups upcasters, from source) Explanation {
	return t.explainTo(ctx, e, ups, from, nil)
}

// explainTo also tells cov what was reached; nil: nobody.
func (t *Table) explainTo(ctx context.Context, e eventing.Envelope, ups upcasters, from source, cov *coverage) Explanation {
	e.SchemaVersion = max(e.SchemaVersion, 1)
	x := Explanation{File: t.file.Name, Version: t.Version(), EventID: e.ID, EventType: e.Type, Lane: t.Lane(e), Consumers: []ConsumerExplanation{}}
	typ, known := t.types[e.Type]
	if !known {
		x.Unroutable = fmt.Sprintf("the routing file declares no event type %s%s: it would be a dead letter at dispatch", e.Type, suggest(e.Type, maps.Keys(t.types)))
		return x
	}
	var opened *event
	openErr := safely(func() (err error) {
		opened, err = t.open(e, ups)
		return err
	})
	if errors.Is(openErr, errNoUpcaster) {
		x.Undecided = whyUpcast(e.SchemaVersion, typ)
	}
	for _, c := range t.order {
		one := ConsumerExplanation{Consumer: c.src.Text, Actions: []Action{}}
		cell := typ.cells[c.src.Text]
		switch {
		case cell == nil:
			one.Why = fmt.Sprintf("no row of the matrix sends %s to it", e.Type)
		case x.Undecided != "":
			one.Delivered, one.Why, one.Actions = true, cell.why(), nil
		default:
			one.Delivered, one.Why = true, cell.why()
			cov.cell(cell)
			err := openErr
			if err == nil {
				err = t.attempt(ctx, c, opened, from, &recorder{to: &one, cov: cov})
			}
			one.untried(cell)
			one.fails(err)
		}
		x.Consumers = append(x.Consumers, one)
	}
	return x
}

// attempt decides as an attempt of the consumer does: within its time.
func (t *Table) attempt(ctx context.Context, c *consumer, e *event, from source, rec *recorder) error {
	ctx = eventing.WithEnvelope(eventing.WithAttempt(ctx, eventing.CurrentAttempt{Consumer: c.src.Text, Number: 1, RoutingVersion: t.Version()}), e.sent)
	ctx, cancel := context.WithTimeout(ctx, c.src.Policy.WithDefaults().Timeout)
	defer cancel()
	return safely(func() error {
		actions, err := t.decide(ctx, c.src.Text, e, from, rec)
		if len(actions) > 0 {
			rec.to.Actions = slices.Clone(actions) // what is the table's is not for writing
		}
		if err == nil {
			err = ctx.Err()
		}
		return err
	})
}

// safely makes an error of a panic of somebody's function, as consumers do.
func safely(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &eventing.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}

func (c *cell) why() string {
	row := c.typ.src.Text
	if c.any {
		row = `"*"`
	}
	return fmt.Sprintf("row %s of the matrix, line %d", row, c.ticked.Line)
}

// latest is the version that conditions see; 0: any.
func (t *eventType) latest() int {
	if len(t.versions) == 0 {
		return 0
	}
	return t.versions[len(t.versions)-1]
}

// beside adds the consumers that are registered in Go and that the file does not declare: their handlers decide.
func (r *Router) beside(x *Explanation) {
	routes, routed := r.Route(x.EventType)
	for _, route := range routes {
		if r.table.consumers[route.Consumer] == nil {
			x.Consumers = append(x.Consumers, ConsumerExplanation{
				Consumer: route.Consumer, Delivered: true, Why: "it has a handler for it, registered in Go; the routing file does not declare the consumer",
			})
		}
	}
	if routed {
		x.Unroutable = ""
	}
}

func (x *ConsumerExplanation) fails(err error) {
	if err == nil {
		return
	}
	x.Error, x.Actions = err.Error(), []Action{}
	if eventing.IsPermanent(err) {
		x.Reason = eventing.ReasonOf(err)
	}
}

// untried adds the rules that come after the one that has decided, or failed.
func (x *ConsumerExplanation) untried(c *cell) {
	for i := len(x.Rules); i < len(c.rules); i++ {
		x.Rules = append(x.Rules, tried(&c.rules[i], NotTried))
	}
}
