package routing

import (
	"cmp"
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
	parsed   map[string]*condition.Expression // by text
	asked    []asked
	counted  map[programKey]bool
	met      met
}

// fault is something wrong at a place, for these event types.
type fault struct {
	routefile.Fault
	about []string
}

func compile(file *routefile.File, most bounds) (*Table, error) {
	return newCompiler(file, most).compile()
}

func newCompiler(file *routefile.File, most bounds) *compiler {
	return &compiler{
		file: file, most: most, found: map[routefile.Fault]int{}, scopes: map[string]*condition.Scope{}, programs: map[programKey]*condition.Program{},
		parsed: map[string]*condition.Expression{}, counted: map[programKey]bool{},
		table: &Table{file: file, consumers: map[string]*consumer{}, types: map[string]*eventType{}},
	}
}

func (c *compiler) compile() (*Table, error) {
	if c.schemasFit(); len(c.faults) > 0 {
		return nil, routefile.NewError(c.file.Name, c.told())
	}
	for _, step := range []func(){c.consumers, c.lookups, c.types, c.matrix, c.keys, c.cells, c.retention} {
		step()
	}
	if !c.met.tooManyAsked {
		c.conditions()
	}
	if len(c.faults) > 0 {
		return nil, routefile.NewError(c.file.Name, c.told())
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
			switch {
			case n <= maxAbout:
			case c.met.faulty >= maxFaulty:
				list[i].Message += " and more"
			default:
				list[i].Message += fmt.Sprintf(" and %d more", n-maxAbout)
			}
			list[i].Message += ")"
		}
	}
	return list
}

const (
	maxAbout  = 3
	maxFaulty = 200 // conditions that do not compile; what others would be told is not printed anyway
)

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
		if _, err := condition.NewScope(condition.Variable{Name: "payload"}, condition.Variable{Name: l.src.Text}); err != nil {
			c.fault(l.src.Pos, "lookup %s: %v", l.src.Text, err)
		}
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
	if c.met.patterns > c.most.patterns {
		return nil
	}
	s, err := condition.CompileSchema(name, src.Doc, c.file.Definitions)
	if err != nil {
		c.fault(src.Pos, "schema of %s: %v", name, err)
		return nil
	}
	if c.met.patterns += s.Patterns(); c.met.patterns > c.most.patterns {
		c.fault(src.Pos, "the patterns of the schemas up to here compile to more than %d instructions", c.most.patterns)
	}
	return s
}

// types compiles the event types' schemas.
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
		if src.Critical != nil {
			for _, v := range versionsOf(t) {
				c.count(t, src.Critical, programKey{fmt.Sprintf("%s/%d", src.Text, v), condition.Bool, src.Critical.Text})
			}
		}
	}
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
