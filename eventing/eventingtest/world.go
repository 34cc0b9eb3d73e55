package eventingtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

const (
	leaseTTL = 5 * time.Second
	// lifetime is how long after a crash the process comes back: all leases and claims
	// have run out by then, no retry of the suite's policies is due.
	lifetime = time.Minute
	// patience bounds a test that would otherwise wait for ever.
	patience = 2 * time.Minute
	// maxRounds bounds how long the engines may stay busy.
	maxRounds = 200
)

// world is one database with everything that runs on it, in one process that
// may crash and be started again.
type world[Tx any] struct {
	*testing.T
	db     Database[Tx]
	caps   Capabilities
	clock  *Clock
	faults *Faults
	ctx    context.Context // with faults

	broker      *broker
	publisher   message.Publisher
	completion  bool // the broker dies with the process
	outbox      *eventing.Outbox[Tx]
	dispatching eventing.DispatcherConfig // of the dispatchers, but for what the world says itself
	version     string                    // of the routing table; none if empty
	dispatcher  *eventing.Dispatcher
	deadLetters *eventing.DeadLetters
	consumers   []*consumer[Tx]
	lives       int
}

func newWorld[Tx any](t *testing.T, b Backend[Tx], f *Faults) *world[Tx] {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	w := &world[Tx]{
		T: t, db: b.Open(t), caps: b.Capabilities, clock: NewClock(), faults: f, ctx: f.Context(ctx),
		broker: newBroker(),
	}
	w.publisher = w.broker
	w.outbox = eventing.NewOutbox[Tx](w.db, eventing.OutboxConfig{Now: w.clock.Now})
	w.deadLetters = eventing.NewDeadLetters(w.db, eventing.WithClock(w.clock.Now))
	w.dispatcher = w.newDispatcher(w.holder())
	return w
}

// settleByCompletion puts the in-process broker into the place of the remote one.
func (w *world[Tx]) settleByCompletion() {
	w.publisher, w.completion = completionBroker{w.broker}, true
	w.dispatcher = w.newDispatcher(w.holder())
}

func (w *world[Tx]) holder() string { return fmt.Sprintf("process-%d", w.lives) }

func (w *world[Tx]) newDispatcher(holder string) *eventing.Dispatcher {
	w.Helper()
	cfg := w.dispatching
	cfg.Concurrency = 1 // so that all of them have one order
	cfg.LeaseTTL, cfg.Holder, cfg.Now, cfg.Logger = leaseTTL, holder, w.clock.Now, slog.New(slog.DiscardHandler)
	d, err := eventing.NewDispatcher(w.db, w.publisher, versioned[Tx]{routes[Tx]{w}}, cfg)
	w.must(err)
	return d
}

// dispatchWith has this and all later dispatchers configured like that.
func (w *world[Tx]) dispatchWith(cfg eventing.DispatcherConfig) {
	w.Helper()
	w.dispatching = cfg
	w.dispatcher = w.newDispatcher(w.holder())
}

// restart is what happens after a crash: new engines that know only what is stored.
func (w *world[Tx]) restart() {
	w.lives++
	w.clock.Advance(lifetime)
	w.faults.Restart()
	if w.completion {
		w.broker.lose()
	}
	w.dispatcher = w.newDispatcher(w.holder())
	for _, c := range w.consumers {
		c.start()
	}
}

// try does something once; if the process dies of it, again after the restart, unless it was
// decided by then.
func (w *world[Tx]) try(do func() error) {
	w.Helper()
	err := do()
	if w.faults.Dead() {
		decided := w.faults.DiedAt() == eventing.FaultCompleting
		w.restart()
		if decided {
			return
		}
		err = do()
	}
	w.must(err)
}

func (w *world[Tx]) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// append appends events in one transaction.
func (w *world[Tx]) append(events ...eventing.Appendable) {
	w.Helper()
	w.try(func() error {
		return w.outbox.InTx(w.ctx, func(tx Tx) error { return w.outbox.Append(w.ctx, tx, events...) })
	})
}

// dispatch makes one pass. What the broker refuses is for the test to see in the
// outbox: the pass says no more than that the broker seems to be down.
func (w *world[Tx]) dispatch() int {
	w.Helper()
	n, err := w.dispatcher.DispatchOnce(w.ctx)
	if w.faults.Dead() {
		w.restart()
		return 1
	}
	if !errors.Is(err, errRefused) {
		w.must(err)
	}
	return n
}

// deliver hands the broker's messages to their consumers, each topic in its order.
func (w *world[Tx]) deliver(only ...*consumer[Tx]) int {
	w.Helper()
	n := 0
	for _, topic := range w.topics(only...) {
		for it := w.broker.next(topic); it != nil; it = w.broker.next(topic) {
			n++
			for _, c := range w.consumers {
				if !c.subscribes(topic) {
					continue
				}
				if err := c.engine.Receive(w.ctx, it.msg.Copy()); w.faults.Dead() {
					w.restart()
					return n
				} else if err != nil {
					w.Fatalf("%s does not take %s: %v", c.name, it.msg.UUID, err)
				}
			}
			w.broker.ack(it)
		}
	}
	return n
}

// topics returns the topics of some consumers, or of all.
func (w *world[Tx]) topics(only ...*consumer[Tx]) []string {
	if len(only) == 0 {
		only = w.consumers
	}
	var topics []string
	for _, c := range only {
		for _, topic := range c.topics() {
			if !slices.Contains(topics, topic) {
				topics = append(topics, topic)
			}
		}
	}
	return topics
}

// redeliver runs what is due at the consumers.
func (w *world[Tx]) redeliver() int {
	w.Helper()
	n := 0
	for _, c := range w.consumers {
		k, err := c.engine.RedeliverOnce(w.ctx)
		n += k
		if w.faults.Dead() {
			w.restart()
			return n + 1
		}
		w.must(err)
	}
	return n
}

// rest lets everything run until nothing is left to do at this time.
func (w *world[Tx]) rest() {
	w.Helper()
	for range maxRounds {
		if w.dispatch()+w.deliver()+w.redeliver() == 0 {
			return
		}
	}
	w.Fatalf("the engines did not come to rest in %d rounds: something is done again and again", maxRounds)
}

// routes sends "order.placed" to all consumers of the world, "order.archived" to
// nobody, and knows no other type.
type routes[Tx any] struct{ w *world[Tx] }

func (r routes[Tx]) Route(eventType string) (out []eventing.Route, routed bool) {
	switch eventType {
	case "order.archived":
		return nil, true
	case "order.placed":
		for _, c := range r.w.consumers {
			out = append(out, c.route())
		}
		return out, true
	}
	return nil, false
}

func (r routes[Tx]) Consumer(name string) (route eventing.Route, known bool) {
	for _, c := range r.w.consumers {
		if c.name == name {
			return c.route(), true
		}
	}
	return eventing.Route{}, false
}

// versioned is the same table with the world's version.
type versioned[Tx any] struct{ routes[Tx] }

func (r versioned[Tx]) Version() string { return r.w.version }

// equal reports a broken guarantee if got is not want.
func (w *world[Tx]) equal(guarantee string, got, want any) {
	w.Helper()
	if !reflect.DeepEqual(got, want) {
		w.Errorf("broken: %s\n got %v\nwant %v", guarantee, got, want)
	}
}

// list makes a list that equals another one of the same content: never nil.
func list(s ...string) []string { return append([]string{}, s...) }
