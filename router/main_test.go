package router_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit)) }

// Payloads of these tests.
type (
	orderPlaced    struct{ Number string }
	orderCancelled struct{ Reason string }
)

var errBusy = errors.New("busy")

// node is a process of its own on a store that it may share: its leases have its
// name, whatever the engines in it call themselves.
type node struct {
	*memstore.Store

	name string
	cut  atomic.Bool // off from the store's leases
}

func (n *node) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (eventing.LeaseTable, error) {
	if n.cut.Load() {
		return eventing.LeaseTable{}, errors.New("the database is out of reach")
	}
	r.Holder = n.name
	return n.Store.AcquireLeases(ctx, r)
}

func (n *node) ReleaseLeases(ctx context.Context, scope, _ string, partitions []int) error {
	if n.cut.Load() {
		return errors.New("the database is out of reach")
	}
	return n.Store.ReleaseLeases(ctx, scope, n.name, partitions)
}

// process is a dispatcher and a router with a broker between them, all running in
// the bubble of a test.
type process struct {
	*node

	t      *testing.T
	broker *inproc.Broker
	outbox *eventing.Outbox[*memstore.Tx]
	router *router.Router
	stop   func()
}

// pubSub is a broker as the engines see it.
type pubSub interface {
	message.Publisher
	message.Subscriber
}

// options of a process; all may be empty.
type options struct {
	name       string
	store      *memstore.Store
	pubSub     pubSub // default: a broker of its own, in the process
	middleware []message.HandlerMiddleware
}

// launch starts a process whose consumers register sets up. Whoever launches it
// stops it.
func launch(t *testing.T, o options, register func(p *process) error) *process {
	t.Helper()
	if o.store == nil {
		o.store = memstore.New()
	}
	if o.name == "" {
		o.name = "a"
	}
	p := &process{t: t, node: &node{Store: o.store, name: o.name}, broker: inproc.New(inproc.Config{})}
	if o.pubSub == nil {
		o.pubSub = p.broker
	}
	p.outbox = eventing.NewOutbox(o.store, eventing.OutboxConfig{})
	logger := slog.New(slog.DiscardHandler)
	var err error
	if p.router, err = router.New(router.Config{
		Store: p.node, Subscriber: o.pubSub, Middleware: o.middleware, Logger: logger, Random: func() float64 { return 0 },
	}); err != nil {
		t.Fatal(err)
	}
	if err := register(p); err != nil {
		t.Fatal(err)
	}
	dispatcher, err := eventing.NewDispatcher(p.node, o.pubSub, p.router, eventing.DispatcherConfig{Logger: logger, Holder: o.name})
	if err != nil {
		t.Fatal(err)
	}
	dispatching, stopDispatching := context.WithCancel(context.Background())
	consuming, stopConsuming := context.WithCancel(context.Background())
	var dispatch, consume sync.WaitGroup
	dispatch.Go(func() { _ = dispatcher.Run(dispatching) }) // logs its errors
	consume.Go(func() {
		if err := p.router.Run(consuming); err != nil {
			t.Errorf("Run returns nil when it is stopped, got %v", err)
		}
	})
	p.stop = sync.OnceFunc(func() { // in the order of an event's life, so that what is concluded is settled
		stopConsuming()
		consume.Wait()
		_ = p.broker.Close() // always nil
		stopDispatching()
		dispatch.Wait()
	})
	return p
}

// append appends events in one transaction.
func (p *process) append(events ...eventing.Appendable) {
	p.t.Helper()
	ctx := context.Background()
	if err := p.outbox.InTx(ctx, func(tx *memstore.Tx) error { return p.outbox.Append(ctx, tx, events...) }); err != nil {
		p.t.Fatal(err)
	}
}

// order is an event with the given ID about an order.
func order(number, id string) eventing.Event[orderPlaced] {
	e := eventing.New("order", number, orderPlaced{number})
	e.ID = id
	return e
}

func (p *process) stats() eventing.Stats {
	p.t.Helper()
	stats, err := p.Stats(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	return stats
}

// letter returns the only dead letter.
func (p *process) letter() eventing.DeadLetter {
	p.t.Helper()
	letters, err := eventing.NewDeadLetters(p.Store).List(context.Background(), eventing.DeadLetterFilter{})
	if err != nil || len(letters) != 1 {
		p.t.Fatalf("there are %d dead letters, not 1: %+v, %v", len(letters), letters, err)
	}
	return letters[0]
}

// did checks what handlers have done, in order: see effect.
func (p *process) did(what string, want ...string) {
	p.t.Helper()
	if got := p.List("effects"); !slices.Equal(got, want) {
		p.t.Errorf("%s: did %v, want %v", what, got, want)
	}
}

// effect is what handlers do in their transaction.
func effect(tx *memstore.Tx, s string) { tx.Append("effects", s) }

// after waits for a time of the bubble, which passes when everybody waits.
func after(d time.Duration) { <-time.After(d) }

// wait waits for a signal, but not for ever: the time of a bubble passes quickly.
func (p *process) wait(what string, signal <-chan struct{}) {
	p.t.Helper()
	select {
	case <-signal:
	case <-time.After(time.Hour):
		p.t.Fatalf("%s is not there after an hour", what)
	}
}
