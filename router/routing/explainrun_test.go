package routing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

// delivery is what became of an event at a consumer, or, of no consumer, at dispatch.
type delivery struct{ event, consumer string }

// became is what became of deliveries: the actions in JSON, or how the only attempt failed.
type became map[delivery]string

// The failures that are retried, where there is more than one attempt.
var exhausted = []eventing.ReasonCode{eventing.ReasonRetriesExhausted, eventing.ReasonTimeoutExhausted}

const (
	retried    = "retried"
	deadLetter = "dead letter "
)

// program is a real one: an outbox, a dispatcher, a broker and the consumers of a table, whose handlers write down what they are
// told to do.
type program struct {
	t     *rapid.T
	store *memstore.Store
	app   *routing.Router

	mu   sync.Mutex
	done map[delivery][]json.RawMessage
	// lanes are those of the outbox, by event.
	lanes  map[string]eventing.Lane
	failed chan error // of the consumers' Run
}

// newProgram has handlers for all actions of a table. Consumers that promise their effect once get a transaction.
func newProgram(t *rapid.T, f *file, table *routing.Table, l routing.Lookups, broker *inproc.Broker) *program {
	p := &program{t: t, store: memstore.New(), done: map[delivery][]json.RawMessage{}, lanes: map[string]eventing.Lane{}, failed: make(chan error, 1)}
	var err error
	p.app, err = routing.New(router.Config{Store: p.store, Subscriber: broker, Observer: &eventing.Observer{Concluded: p.concluded}, Logger: slog.New(slog.DiscardHandler)}, table,
		routing.Config{Lookups: functions(f, l), Upcasters: upcasters(f)})
	if err != nil {
		t.Fatalf("New: %v\n%s", err, f.text())
	}
	for consumer, part := range f.Consumers {
		for action := range actionsOf(f, consumer) {
			did := func(ctx context.Context, e eventing.Envelope, a routing.Action) error { return p.did(ctx, e, a) }
			if part.Guarantee == "exactly_once" {
				err = routing.HandleTx(p.app, consumer, action, func(ctx context.Context, _ *memstore.Tx, e eventing.Envelope, a routing.Action) error {
					return did(ctx, e, a)
				})
			} else {
				err = routing.Handle(p.app, consumer, action, did)
			}
			if err != nil {
				t.Fatalf("Handle %s of %s: %v\n%s", action, consumer, err, f.text())
			}
		}
	}
	return p
}

// concluded is told of what is done and committed: also of events about which nothing is done.
func (p *program) concluded(c eventing.Conclusion, _ time.Duration) {
	if c.State != eventing.StateNone {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := delivery{c.Envelope.ID, c.Consumer}
	p.done[key] = append([]json.RawMessage{}, p.done[key]...)
}

func (p *program) did(ctx context.Context, e eventing.Envelope, a routing.Action) error {
	attempt, _ := eventing.AttemptFromContext(ctx)
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := delivery{e.ID, attempt.Consumer}
	p.done[key] = append(p.done[key], text)
	return nil
}

// run has the events go all the way, and returns what became of them.
func run(t *rapid.T, f *file, table *routing.Table, l routing.Lookups, events []eventing.Envelope) (became, *program) {
	broker := inproc.New(inproc.Config{})
	p := newProgram(t, f, table, l, broker)
	logger := slog.New(slog.DiscardHandler)
	dispatcher, err := eventing.NewDispatcher(p.store, broker, p.app, eventing.DispatcherConfig{Logger: logger, PollInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = dispatcher.Run(ctx) }) // logs its errors
	running.Go(func() { p.failed <- p.app.Run(ctx) })
	defer running.Wait()
	defer stop()

	outbox := eventing.NewOutbox(p.store, eventing.OutboxConfig{Lane: func(e eventing.Envelope) eventing.Lane {
		p.lanes[e.ID] = table.Lane(e)
		return p.lanes[e.ID]
	}})
	if err := outbox.InTx(ctx, func(tx *memstore.Tx) error {
		for _, e := range events {
			if err := outbox.Append(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	result, err := p.settled(ctx, len(events))
	if err != nil {
		t.Fatalf("%v\n%s", err, f.text())
	}
	return result, p
}

// settled waits until all events are concluded, everywhere.
func (p *program) settled(ctx context.Context, events int) (became, error) {
	var stats eventing.Stats
	for deadline := time.Now().Add(time.Minute); ; {
		var err error
		if stats, err = p.store.Stats(ctx); err != nil {
			return nil, err
		}
		if n := stats.Outbox["sent"] + stats.Outbox["failed"]; n == int64(events) {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("after a minute there is still something under way: %+v", stats)
		}
		select {
		case err := <-p.failed:
			return nil, fmt.Errorf("the consumers have stopped: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
	letters, err := eventing.NewDeadLetters(p.store).List(ctx, eventing.DeadLetterFilter{Limit: 10_000})
	if err != nil {
		return nil, err
	}
	result := became{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, actions := range p.done {
		result[key] = actionsText(actions)
	}
	for _, letter := range letters {
		key := delivery{letter.EventID, letter.Consumer}
		if result[key] != "" {
			return nil, fmt.Errorf("%v did something, %s, and is a dead letter", key, result[key])
		}
		result[key] = deadLetter + string(letter.Reason)
		if slices.Contains(exhausted, letter.Reason) {
			result[key] = retried
		}
	}
	return result, nil
}

func actionsText(actions []json.RawMessage) string {
	list := make([]string, len(actions))
	for i, a := range actions {
		list[i] = string(a)
	}
	return "[" + strings.Join(list, ",") + "]"
}

// explained is what an explanation says becomes of an event.
func explained(x routing.Explanation) became {
	b := became{}
	if x.Unroutable != "" {
		b[delivery{x.EventID, ""}] = deadLetter + string(eventing.ReasonNoRoute)
	}
	for _, c := range x.Consumers {
		key := delivery{x.EventID, c.Consumer}
		switch {
		case !c.Delivered:
		case c.Error != "" && c.Reason == "":
			b[key] = retried
		case c.Error != "":
			b[key] = deadLetter + string(c.Reason)
		default:
			var actions []json.RawMessage
			for _, a := range c.Actions {
				text, _ := json.Marshal(a) // what parameters are made of always encodes
				actions = append(actions, text)
			}
			b[key] = actionsText(actions)
		}
	}
	return b
}

// difference says where two differ.
func difference(got, want became) error {
	keys := map[delivery]bool{}
	for _, b := range []became{got, want} {
		for key := range b {
			keys[key] = true
		}
	}
	var errs []error
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b delivery) int { return strings.Compare(a.event+" "+a.consumer, b.event+" "+b.consumer) }) {
		if got[key] != want[key] {
			errs = append(errs, fmt.Errorf("%s at %q: got %q, want %q", key.event, key.consumer, got[key], want[key]))
		}
	}
	return errors.Join(errs...)
}
