package cli

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
)

// tool is a program that is made of these commands.
type tool struct {
	name, description string
	storeFlag         string // the flag with the store's address
	grammar           any
	// couriers: the events are those of couriers, who have their own ids for them. Otherwise
	// the flags that are tagged so are left out.
	couriers bool

	open       func(ctx context.Context, address string) (*backend.Backend, error)
	openSchema func(ctx context.Context, address string, create bool) (backend.Schema, error)
	schemaSQL  func(address string) (string, error)

	exampleEvent, exampleConsumer, exampleMatch string // what the examples use
	matchNote                                   string // what else the help of --match says

	// finality says why nothing is run again that was processed; empty: it may be.
	finality string
}

// eventID explains the argument that names an event.
func (t *tool) eventID() string {
	if t.couriers {
		return "The courier's event id, or the envelope's."
	}
	return "The event's id."
}

const (
	forceHelp = `
With --force, what the consumer has processed already is run again, under a new generation: its handler does once more whatever it does. A consumer may refuse that; its
log says so. Who forced it and why is recorded in the event's dead letter; if it has none there, nowhere. Without --force, nothing that was processed runs again.
`
	forceExample = `
    ${program} dlq replay ${event} --force --consumer search-index --note "index rebuilt"`
)

// adapt fits shared commands to the program.
func (t *tool) adapt(k *kong.Kong) error {
	force, forceExample := forceHelp, forceExample
	if t.finality != "" {
		force, forceExample = "", ""
	}
	parts := strings.NewReplacer("${force}", force, "${force_example}", forceExample)
	texts := strings.NewReplacer("${program}", t.name, "${store}", t.storeFlag, "${event}", t.exampleEvent, "${consumer}", t.exampleConsumer, "${match}", t.exampleMatch)
	return kong.Visit(k.Model, func(v kong.Visitable, next kong.Next) error {
		if app, is := v.(*kong.Application); is {
			v = app.Node
		}
		if node, is := v.(*kong.Node); is {
			node.Detail = texts.Replace(parts.Replace(node.Detail))
			for _, f := range node.Flags {
				f.Hidden = f.Hidden || t.finality != "" && f.Tag.Has("again") // it says why not
			}
			node.Flags = slices.DeleteFunc(node.Flags, func(f *kong.Flag) bool { return !t.couriers && f.Tag.Has("courier") })
		}
		return next(nil)
	})
}

// givenFlags returns the names of the flags that are on the command line. One without a value
// is most likely an unset variable of a shell, and must not select everything.
func givenFlags(command *kong.Context) (map[string]bool, error) {
	given := map[string]bool{}
	for _, path := range command.Path {
		if path.Flag == nil || path.Resolved {
			continue
		}
		given[path.Flag.Name] = true
		switch v := path.Flag.Target; {
		case path.Flag.Tag.Has(settingTag): // no value is a value of settings
		case v.Kind() == reflect.String && v.Len() == 0, v.Kind() == reflect.Slice && slices.Contains(stringsOf(v), ""):
			return nil, usage("--%s is empty: give it a value, or leave it out", path.Flag.Name)
		}
	}
	return given, nil
}

func stringsOf(v reflect.Value) []string {
	list, _ := v.Interface().([]string)
	return list
}

// command is a line for a shell: another command of the program, on the databases that this
// one was given by flag. Passwords are left out.
func (p *Program) command(args ...string) string {
	if p.given[strings.TrimPrefix(p.tool.storeFlag, "--")] {
		for _, address := range p.stores {
			args = append(args, p.tool.storeFlag, store.Masked(address))
		}
	}
	line := p.tool.name
	for _, arg := range args {
		line += " " + quoted(arg)
	}
	return clean(line)
}

// store returns the address of the one database to work on.
func (p *Program) store() (address string, err error) {
	switch len(p.stores) {
	case 0:
		return "", usage("say which database: %s sqlite:FILE, postgres://… or mongodb://…, or set STORE_URL", p.tool.storeFlag)
	case 1:
		return p.stores[0], nil
	}
	return "", usage("this command works on one database: give %s once", p.tool.storeFlag)
}

func (p *Program) openSchema(ctx context.Context, create bool) (backend.Schema, error) {
	address, err := p.store()
	if err != nil {
		return nil, err
	}
	return p.tool.openSchema(ctx, address, create)
}

// desk is where an operator works: a database that others may be running on.
type desk struct {
	tool    *tool
	store   *backend.Backend
	letters *eventing.DeadLetters
	names   registry
	given   givenNames
}

// registry knows what people call the events of envelopes.
type registry interface {
	// Names returns what couriers call the events of the given envelopes.
	Names(ctx context.Context, envelopes []string) (map[string]ledger.Name, error)
	// Envelopes returns the envelopes of the events that couriers, or one source, call so.
	Envelopes(ctx context.Context, eventIDs []string, source string) (map[string][]ledger.Called, error)
}

// nameless is the registry of those whose events have no other name.
type nameless struct{}

func (nameless) Names(context.Context, []string) (map[string]ledger.Name, error) {
	return map[string]ledger.Name{}, nil
}

func (nameless) Envelopes(context.Context, []string, string) (map[string][]ledger.Called, error) {
	return map[string][]ledger.Called{}, nil
}

// withDesk works on the one database.
func withDesk(ctx context.Context, p *Program, work func(*desk) error) error {
	address, err := p.store()
	if err != nil {
		return err
	}
	d, err := p.tool.desk(ctx, address)
	if err != nil {
		return err
	}
	return errors.Join(work(d), d.store.Close())
}

func (t *tool) desk(ctx context.Context, address string) (*desk, error) {
	s, err := t.open(ctx, address)
	if err != nil {
		return nil, err
	}
	d := &desk{tool: t, store: s, letters: eventing.NewDeadLetters(s.Events), names: nameless{}}
	if t.couriers {
		d.names = s.Ledger
	}
	return d, nil
}
