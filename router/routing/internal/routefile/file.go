// Package routefile reads routing files: YAML that a JSON Schema describes, with the place of
// everything in it.
package routefile

import (
	"fmt"
	"sort"

	"github.com/waybill-go/waybill/eventing"
)

// Pos is a place in the routing file. Lines and columns count from 1; the zero value is nowhere.
type Pos struct{ Line, Column int }

func (p Pos) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// Any is "*", which stands for all event types.
const Any = "*"

// File is a routing file as it was written, in the order in which it was written. What it
// refers to need not exist.
type File struct {
	Name    string // for messages
	Version string // of its content, and of the schema files that it names: 12 hex digits of SHA-256

	Consumers   []Consumer
	Events      []Event
	Definitions map[string]any // JSON Schemas, as encoding/json would decode them with UseNumber
	Defined     []Name         // the names of the definitions, with their places
	Matrix      []Row
	Cells       []Cell
	Modifiers   []Modifier
	Lookups     []Lookup
	Retention   []Retention
}

// Name is a reference to something, or its declaration.
type Name struct {
	Text string
	Pos  Pos
}

// Expr is a CEL expression. At translates a place in it.
type Expr struct {
	Text string
	Pos  Pos // of its first character
	// Block is the column that lines after the first begin in, from 1; 0 if they cannot be told apart.
	Block int

	spans []span // if the text is written otherwise than that tells: in parts, with escapes
}

// At returns the place in the file of a place in the expression: line from 1, column from 1.
func (e Expr) At(line, column int) Pos {
	column = max(column, 1)
	if i := sort.Search(len(e.spans), func(i int) bool { return e.spans[i].after(line, column) }); i > 0 {
		return e.spans[i-1].at(line, column)
	}
	switch {
	case line <= 1:
		return Pos{e.Pos.Line, e.Pos.Column + column - 1}
	case e.Block > 0:
		return Pos{e.Pos.Line + line - 1, e.Block + column - 1}
	}
	return e.Pos
}

// Consumer is a declared consumer.
type Consumer struct {
	Name
	Topic      string // empty: the name
	Policy     eventing.Policy
	Parameters []Parameter // nil: its actions may be told anything
}

// Kind is what a parameter is.
type Kind string

// The kinds of parameters.
const (
	List   Kind = "list" // of texts, none twice
	Text   Kind = "text"
	Number Kind = "number" // a float64
	Bool   Kind = "bool"
)

// Parameter is a declared parameter of a consumer's actions.
type Parameter struct {
	Name
	Kind  Kind
	Words []string // of lists and texts; nil: any
}

// Event is a declared event type.
type Event struct {
	Name
	Category Name  // zero: none
	Critical *Expr // nil: false
	Schemas  []Schema
}

// Schema is the JSON Schema of one version of an event type's payload.
type Schema struct {
	Version int
	Pos     Pos    // of the schema, or of its path
	Doc     any    // as encoding/json would decode it with UseNumber
	Path    string // of its file; empty: it is in the routing file
}

// Row is a row of the matrix. Type may be Any.
type Row struct {
	Type      Name
	Consumers []Name
}

// Cell is what is done at a consumer about events of a type, which may be Any.
type Cell struct {
	Type, Consumer Name
	Rules          []Rule
}

// Rule decides about an action.
type Rule struct {
	Pos      Pos
	When     *Expr // nil: always
	Do       Name
	With     []Param
	Continue bool
}

// Param is a parameter with its value: a string, a float64, a bool, or []string for a list.
type Param struct {
	Name
	Value    any
	ValuePos Pos
}

// Modifier changes decided actions.
type Modifier struct {
	Name
	Consumers, Events, Actions []Name  // nil: all
	When                       *Expr   // nil: always
	Add, Remove, Set           []Param // values of Add and Remove are lists
}

// OnError is what becomes of an evaluation whose lookup fails.
type OnError string

// The error policies of lookups.
const (
	Undeclared OnError = "" // as Retry
	Retry      OnError = "retry"
	Skip       OnError = "skip"
	Default    OnError = "default"
)

// Lookup is a declared piece of context.
type Lookup struct {
	Name
	Keys         []Key
	Schema       *Schema         // nil: anything
	Timeout      eventing.Period // zero: the default
	Cache        eventing.Period // zero: not cached
	CacheEntries int             // zero: the default
	OnError      OnError
	Default      any // decoded JSON, for OnError Default
	DefaultPos   Pos
}

// Key says how to find the key of a lookup for events of a type, which may be Any.
type Key struct {
	Type Name
	Expr Expr
}

// Retention is how long the event log keeps a category.
type Retention struct {
	Category      Name
	Keep          eventing.Period
	After, Unless []Name // event types that end and revive an aggregate; nil: from each event on
}
