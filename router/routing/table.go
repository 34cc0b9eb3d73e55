package routing

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// Table is a compiled routing file. It is safe for concurrent use, and never changes.
type Table struct {
	file      *routefile.File
	consumers map[string]*consumer
	order     []*consumer
	types     map[string]*eventType
	lookups   []*lookup // those of slot 1 and after: slot 0 is the payload's
}

// consumer is a declared consumer.
type consumer struct {
	src   *routefile.Consumer
	place int // in the file's order
	route eventing.Route
}

// eventType is a declared event type.
type eventType struct {
	src      *routefile.Event
	schemas  map[int]*condition.Schema // by version; empty: any payload of any version
	versions []int                     // ascending
	critical map[int]*condition.Program
	routes   []eventing.Route // as the matrix has them
	cells    map[string]*cell // by consumer: those that are ticked
	ticked   []*cell          // the same, in the file's order of consumers
	keys     []key            // by lookup
}

// key is how to find the key of a lookup for the events of one type.
type key struct {
	src     *routefile.Key
	program *condition.Program // nil: there is none
	needs   []int              // other lookups
}

// cell is a ticked cell of the matrix: what a consumer does about events of a type.
type cell struct {
	typ      *eventType
	consumer *consumer
	ticked   routefile.Pos // the consumer's name in the matrix
	any      bool          // in its row "*"
	own      bool          // its rules, of which there may be none, are not those of "*"
	rules    []rule
}

// rule is a rule, compiled for the events of one type.
type rule struct {
	src   *routefile.Rule
	when  *condition.Program // nil: always
	needs []int              // the slots of lookups
	alone []Action           // what it decides on: one action, with no room for more
	// modifiers are those that could change the action, in their order.
	modifiers []*modifier
}

func (r *rule) action() Action { return r.alone[0] }

// modifier is a modifier, compiled for the events of one type.
type modifier struct {
	src   *routefile.Modifier
	when  *condition.Program // nil: always
	needs []int
}

// lookup is a declared piece of context.
type lookup struct {
	src      *routefile.Lookup
	schema   *condition.Schema // nil: anything
	fallback any               // for routefile.Default, as conditions see it
}

// MaxFileBytes bounds a routing file.
const MaxFileBytes = routefile.MaxBytes

// JSONSchema returns the JSON Schema (draft 2020-12) of routing files, for editors.
func JSONSchema() []byte { return slices.Clone(routefile.JSONSchema()) }

// Load reads and compiles a routing file, and the schema files that it names, which have to be in its folder or below. The error names
// each fault with its place, as FILE:LINE:COLUMN.
func Load(path string) (*Table, error) {
	text, err := readFile(func() (fs.FileInfo, error) { return os.Stat(path) }, func() (*os.File, error) { return os.Open(path) })
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	defer root.Close()
	return Parse(path, text, func(schema string) ([]byte, error) {
		return readFile(func() (fs.FileInfo, error) { return root.Stat(schema) }, func() (*os.File, error) { return root.Open(schema) })
	})
}

// readFile reads a file. One that is none is refused before it is opened: that of a pipe waits for who writes to it.
func readFile(stat func() (fs.FileInfo, error), open func() (*os.File, error)) ([]byte, error) {
	if info, err := stat(); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", info.Name())
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

// readBounded reads one byte more than there may be, for the parser to find.
func readBounded(f *os.File) ([]byte, error) {
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", f.Name())
	}
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// Parse compiles the text of a routing file. name is for messages; open reads the schema files that the text names, such as
// [io/fs.ReadFile] on an embedded folder; with nil there may be none.
func Parse(name string, text []byte, open func(path string) ([]byte, error)) (*Table, error) {
	file, err := routefile.Parse(name, text, open)
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	t, err := compile(file, usual)
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	return t, nil
}

// Version identifies the content of the routing file and of its schema files: 12 hex digits of their SHA-256. Each
// message that is dispatched by the table carries it.
func (t *Table) Version() string { return t.file.Version }

var _ eventing.Routes = (*Table)(nil)

// Route implements [eventing.Routes]: by the event's type alone, without an allocation. The result is shared: do not write to it.
func (t *Table) Route(typ string) (routes []eventing.Route, routed bool) {
	known, ok := t.types[typ]
	if !ok {
		return nil, false
	}
	return known.routes, true
}

// Consumer implements [eventing.Routes].
func (t *Table) Consumer(name string) (route eventing.Route, known bool) {
	c, ok := t.consumers[name]
	if !ok {
		return eventing.Route{}, false
	}
	return c.route, true
}

// Lane is for [eventing.OutboxConfig]: events that the file declares as critical overtake others. It decodes the
// payload only if the declaration depends on it. An event that does not satisfy its schema is in no lane.
func (t *Table) Lane(e eventing.Envelope) eventing.Lane {
	typ, ok := t.types[e.Type]
	if !ok {
		return ""
	}
	program := typ.critical[versionKey(typ, e.SchemaVersion)]
	if program == nil {
		return ""
	}
	if always, constant := program.Constant(); constant {
		return lane(always)
	}
	payload, err := typ.decode(e)
	if err != nil {
		return ""
	}
	critical, err := program.Bool(&condition.Values{Event: &e.Header, Vars: []any{payload}})
	return lane(err == nil && critical)
}

func lane(critical bool) eventing.Lane {
	if critical {
		return eventing.Critical
	}
	return ""
}

// Retention returns how long the file has an event log keep what, for eventlog.Config.
func (t *Table) Retention() []eventing.Retention {
	list := make([]eventing.Retention, len(t.file.Retention))
	for i, r := range t.file.Retention {
		list[i] = eventing.Retention{Category: r.Category.Text, Keep: r.Keep, After: texts(r.After), Unless: texts(r.Unless)}
		for _, e := range t.file.Events {
			if e.Category.Text == r.Category.Text {
				list[i].Types = append(list[i].Types, e.Text)
			}
		}
	}
	return list
}

// EventTypes returns the declared event types, in the file's order.
func (t *Table) EventTypes() []string {
	list := make([]string, len(t.file.Events))
	for i, e := range t.file.Events {
		list[i] = e.Text
	}
	return list
}

// Consumers returns the names of the declared consumers, in the file's order.
func (t *Table) Consumers() []string {
	list := make([]string, len(t.order))
	for i, c := range t.order {
		list[i] = c.src.Text
	}
	return list
}

// Policy returns the policy of a consumer, its defaults filled in.
func (t *Table) Policy(consumer string) (policy eventing.Policy, known bool) {
	c, ok := t.consumers[consumer]
	if !ok {
		return eventing.Policy{}, false
	}
	return c.src.Policy.WithDefaults(), true
}

func texts(names []routefile.Name) []string {
	var list []string
	for _, n := range names {
		list = append(list, n.Text)
	}
	return list
}
