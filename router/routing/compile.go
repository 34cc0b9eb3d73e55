package routing

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// compiler makes a table of a file, and collects what is wrong.
type compiler struct {
	file  *routefile.File
	most  bounds
	table *Table

	faults []fault
	found  map[routefile.Fault]int     // those that are about event types, in faults
	scopes map[string]*condition.Scope // by event type
	// programs are shared by the cells of an event type: by type, wanted result and text.
	programs map[programKey]*condition.Program
	rulesMet int // in all cells
}

// fault is something wrong at a place, for these event types.
type fault struct {
	routefile.Fault
	about []string
}

// bounds are of what a file may multiply to, by "*" or by modifiers.
type bounds struct {
	programs int // conditions, for each event type that they are for
	cells    int // that "*" ticks in the matrix
	rules    int // in all cells
	visited  int // pairs of a cell and "*", or of a rule and a modifier
}

var usual = bounds{programs: 50_000, cells: 1_000_000, rules: 1_000_000, visited: 2_000_000}

type programKey struct {
	eventType string
	want      condition.Result
	text      string
}

func compile(file *routefile.File, most bounds) (*Table, error) {
	c := &compiler{
		file: file, most: most, found: map[routefile.Fault]int{}, scopes: map[string]*condition.Scope{}, programs: map[programKey]*condition.Program{},
		table: &Table{file: file, consumers: map[string]*consumer{}, types: map[string]*eventType{}},
	}
	for _, step := range []func(){c.consumers, c.lookups, c.types, c.matrix, c.keys, c.cells, c.retention} {
		step()
	}
	if len(c.faults) > 0 {
		return nil, routefile.NewError(file.Name, c.told())
	}
	return c.table, nil
}

func (c *compiler) fault(at routefile.Pos, format string, args ...any) {
	c.faults = append(c.faults, fault{Fault: routefile.Fault{Pos: at, Message: fmt.Sprintf(format, args...)}})
}

// faultAbout is fault for what is wrong for one event type, and often for others in the same way.
func (c *compiler) faultAbout(about string, at routefile.Pos, format string, args ...any) {
	f := routefile.Fault{Pos: at, Message: fmt.Sprintf(format, args...)}
	if i, known := c.found[f]; known {
		c.faults[i].about = append(c.faults[i].about, about)
		return
	}
	c.found[f] = len(c.faults)
	c.faults = append(c.faults, fault{f, []string{about}})
}

// told returns the faults with whom they are about.
func (c *compiler) told() []routefile.Fault {
	list := make([]routefile.Fault, len(c.faults))
	for i, f := range c.faults {
		list[i] = f.Fault
		if n := len(f.about); n > 0 {
			list[i].Message += " (for " + strings.Join(f.about[:min(n, maxAbout)], ", ")
			if n > maxAbout {
				list[i].Message += fmt.Sprintf(" and %d more", n-maxAbout)
			}
			list[i].Message += ")"
		}
	}
	return list
}

const maxAbout = 3

func (c *compiler) consumers() {
	for i := range c.file.Consumers {
		src := &c.file.Consumers[i]
		if err := eventing.CheckConsumerName(src.Text); err != nil {
			c.fault(src.Pos, "%v", err)
		}
		if err := src.Policy.Validate(); err != nil {
			c.fault(src.Pos, "consumer %s: %v", src.Text, err)
		}
		one := &consumer{src: src, place: i, route: eventing.Route{Consumer: src.Text, Topic: cmp.Or(src.Topic, src.Text), Ordered: src.Policy.Ordered}}
		c.table.consumers[src.Text] = one
		c.table.order = append(c.table.order, one)
	}
}

// lookups compiles what lookups yield; their keys come later.
func (c *compiler) lookups() {
	for i := range c.file.Lookups {
		l := &lookup{src: &c.file.Lookups[i]}
		if l.src.Schema != nil {
			l.schema = c.schema("lookup/"+l.src.Text, l.src.Schema)
		}
		if l.src.OnError == routefile.Default {
			if value, err := l.normalise(l.src.Default); err != nil {
				c.fault(l.src.DefaultPos, "the default of lookup %s: %v", l.src.Text, err)
			} else {
				l.fallback = value
			}
		}
		c.table.lookups = append(c.table.lookups, l)
	}
}

func (c *compiler) schema(name string, src *routefile.Schema) *condition.Schema {
	s, err := condition.CompileSchema(name, src.Doc, c.file.Definitions)
	if err != nil {
		c.fault(src.Pos, "schema of %s: %v", name, err)
		return nil
	}
	return s
}

// types compiles the event types with what may be asked about their payloads.
func (c *compiler) types() {
	for i := range c.file.Events {
		src := &c.file.Events[i]
		t := &eventType{src: src, schemas: map[int]*condition.Schema{}, critical: map[int]*condition.Program{}, cells: map[string]*cell{}}
		for k := range src.Schemas {
			version := src.Schemas[k].Version
			if s := c.schema(fmt.Sprintf("%s/%d", src.Text, version), &src.Schemas[k]); s != nil {
				t.schemas[version] = s
			}
		}
		t.versions = slices.Sorted(maps.Keys(t.schemas))
		c.table.types[src.Text] = t
		c.scope(t)
		c.critical(t)
	}
}

// scope is what the conditions on events of a type may use: the payload of the latest version, and all lookups.
func (c *compiler) scope(t *eventType) {
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
		return
	}
	c.scopes[t.src.Text] = scope
}

// critical compiles the condition for each version: it is asked when an event is appended.
func (c *compiler) critical(t *eventType) {
	if t.src.Critical == nil {
		return
	}
	versions := t.versions
	if len(versions) == 0 {
		versions = []int{0}
	}
	for _, v := range versions {
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
	program, err := scope.Compile(e.Text, want)
	var faulty *condition.CompileError
	switch {
	case errors.As(err, &faulty):
		for _, f := range faulty.Faults {
			c.faultAbout(about, e.At(f.Line, f.Column), "%s", f.Message)
		}
		return nil
	case err != nil:
		c.faultAbout(about, e.Pos, "%v", err)
		return nil
	}
	return program
}

// program compiles an expression for the events of a type, once.
func (c *compiler) program(t *eventType, e *routefile.Expr, want condition.Result) *condition.Program {
	scope := c.scopes[t.src.Text]
	if e == nil || scope == nil {
		return nil
	}
	key := programKey{t.src.Text, want, e.Text}
	if p, known := c.programs[key]; known && (p != nil || len(c.faults) > maxSuggested) {
		return p
	}
	if len(c.programs) == c.most.programs {
		c.faultAbout(t.src.Text, e.Pos, "more than %d conditions, those of \"*\" counted for each event type: say which types they are for", c.most.programs)
		return nil
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

// known returns a declared event type, or complains.
func (c *compiler) eventType(n routefile.Name) *eventType {
	t := c.table.types[n.Text]
	if t == nil {
		c.fault(n.Pos, "event type %s is not declared%s: add it under events", n.Text, c.suggest(n.Text, maps.Keys(c.table.types)))
	}
	return t
}

func (c *compiler) consumer(n routefile.Name) *consumer {
	one := c.table.consumers[n.Text]
	if one == nil {
		c.fault(n.Pos, "consumer %s is not declared%s: add it under consumers", n.Text, c.suggest(n.Text, maps.Keys(c.table.consumers)))
	}
	return one
}

// matrix ticks the cells.
func (c *compiler) matrix() {
	ticked := 0 // by "*"; the others have a word each
	for _, row := range c.file.Matrix {
		if row.Type.Text == routefile.Any {
			continue
		}
		t := c.eventType(row.Type)
		for _, n := range row.Consumers {
			if one := c.consumer(n); one != nil && t != nil {
				t.cells[n.Text] = &cell{typ: t, consumer: one, ticked: n.Pos}
			}
		}
	}
	for _, row := range c.file.Matrix {
		if row.Type.Text != routefile.Any {
			continue
		}
		for _, n := range row.Consumers {
			one := c.consumer(n)
			if ticked += len(c.table.types); ticked > c.most.cells {
				c.fault(n.Pos, "the matrix has more than %d cells", c.most.cells)
				return
			}
			for _, t := range c.table.types {
				if one != nil && t.cells[n.Text] == nil {
					t.cells[n.Text] = &cell{typ: t, consumer: one, ticked: n.Pos, any: true}
				}
			}
		}
	}
	for _, t := range c.table.types {
		t.ticked = slices.SortedFunc(maps.Values(t.cells), func(a, b *cell) int { return cmp.Compare(a.consumer.place, b.consumer.place) })
		for _, cell := range t.ticked {
			t.routes = append(t.routes, cell.consumer.route)
		}
	}
}
