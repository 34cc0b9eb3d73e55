package routing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router"
)

// Config is what a routing file cannot say.
type Config struct {
	// Lookups are the functions of the lookups that the file declares: one for each.
	Lookups map[string]LookupFunc
	// Upcasters bring the payloads of older schema versions to the next one: one for each version but the latest of each
	// event type.
	Upcasters []Upcaster
	// Exhausted are, by consumer, the actions that its on_exhausted names and that are not built in.
	Exhausted map[string]map[string]eventing.Action
}

// Router runs the consumers of a routing table: the table decides on the actions, their handlers carry
// them out. It is the dispatcher's routing table too. Register all handlers before Run.
type Router struct {
	*router.Router

	table   *Table
	lookups *functions
	ups     upcasters
	actions map[string]*actions
	ignored sync.Map // event types
}

// actions are the handlers of a consumer's actions.
type actions struct {
	registered    bool
	transactional bool
	byName        map[string]handler
}

type handler func(ctx context.Context, e eventing.Envelope, a Action) error

// New returns a router with the consumers of a table. It fails if the table has findings of level [LevelError], see
// [Table.Lint], and if cfg lacks a lookup, an upcaster or an action that the file needs, or has one that it does not
// know. The router's store is needed: consumers of a routing table are never storeless.
func New(cfg router.Config, t *Table, with Config) (*Router, error) {
	if cfg.Store == nil {
		return nil, errors.New("routing: router.Config.Store is needed: what a table has decided must not be lost")
	}
	if err := t.fit(); err != nil {
		return nil, err
	}
	ups, err := t.upcasters(with.Upcasters)
	if err = errors.Join(err, t.complete(with)); err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	base, err := router.New(cfg)
	if err != nil {
		return nil, err
	}
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	r := &Router{Router: base, table: t, lookups: newFunctions(t, with.Lookups, now, cmp.Or(cfg.Logger, slog.Default())), ups: ups, actions: map[string]*actions{}}
	for _, c := range t.order {
		r.actions[c.src.Text] = &actions{byName: map[string]handler{}}
		policy := c.src.Policy
		if len(t.actionsOf(c.src.Text)) == 0 { // it needs no handlers, and none is there to be transactional: what still arrives is a dead letter
			policy.Guarantee = ""
		}
		err := base.AddConsumer(router.Consumer{
			Name: c.src.Text, Policy: policy, Topic: c.src.Topic, Actions: with.Exhausted[c.src.Text], Prepare: r.prepare(c.src.Text),
		})
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// fit fails on findings that would drop events.
func (t *Table) fit() error {
	var errs []error
	for _, f := range t.Lint() {
		if f.Level == LevelError {
			errs = append(errs, errors.New(f.String()))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("routing: %s is not fit to run:\n%w", t.file.Name, errors.Join(errs...))
}

// complete checks that cfg and file name the same lookups and consumers.
func (t *Table) complete(with Config) error {
	var errs []error
	for _, l := range t.lookups {
		if with.Lookups[l.src.Text] == nil {
			errs = append(errs, fmt.Errorf("lookup %s (%s:%d) has no function: add it to Config.Lookups", l.src.Text, t.file.Name, l.src.Pos.Line))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(with.Lookups)) {
		if !slices.ContainsFunc(t.lookups, func(l *lookup) bool { return l.src.Text == name }) {
			errs = append(errs, fmt.Errorf("Config.Lookups has %s, which %s does not declare", name, t.file.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(with.Exhausted)) {
		if t.consumers[name] == nil {
			errs = append(errs, fmt.Errorf("Config.Exhausted has consumer %s, which %s does not declare", name, t.file.Name))
		}
	}
	return errors.Join(errs...)
}

// upcasters checks that there is one for each step, and no other.
func (t *Table) upcasters(list []Upcaster) (upcasters, error) {
	ups := upcasters{}
	var errs []error
	for _, u := range list {
		typ := t.types[u.EventType]
		switch {
		case u.Upcast == nil:
			errs = append(errs, fmt.Errorf("the upcaster of %s from version %d has no function", u.EventType, u.From))
		case typ == nil || !slices.Contains(typ.versions, u.From) || u.From == typ.versions[len(typ.versions)-1]:
			errs = append(errs, fmt.Errorf("there is nothing to bring %s from version %d to: %s declares no later schema", u.EventType, u.From, t.file.Name))
		case ups[u.EventType][u.From] != nil:
			errs = append(errs, fmt.Errorf("there are two upcasters of %s from version %d", u.EventType, u.From))
		case ups[u.EventType] == nil:
			ups[u.EventType] = map[int]func(json.RawMessage) (json.RawMessage, error){u.From: u.Upcast}
		default:
			ups[u.EventType][u.From] = u.Upcast
		}
	}
	for _, e := range t.file.Events {
		versions := t.types[e.Text].versions
		for i, v := range versions[:max(len(versions)-1, 0)] {
			if ups[e.Text][v] == nil {
				errs = append(errs, fmt.Errorf("%s has schemas of versions %d and %d, and no upcaster between them: add it to Config.Upcasters", e.Text, v, versions[i+1]))
			}
		}
	}
	return ups, errors.Join(errs...)
}

// decided is what Prepare hands to the handler.
type decided struct {
	event   eventing.Envelope
	actions []Action
}

// prepare decides, before the consumer's transaction begins.
func (r *Router) prepare(consumer string) func(context.Context, eventing.Envelope) (any, error) {
	return func(ctx context.Context, e eventing.Envelope) (any, error) {
		opened, err := r.table.open(e, r.ups)
		if err != nil {
			return nil, err
		}
		actions, err := r.table.decide(ctx, consumer, opened, r.lookups, nil)
		return decided{opened.Envelope, actions}, err
	}
}

// Table returns the router's table.
func (r *Router) Table() *Table { return r.table }

var _ eventing.VersionedRoutes = (*Router)(nil)

// Version implements [eventing.VersionedRoutes]: it is the table's.
func (r *Router) Version() string { return r.table.Version() }

// Route implements [eventing.Routes]: the consumers that the matrix names, and those, registered with the embedded
// router, that the file does not declare and that have a handler for the type.
func (r *Router) Route(eventType string) (routes []eventing.Route, routed bool) {
	listed, routed := r.table.Route(eventType)
	for _, l := range listed {
		route, _ := r.Consumer(l.Consumer)
		routes = append(routes, route)
	}
	others, _ := r.Router.Route(eventType) // the table's own consumers, too: they have a handler for all types
	for _, o := range others {
		if r.table.consumers[o.Consumer] == nil {
			routes, routed = append(routes, o), true
		}
	}
	_, ignored := r.ignored.Load(eventType)
	return routes, routed || ignored
}

// Ignore is [router.Router.Ignore], for types that the file does not declare.
func (r *Router) Ignore(eventTypes ...string) {
	for _, t := range eventTypes {
		r.ignored.Store(t, true)
	}
}

// Explain tells what the running consumers would do about an event, and why. It makes the lookups that they would make,
// and has no effect.
func (r *Router) Explain(ctx context.Context, e eventing.Envelope) Explanation {
	x := r.table.explain(ctx, e, r.ups, r.lookups)
	r.beside(&x)
	return x
}

// HandleTx registers the handler of a consumer's action. It runs in the transaction that records the event as processed: what
// it writes with tx, it writes exactly once, together with the consumer's other actions on the event, which run in the order in
// which they were decided. Tx is the transaction type of the router's store. The event's payload is that of the latest version
// of its schema.
func HandleTx[Tx, T any](r *Router, consumer, action string, fn func(ctx context.Context, tx Tx, e eventing.Event[T], a Action) error) error {
	return register(r, consumer, action, true, func(ctx context.Context, e eventing.Envelope, a Action) error {
		tx, ok := eventing.TxFromContext[Tx](ctx)
		if !ok {
			return fmt.Errorf("the delivery of %s runs in no transaction of type %v", e.ID, reflect.TypeFor[Tx]())
		}
		typed, err := eventing.DecodePayload[T](e)
		if err != nil {
			return err
		}
		return fn(ctx, tx, typed, a)
	}, func(base *router.Router, run func(context.Context) error) error {
		return router.HandleTx(base, consumer, func(ctx context.Context, _ Tx, _ eventing.Envelope) error { return run(ctx) }, router.On("*"))
	})
}

// Handle registers the handler of a consumer's action, as [HandleTx] does, but outside of any transaction: it runs at
// least once for each event, and all of the consumer's actions on an event run again if one fails. So what it does must be safe
// to do again.
func Handle[T any](r *Router, consumer, action string, fn func(ctx context.Context, e eventing.Event[T], a Action) error) error {
	return register(r, consumer, action, false, func(ctx context.Context, e eventing.Envelope, a Action) error {
		typed, err := eventing.DecodePayload[T](e)
		if err != nil {
			return err
		}
		return fn(ctx, typed, a)
	}, func(base *router.Router, run func(context.Context) error) error {
		return router.Handle(base, consumer, func(ctx context.Context, _ eventing.Envelope) error { return run(ctx) }, router.On("*"))
	})
}

// register adds the handler; with the first of a consumer, attach adds what runs them all.
func register(r *Router, consumer, action string, transactional bool, h handler, attach func(*router.Router, func(context.Context) error) error) error {
	all := r.actions[consumer]
	switch {
	case all == nil:
		return fmt.Errorf("routing: %s declares no consumer %s%s", r.table.file.Name, consumer, suggest(consumer, maps.Keys(r.actions)))
	case !slices.Contains(r.table.actionsOf(consumer), action):
		return fmt.Errorf("routing: %s has no action %s for %s%s", r.table.file.Name, action, consumer, suggest(action, slices.Values(r.table.actionsOf(consumer))))
	case all.byName[action] != nil:
		return fmt.Errorf("routing: action %s of %s has a handler already", action, consumer)
	case all.registered && all.transactional != transactional:
		return fmt.Errorf("routing: consumer %s: its handlers must all be transactional, or none", consumer)
	case !transactional && r.table.consumers[consumer].src.Policy.Guarantee == eventing.ExactlyOnce:
		return fmt.Errorf("routing: consumer %s is %s, which takes the transaction of the inbox: use HandleTx", consumer, eventing.ExactlyOnce)
	}
	if !all.registered {
		if err := attach(r.Router, all.run); err != nil {
			return err
		}
		all.registered, all.transactional = true, transactional
	}
	all.byName[action] = h
	return nil
}

// run carries out what was decided.
func (a *actions) run(ctx context.Context) error {
	d, ok := eventing.Prepared(ctx).(decided)
	if !ok {
		return errors.New("the actions were not decided on")
	}
	for _, action := range d.actions {
		if err := a.byName[action.Name](ctx, d.event, action); err != nil {
			return err
		}
	}
	return nil
}

// actionsOf are the names of the actions that a consumer may be told to take.
func (t *Table) actionsOf(consumer string) []string {
	names := map[string]bool{}
	for _, typ := range t.types {
		if c := typ.cells[consumer]; c != nil {
			for _, r := range c.rules {
				names[r.src.Do.Text] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Run runs all consumers until ctx ends, as [router.Router.Run] does. It fails at once if an action of the
// file has no handler.
func (r *Router) Run(ctx context.Context) error {
	if err := r.Ready(); err != nil {
		return err
	}
	return r.Router.Run(ctx)
}

// Ready reports which actions of the file have no handler yet.
func (r *Router) Ready() error {
	var lacking []string
	for _, c := range r.table.order {
		for _, action := range r.table.actionsOf(c.src.Text) {
			if r.actions[c.src.Text].byName[action] == nil {
				lacking = append(lacking, fmt.Sprintf("%s of %s", action, c.src.Text))
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("routing: %s has actions without a handler: %s: register them with routing.HandleTx or routing.Handle", r.table.file.Name, strings.Join(lacking, ", "))
}
