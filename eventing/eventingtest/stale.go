package eventingtest

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// A worker that is paused inside its handler for longer than its lease wakes up
// after another has taken over: it must write nothing.
func staleTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"its success writes nothing":        func(w *world[Tx]) { staleWorker(w, false, nil) },
		"its failure writes nothing":        func(w *world[Tx]) { staleWorker(w, false, errHopeless) },
		"its transaction is rolled back":    func(w *world[Tx]) { staleWorker(w, true, nil) },
		"its redelivery writes nothing":     staleRedelivery[Tx],
		"the store refuses the old token":   staleToken[Tx],
		"shutting down is no one's attempt": staleShutdown[Tx],
	}
}

// pause makes the handler, on its next run, report on the first channel and then
// wait for the second to be closed.
func (c *consumer[Tx]) pause(then error) (paused, wake chan struct{}) {
	paused, wake = make(chan struct{}), make(chan struct{})
	c.handleWith(func(context.Context, eventing.Envelope) error {
		c.handleWith(nil)
		close(paused)
		<-wake
		return then
	})
	return paused, wake
}

func (w *world[Tx]) waitFor(what string, signal <-chan struct{}) {
	w.Helper()
	select {
	case <-signal:
	case <-w.ctx.Done():
		w.Fatalf("%s did not happen in %v", what, patience)
	}
}

// staleWorker pauses the first worker in the handler of e1. With transactional, it holds
// a transaction meanwhile, which a store with a single writer cannot share.
func staleWorker[Tx any](w *world[Tx], transactional bool, result error) {
	if transactional && !w.caps.ConcurrentWriters {
		return // the pause holds up everybody else, and so nobody can take over
	}
	c := w.consumer("ledger", func(cfg *eventing.ConsumerConfig) {
		ordered(cfg)
		cfg.Transactional = transactional
	})
	w.append(orders("K", "e1", "e2")...)
	w.dispatch()
	msg := w.broker.next(eventing.PartitionTopic("ledger", eventing.PartitionOf("K", ""))).msg
	paused, wake := c.pause(result)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	stale, concluded := c.engine, make(chan error, 1)
	go func() { concluded <- stale.Receive(ctx, msg.Copy()) }()
	w.waitFor("the first worker's run", paused)

	w.restart() // another process takes over, the first one's lease has run out
	w.rest()
	if transactional {
		w.effects("the new holder runs the events", c, "e1", "e2")
	} else {
		w.effects("the new holder runs the events", c, "e1", "e1", "e2")
	}
	inbox := w.stats().Inbox
	w.equal("the new holder concludes them", inbox, int64(2))

	cancel() // so that the stale worker, refused, does not try again
	close(wake)
	if err := <-concluded; err == nil {
		w.Error("broken: a worker whose lease was taken over must not ack")
	}
	want := list("e1", "e2")
	if !transactional {
		want = list("e1", "e1", "e2")
	}
	w.effects("a stale worker writes nothing", c, want...)
	w.deliveries("a stale worker writes nothing", 0, 0, 0)
	w.equal("a stale worker writes nothing", w.stats().Inbox, inbox)
	w.nothingDead("a stale worker writes nothing")
}

func staleRedelivery[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", func(cfg *eventing.ConsumerConfig) {
		ordered(cfg)
		cfg.Transactional = false
	})
	c.fail(errBusy, "e1")
	w.append(orders("K", "e1", "e2", "e3")...)
	w.rest()
	c.heal()
	w.clock.Advance(time.Hour)
	paused, wake := c.pause(errHopeless)
	stale, concluded := c.engine, make(chan error, 1)
	go func() {
		_, err := stale.RedeliverOnce(w.ctx)
		concluded <- err
	}()
	w.waitFor("the first worker's run", paused)
	w.restart()
	w.rest()
	w.equal("the new holder runs the key in order", c.ran(), list("e1", "e1", "e1", "e2", "e3"))
	close(wake)
	w.must(<-concluded)
	w.deliveries("a stale worker's failure writes nothing", 0, 0, 0)
	w.nothingDead("a stale worker's failure writes nothing")
	w.equal("the inbox is the new holder's", w.stats().Inbox, int64(3))
}

func staleToken[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	_, run := c.arrive(c.delivery(order("e1", "K")))
	w.clock.Advance(leaseTTL)
	w.lease("consumer/ledger", "other")
	w.equal("a success under an old token is refused", errors.Is(c.succeedRun(run), eventing.ErrLeaseLost), true)
	w.equal("a failure under an old token is refused", errors.Is(c.failRun(run, eventing.StateDead), eventing.ErrLeaseLost), true)
	w.effects("what is refused has written nothing", c)
	w.deliveries("what is refused has written nothing", 0, 0, 0)
	w.equal("what is refused has written nothing", w.stats().Inbox, int64(0))
}

func staleShutdown[Tx any](w *world[Tx]) {
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) { cfg.ShutdownGrace = time.Nanosecond })
	w.append(order("e1", ""))
	w.dispatch()
	ctx, cancel := context.WithCancel(w.ctx)
	c.handleWith(func(ctx context.Context, _ eventing.Envelope) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	err := c.engine.Receive(ctx, w.broker.next("billing").msg.Copy())
	w.equal("what is cut short by the shutdown is not acked", err != nil, true)
	w.deliveries("and is no attempt", 0, 0, 0)
	c.heal()
	w.restart()
	w.rest()
	w.effects("the broker delivers it again", c, "e1")
}
