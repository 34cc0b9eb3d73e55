package router_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
)

// remote is a broker in the process as if it were a server: it says nothing of
// completions, and outlives those who use it.
type remote struct {
	message.Publisher
	subscriber
}

// subscriber is the part of a broker that the router uses.
type subscriber interface {
	message.Subscriber
	SubscribeConsumer(ctx context.Context, topic, consumer string, window int) (<-chan *message.Message, error)
	SubscribePartition(ctx context.Context, topic, consumer string) (<-chan *message.Message, error)
}

func (remote) Close() error { return nil }

// orderedLedger registers an ordered consumer. Its handler is outside of a transaction, so
// that it can be held up without holding up the store; what it concludes is in the
// effects, with the name of the process.
func orderedLedger(handle func(ctx context.Context, e eventing.Event[orderPlaced]) error) func(p *process) error {
	return func(p *process) error {
		if err := p.router.AddConsumer(router.Consumer{
			Name: "ledger", Policy: eventing.Policy{Ordered: true},
			OnConclude: func(_ context.Context, tx any, c eventing.Conclusion) error {
				if c.State == eventing.StateNone {
					effect(tx.(*memstore.Tx), p.name+" "+c.Envelope.ID)
				}
				return nil
			},
		}); err != nil {
			return err
		}
		return router.Handle(p.router, "ledger", handle)
	}
}

func succeed(context.Context, eventing.Event[orderPlaced]) error { return nil }

// Each key's events keep their order, whatever its neighbours do.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error {
			if err := p.router.AddConsumer(router.Consumer{Name: "ledger", Policy: eventing.Policy{Ordered: true}}); err != nil {
				return err
			}
			failed := map[string]bool{}
			return router.HandleTx(p.router, "ledger", func(_ context.Context, tx *memstore.Tx, e eventing.Event[orderPlaced]) error {
				if i := e.ID[len(e.ID)-1]; i%3 == 0 && !failed[e.ID] {
					failed[e.ID] = true
					return errBusy
				}
				effect(tx, e.ID)
				return nil
			})
		})
		defer p.stop()
		const keys, each = 40, 7
		for i := range each {
			for key := range keys {
				p.append(order(fmt.Sprint(key), fmt.Sprintf("%02d-%d", key, i)))
			}
		}
		after(time.Minute)
		got := p.List("effects")
		if len(got) != keys*each {
			t.Fatalf("each event is handled exactly once: %d of %d effects", len(got), keys*each)
		}
		slices.SortStableFunc(got, func(a, b string) int { return int(a[0])*10 + int(a[1]) - int(b[0])*10 - int(b[1]) })
		if !slices.IsSorted(got) {
			t.Errorf("the events of a key are handled in the order of their appending: %v", got)
		}
	})
}

// An ordered consumer gets one message at a time, however many the broker gives others.
func TestOrderWhateverTheBrokersWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := inproc.New(inproc.Config{Window: 16})
		defer broker.Close()
		var running, most atomic.Int32
		p := launch(t, options{pubSub: broker}, orderedLedger(func(_ context.Context, e eventing.Event[orderPlaced]) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			after(time.Duration('9'-e.ID[1]) * time.Second) // the later, the shorter
			return nil
		}))
		defer p.stop()
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("a e%d", i))
			p.append(order("7", fmt.Sprintf("e%d", i)))
		}
		after(2 * time.Minute)
		p.did("the handlers run one after the other", want...)
		if most.Load() != 1 {
			t.Errorf("%d handlers of a key ran at a time", most.Load())
		}
	})
}

// While an event is in trouble, its key waits and others flow.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mended := false
		p := launch(t, options{}, orderedLedger(func(_ context.Context, e eventing.Event[orderPlaced]) error {
			if e.ID == "e2" && !mended {
				return eventing.Permanent(errBusy)
			}
			return nil
		}))
		defer p.stop()
		for _, e := range []eventing.Appendable{order("7", "e1"), order("7", "e2"), order("8", "f1"), order("7", "e3"), order("7", "e4")} {
			p.append(e)
			synctest.Wait()
		}
		p.did("behind a dead letter its key waits", "a e1", "a f1")
		if d := p.letter(); d.ParkedBehind != 2 {
			t.Errorf("two are parked behind it: %+v", d)
		}
		mended = true
		if err := eventing.NewDeadLetters(p.Store).Replay(context.Background(), eventing.Target{EventID: "e2", Consumer: "ledger"}, "ana", ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.did("after the replay the key goes on in order", "a e1", "a f1", "a e2", "a e3", "a e4")
	})
}

// Behind a broker in the process, whoever dispatches a partition has to consume it: a lease
// of the consumer's own could be somebody else's.
func TestInProcessConsumersUseTheDispatchersLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		if _, err := store.AcquireLeases(context.Background(), eventing.LeaseRequest{
			Scope: "consumer/ledger", Holder: "another", Now: time.Now(), Until: time.Now().Add(24 * time.Hour),
		}); err != nil {
			t.Fatal(err)
		}
		p := launch(t, options{store: store}, orderedLedger(succeed))
		defer p.stop()
		p.append(order("7", "e1"))
		after(time.Minute)
		p.did("what is dispatched here is consumed here", "a e1")
	})
}

// When a process stops, another takes its partitions over and goes on where it was.
func TestHandover(t *testing.T) {
	t.Parallel()
	for name, brokers := range map[string]func() pubSub{
		"a broker in each process": func() pubSub { return nil },
		"a broker between them": func() pubSub {
			b := inproc.New(inproc.Config{})
			return remote{b, b}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := options{name: "a", store: memstore.New(), pubSub: brokers()}
				a := launch(t, o, orderedLedger(succeed))
				a.append(order("7", "e1"))
				synctest.Wait()
				o.name = "b"
				b := launch(t, o, orderedLedger(succeed))
				defer b.stop()
				a.append(order("7", "e2"))
				synctest.Wait()
				a.did("who holds a partition keeps it", "a e1", "a e2")
				a.stop()
				b.append(order("7", "e3"), order("7", "e4"))
				after(5 * time.Second) // others look for free leases each third of a lease's life, and for rows each second
				b.did("who stops gives it back, and another goes on", "a e1", "a e2", "b e3", "b e4")
				if r, ok := o.pubSub.(remote); ok {
					_ = r.Publisher.Close() // always nil
				}
			})
		})
	}
}

// A process that is cut off from the store for longer than its leases live, in the middle
// of an event, loses its partitions to another, and concludes nothing when it wakes up.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, brokers := range map[string]func() pubSub{
		"a broker in each process": func() pubSub { return nil },
		"a broker between them": func() pubSub {
			b := inproc.New(inproc.Config{})
			return remote{b, b}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { takeover(t, brokers()) })
		})
	}
}

func takeover(t *testing.T, broker pubSub) {
	paused, wake := make(chan struct{}), make(chan struct{})
	o := options{name: "a", store: memstore.New(), pubSub: broker}
	a := launch(t, o, orderedLedger(func(_ context.Context, e eventing.Event[orderPlaced]) error {
		if e.ID == "e2" {
			close(paused)
			<-wake
		}
		return nil
	}))
	synctest.Wait() // it has the leases
	o.name = "b"
	b := launch(t, o, orderedLedger(succeed))
	a.append(order("7", "e1"), order("7", "e2"), order("7", "e3"))
	a.wait("the handler of e2", paused)
	a.cut.Store(true)
	after(2 * time.Second)
	b.did("a lease holds until its end", "a e1")
	after(8 * time.Second)
	b.did("then another process goes on", "a e1", "b e2", "b e3")
	close(wake)
	synctest.Wait()
	b.did("a worker that wakes up too late concludes nothing", "a e1", "b e2", "b e3")
	a.stop()
	after(10 * time.Second)
	b.did("each event is concluded once, in order, under the lease of who concludes it", "a e1", "b e2", "b e3")
	if s := b.stats(); s.Inbox != 3 || len(s.Deliveries) != 0 || s.Outbox["pending"] != 0 {
		t.Errorf("nothing is left to do: %+v", s)
	}
	b.stop()
	if r, ok := broker.(remote); ok {
		_ = r.Publisher.Close() // always nil
	}
}
