package routing

import (
	"errors"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

type programKey struct {
	eventType string
	want      condition.Result
	text      string
}

// asked is the condition of a rule or a modifier on events of a type, and where its program goes: all are counted before the
// first is compiled.
type asked struct {
	typ     *eventType
	when    *routefile.Expr
	program **condition.Program
	needs   *[]int
}

// conditions compiles them all, with the keys of the lookups that they need.
func (c *compiler) conditions() {
	for i := range c.file.Events {
		c.critical(c.table.types[c.file.Events[i].Text])
	}
	for _, a := range c.asked {
		*a.program = c.program(a.typ, a.when, condition.Bool)
		*a.needs = needs(*a.program)
		c.reach(a.typ, *a.needs, nil)
	}
}

// scope is what the conditions on events of a type may use: the payload of the latest version, and all lookups. It is nil
// if there is none.
func (c *compiler) scope(t *eventType) *condition.Scope {
	if scope, known := c.scopes[t.src.Text]; known {
		return scope
	}
	c.scopes[t.src.Text] = nil
	if c.met.scopes += len(c.table.lookups); c.met.scopes > c.most.scopes {
		c.fault(t.src.Pos, "more than %d pairs of a lookup and an event type that has conditions: declare fewer lookups", c.most.scopes)
		return nil
	}
	vars := []condition.Variable{{Name: "payload"}}
	if len(t.versions) > 0 {
		vars[0].Schema = t.schemas[t.versions[len(t.versions)-1]]
	}
	for _, l := range c.table.lookups {
		vars = append(vars, condition.Variable{Name: l.src.Text, Schema: l.schema})
	}
	scope, err := condition.NewScope(vars...)
	if err != nil {
		c.fault(t.src.Pos, "what conditions on %s may use: %v", t.src.Text, err)
		return nil
	}
	c.scopes[t.src.Text] = scope
	return scope
}

// critical compiles the condition for each version: it is asked when an event is appended.
func (c *compiler) critical(t *eventType) {
	if t.src.Critical == nil {
		return
	}
	for _, v := range versionsOf(t) {
		scope, err := condition.NewScope(condition.Variable{Name: "payload", Schema: t.schemas[v]})
		if err != nil {
			c.fault(t.src.Pos, "%v", err)
			continue
		}
		what := fmt.Sprintf("%s version %d", t.src.Text, v)
		t.critical[v] = c.expression(scope, *t.src.Critical, condition.Bool, what)
	}
}

// expression compiles an expression; nil if it is faulty.
func (c *compiler) expression(scope *condition.Scope, e routefile.Expr, want condition.Result, about string) *condition.Program {
	if c.met.faulty >= maxFaulty {
		return nil
	}
	parsed := c.parsed[e.Text]
	if parsed == nil {
		parsed = condition.Parse(e.Text)
		c.parsed[e.Text] = parsed
	}
	program, err := scope.CompileParsed(parsed, want)
	if err == nil {
		return program
	}
	c.met.faulty++
	var faulty *condition.CompileError
	if !errors.As(err, &faulty) {
		c.faultAbout(about, e.Pos, "%v", err)
		return nil
	}
	for _, f := range faulty.Faults {
		c.faultAbout(about, e.At(f.Line, f.Column), "%s", f.Message)
	}
	return nil
}

// ask has a condition compiled later, if there is one.
func (c *compiler) ask(a asked) {
	if a.when != nil && c.count(a.typ, a.when, programKey{a.typ.src.Text, condition.Bool, a.when.Text}) {
		c.asked = append(c.asked, a)
	}
}

// program compiles an expression for the events of a type, once.
func (c *compiler) program(t *eventType, e *routefile.Expr, want condition.Result) *condition.Program {
	key := programKey{t.src.Text, want, e.Text}
	scope := c.scope(t)
	if scope == nil || !c.count(t, e, key) {
		return nil
	}
	if p, known := c.programs[key]; known && (p != nil || len(c.faults) > maxSuggested) {
		return p
	}
	p := c.expression(scope, *e, want, t.src.Text) // a faulty one again, for its other places
	c.programs[key] = p
	return p
}

// needs are the slots of the lookups that a program uses.
func needs(p *condition.Program) []int {
	if p == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Uses()), func(slot int) bool { return slot == 0 })
}
