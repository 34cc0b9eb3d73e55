package routing

import (
	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// bounds are of what a file may multiply to, by "*" or by modifiers.
type bounds struct {
	programs int // conditions, for each event type that they are for
	words    int // in these
	scopes   int // pairs of a lookup and an event type that has conditions
	schemas  int
	values   int // in schemas, with those of the definitions for each
	patterns int // instructions in those of schemas
	cells    int // that "*" ticks in the matrix
	rules    int // in all cells
	visited  int // pairs of a cell and "*", or of a rule and a modifier
}

// usual keep the time that it takes to compile a file to some seconds.
var usual = bounds{
	programs: 50_000, words: 500_000, scopes: 1_000_000, schemas: 20_000, values: 500_000, patterns: 5_000_000,
	cells: 1_000_000, rules: 1_000_000, visited: 2_000_000,
}

// met is what there has been so far.
type met struct {
	rules        int // in all cells
	words        int // in conditions: see condition.Words
	scopes       int // lookups in them
	faulty       int // conditions that do not compile
	comparisons  int // of names, to suggest one
	patterns     int
	tooManyAsked bool
}

// schemasFit counts what there is to compile before the first schema is compiled.
func (c *compiler) schemasFit() {
	values, shared := 0, condition.ValuesIn(c.file.Definitions)-1
	var all []*routefile.Schema
	for i := range c.file.Events {
		for k := range c.file.Events[i].Schemas {
			all = append(all, &c.file.Events[i].Schemas[k])
		}
	}
	for i := range c.file.Lookups {
		if s := c.file.Lookups[i].Schema; s != nil {
			all = append(all, s)
		}
	}
	if len(all) > c.most.schemas {
		c.fault(all[c.most.schemas].Pos, "more than %d schemas", c.most.schemas)
		return
	}
	for _, s := range all {
		if values += shared + condition.ValuesIn(s.Doc); values > c.most.values {
			c.fault(s.Pos, "the schemas up to here have more than %d keys and values, those of definitions counted for each schema", c.most.values)
			return
		}
	}
}

// count counts a condition once for each event type, or version of it, and complains if there are too many.
func (c *compiler) count(t *eventType, e *routefile.Expr, key programKey) (fits bool) {
	if c.met.tooManyAsked || c.counted[key] {
		return !c.met.tooManyAsked
	}
	c.counted[key] = true
	c.met.words += condition.Words(e.Text)
	about := ", those of \"*\" counted for each event type: say which types they are for"
	switch {
	case len(c.counted) > c.most.programs:
		c.faultAbout(t.src.Text, e.Pos, "more than %d conditions"+about, c.most.programs)
	case c.met.words > c.most.words:
		c.faultAbout(t.src.Text, e.Pos, "more than %d words and signs in conditions"+about+", or make them shorter", c.most.words)
	default:
		return true
	}
	c.met.tooManyAsked = true
	return false
}
