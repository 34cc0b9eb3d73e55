package eventingtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func batchTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"a full batch is one call and one transaction":       batchTogether[Tx],
		"what is there goes when the first has waited":       batchLingers[Tx],
		"a bad event falls out alone":                        func(w *world[Tx]) { batchOneBad(w, errBusy, eventing.StateRetrying, 1) },
		"a hopeless event dies alone":                        func(w *world[Tx]) { batchOneBad(w, errHopeless, eventing.StateDead, 1) },
		"a snoozed event burns no attempt":                   func(w *world[Tx]) { batchOneBad(w, eventing.RetryAfter(time.Hour, errBusy), eventing.StateRetrying, 0) },
		"panics and timeouts are of one event":               batchPanicTimeout[Tx],
		"an event that OnConclude refuses holds up no other": batchHook[Tx],
		"the same event twice runs once":                     batchTwins[Tx],
		"two workers with duplicates":                        batchTwoWorkers[Tx],
		"what is known runs alone":                           batchKnown[Tx],
		"an ordered consumer keeps the order of keys":        batchOrdered[Tx],
		"an old token writes nothing":                        batchStale[Tx],
		"what is untouched":                                  batchUntouched[Tx],
		"a conflict writes nothing":                          batchConflict[Tx],
		"shutting down is no one's attempt":                  batchShutdown[Tx],
	}
}

// batchConsumer is a consumer whose handler gets several events.
type batchConsumer[Tx any] struct {
	*consumer[Tx]

	mu    sync.Mutex
	sizes []int // of the calls
}

// batchConsumer adds one whose batches are full with size events, and wait for them long
// enough.
func (w *world[Tx]) batchConsumer(name string, size int, configure func(*eventing.ConsumerConfig)) *batchConsumer[Tx] {
	w.Helper()
	c := &batchConsumer[Tx]{consumer: w.consumer(name, configure)}
	c.cfg.Batch = eventing.BatchPolicy{Size: size, Linger: patience}
	c.handleAll = c.runAll
	c.start()
	return c
}

// linger starts the consumer anew; 0 is the default.
func (c *batchConsumer[Tx]) linger(d time.Duration) {
	c.w.Helper()
	c.cfg.Batch.Linger = d
	c.start()
}

// runAll leaves the effects of all events, and fails if one of them does.
func (c *batchConsumer[Tx]) runAll(ctx context.Context, events []eventing.Envelope) error {
	c.mu.Lock()
	c.sizes = append(c.sizes, len(events))
	c.mu.Unlock()
	for _, e := range events {
		if err := c.run(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// calls returns the sizes of the handler's calls.
func (c *batchConsumer[Tx]) calls() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sizes)
}

// heads takes of each topic of a consumer what a broker would have out: one message of a
// partition, and else all.
func (w *world[Tx]) heads(c *batchConsumer[Tx]) (out []*inTransit) {
	w.broker.mu.Lock()
	defer w.broker.mu.Unlock()
	for _, topic := range c.topics() {
		queue := w.broker.queues[topic]
		if c.cfg.Policy.Ordered {
			queue = queue[:min(1, len(queue))]
		}
		out = append(out, queue...)
	}
	return out
}

// together hands messages to a consumer's engines, all at once to each.
func (w *world[Tx]) together(messages []*inTransit, engines ...*eventing.Consumer) error {
	errs := make([]error, len(messages)*len(engines))
	var all sync.WaitGroup
	for i, it := range messages {
		for j, engine := range engines {
			all.Go(func() { errs[i*len(engines)+j] = engine.Receive(w.ctx, it.msg.Copy()) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// restTogether is rest for a consumer of batches. A message that was not acked when the
// process died comes again.
func (w *world[Tx]) restTogether(c *batchConsumer[Tx]) {
	w.Helper()
	for range maxRounds {
		n := w.dispatch()
		messages := w.heads(c)
		err := w.together(messages, c.engine)
		switch {
		case w.faults.Dead():
			w.restart()
			continue
		case err != nil:
			w.Fatal(err)
		}
		for _, it := range messages {
			w.broker.ack(it)
		}
		if n+len(messages)+w.redeliver() == 0 {
			return
		}
	}
	w.Fatalf("the engines did not come to rest in %d rounds: something is done again and again", maxRounds)
}

// ids are those of n events, in order.
func ids(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("e%03d", i)
	}
	return out
}

func batchTogether[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 100, nil)
	w.append(orders("", ids(100)...)...)
	w.restTogether(c)
	w.equal("a full batch is one call", c.calls(), []int{100})
	w.equal("each event has its effect once", c.sorted(), ids(100))
	w.equal("each is in the inbox", w.stats().Inbox, int64(100))
	w.equal("and is concluded", len(c.conclusions), 100)
	last := c.lastConclusion()
	w.equal("after its first attempt", []any{last.State, last.Attempts, last.Err}, []any{eventing.StateNone, 1, nil})
	w.deliveries("nothing is in trouble", 0, 0, 0)
}

func batchLingers[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 100, nil)
	c.linger(20 * time.Millisecond)
	w.append(orders("", ids(7)...)...)
	w.restTogether(c)
	w.equal("a batch that does not fill goes all the same", c.sorted(), ids(7))
}

// batchOneBad has one of a hundred events fail.
func batchOneBad[Tx any](w *world[Tx], with error, state eventing.State, attempts int) {
	c := w.batchConsumer("billing", 100, nil)
	c.fail(with, "e042")
	w.append(orders("", ids(100)...)...)
	w.restTogether(c)
	w.equal("all others are processed", c.sorted(), slices.Delete(ids(100), 42, 43))
	w.equal("and are in the inbox", w.stats().Inbox, int64(99))
	w.equal("the bad one is found by halving", len(c.calls()) <= 1+3*7, true)
	var bad []eventing.Conclusion
	for _, conclusion := range c.conclusions {
		if conclusion.Err != nil {
			bad = append(bad, conclusion)
		}
	}
	w.equal("one failure is recorded", len(bad), 1)
	w.equal("that of the bad event, as one attempt at most", []any{bad[0].Envelope.ID, bad[0].State, bad[0].Attempts},
		[]any{"e042", state, attempts})
	c.heal()
	c.linger(0)
	if state == eventing.StateDead {
		w.equal("its dead letter has one attempt", w.deadLetter(target("e042", c.consumer)).AttemptCount, 1)
		w.replay(target("e042", c.consumer))
	}
	w.clock.Advance(2 * time.Hour)
	w.restTogether(c)
	w.equal("later it is processed too", c.sorted(), ids(100))
	w.equal("by the attempt after", c.lastConclusion().Attempts, attempts+1)
	w.deliveries("nothing is left in trouble", 0, 0, 0)
}

func batchPanicTimeout[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 4, func(cfg *eventing.ConsumerConfig) {
		cfg.Policy.Retry.MaxAttempts = 1
		cfg.Policy.Timeout = 2 * time.Second
	})
	c.handleWith(func(ctx context.Context, e eventing.Envelope) error {
		switch e.ID {
		case "panic":
			panic("at the disco")
		case "slow":
			<-ctx.Done()
			return fmt.Errorf("call the bank: %w", ctx.Err())
		}
		return nil
	})
	w.append(orders("", "e1", "e2", "panic", "slow")...)
	w.restTogether(c)
	w.equal("the others are processed", c.sorted(), list("e1", "e2"))
	w.equal("a panic is the failure of its event", w.deadLetter(target("panic", c.consumer)).History[0].ErrorCode, eventing.ReasonPanic)
	w.equal("a timeout is the failure of its event", w.deadLetter(target("slow", c.consumer)).History[0].ErrorCode, eventing.ReasonTimeout)
	w.deliveries("and no others died", 0, 0, 2)
}

func batchHook[Tx any](w *world[Tx]) {
	var c *batchConsumer[Tx]
	refusals := 0
	c = w.batchConsumer("billing", 8, func(cfg *eventing.ConsumerConfig) {
		cfg.OnConclude = func(_ context.Context, _ any, conclusion eventing.Conclusion) error {
			if conclusion.Envelope.ID != "e003" || w.stats().Inbox == 7 {
				return nil
			}
			refusals++
			return errors.New("disk full")
		}
	})
	w.append(orders("", ids(8)...)...)
	w.restTogether(c)
	w.equal("it was refused until all others were processed", refusals > 0, true)
	w.equal("in the end all are", c.sorted(), ids(8))
	w.deliveries("a store that fails is no attempt of the handler", 0, 0, 0)
}

func batchTwins[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 4, nil)
	w.append(orders("", "e1", "e2")...)
	w.dispatch()
	messages := w.heads(c)
	w.must(w.together(append(messages, messages...), c.engine))
	w.equal("an event that comes twice in a batch has its effect once", c.sorted(), list("e1", "e2"))
	w.equal("the handler saw it once", c.calls(), []int{2})
	w.equal("it is in the inbox once", w.stats().Inbox, int64(2))
}

func batchTwoWorkers[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 10, nil)
	c.cfg.Policy.Concurrency = 3
	c.linger(0)
	w.append(orders("", ids(50)...)...)
	for w.dispatch() > 0 {
	}
	w.must(w.together(w.heads(c), c.newEngine("first"), c.newEngine("second")))
	w.equal("whatever each of two workers gets, each effect happens once", c.sorted(), ids(50))
	w.equal("and is in the inbox once", w.stats().Inbox, int64(50))
	w.deliveries("a conflict is no one's failure", 0, 0, 0)
}

func batchKnown[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 6, nil)
	_, run := c.arrive(c.delivery(order("done", "")))
	w.must(c.succeedRun(run))
	_, run = c.arrive(c.delivery(order("retrying", "")))
	w.must(c.failRun(run, eventing.StateRetrying))
	_, run = c.arrive(c.delivery(order("dead", "")))
	w.must(c.failRun(run, eventing.StateDead))
	w.append(orders("", "done", "retrying", "dead", "e1", "e2", "e3")...)
	for w.dispatch() > 0 {
	}
	w.must(w.together(w.heads(c), c.engine))
	w.equal("only what is new is run, together", c.calls(), []int{3})
	w.equal("what was processed, is retried or dead does not run again", c.sorted(), list("done", "e1", "e2", "e3"))
	w.deliveries("what is in trouble stays so", 1, 0, 1)
}

// batchOrdered has an event in trouble in a batch of several keys.
func batchOrdered[Tx any](w *world[Tx]) {
	c := w.batchConsumer("ledger", 3, ordered)
	keys := []string{"K", "L", "M"} // each of another partition
	for i, key := range keys {
		w.append(orders(key, fmt.Sprintf("%s%d", key, 1), fmt.Sprintf("%s%d", key, 2), fmt.Sprintf("%s%d", key, 3))...)
		w.equal("the test's keys are of different partitions", slices.ContainsFunc(keys[:i], func(other string) bool {
			return eventing.PartitionOf(other, "") == eventing.PartitionOf(key, "")
		}), false)
	}
	c.fail(errBusy, "L2")
	w.restTogether(c)
	of := func(key byte) []string {
		return slices.DeleteFunc(c.effects(), func(id string) bool { return id[0] != key })
	}
	w.equal("each key is handled in order", of('K'), list("K1", "K2", "K3"))
	w.equal("each key is handled in order", of('M'), list("M1", "M2", "M3"))
	w.equal("what is behind an event in trouble waits", of('L'), list("L1"))
	w.deliveries("it is parked", 1, 1, 0)
	w.equal("events of several keys share a call", c.calls()[0], 3)
	c.heal()
	w.clock.Advance(2 * time.Hour)
	w.restTogether(c)
	w.equal("and follows in order", of('L'), list("L1", "L2", "L3"))
}

// success is that of some events, each of which leaves its effect.
func (c *batchConsumer[Tx]) success(ids ...string) eventing.BatchSuccess {
	return eventing.BatchSuccess{
		Consumer: c.name, EventIDs: ids, Now: c.w.clock.Now(), InboxUntil: c.w.clock.Now().Add(time.Hour),
		Effect: func(ctx context.Context, tx any) error {
			for _, id := range ids {
				if err := c.w.effect(c.name, id)(ctx, tx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func batchStale[Tx any](w *world[Tx]) {
	c := w.batchConsumer("ledger", 2, ordered)
	s := c.success("e1", "e2")
	s.Leases = []eventing.Lease{*c.lease(2), *c.lease(1)}
	w.clock.Advance(leaseTTL)
	w.acquire("consumer/ledger", "other", 2)
	w.equal("a success under one old token of two is refused", errors.Is(w.db.SucceedAll(w.ctx, s), eventing.ErrLeaseLost), true)
	w.effects("what is refused has written nothing", c.consumer)
	w.equal("what is refused has written nothing", w.stats().Inbox, int64(0))
	s.Leases = s.Leases[1:]
	w.must(w.db.SucceedAll(w.ctx, s))
	w.effects("under current tokens it is written", c.consumer, "e1", "e2")
}

func batchUntouched[Tx any](w *world[Tx]) {
	c, other := w.batchConsumer("ledger", 2, ordered), w.consumer("mail", nil)
	conclude := func(id, key string, with eventing.State) {
		_, run := c.arrive(c.delivery(order(id, key)))
		if with == eventing.StateNone {
			w.must(c.succeedRun(run))
			return
		}
		w.must(c.failRun(run, with))
	}
	conclude("done", "A", eventing.StateNone)
	conclude("retrying", "B", eventing.StateRetrying)
	conclude("dead", "C", eventing.StateDead)
	conclude("discarded", "D", eventing.StateDead)
	w.discard(target("discarded", c.consumer))
	_, run := other.arrive(other.delivery(order("elsewhere", "")))
	w.must(other.succeedRun(run))
	var ds []eventing.Delivery
	for _, e := range [][2]string{{"done", "A"}, {"retrying", "B"}, {"dead", "C"}, {"discarded", "D"}, {"behind", "B"}, {"elsewhere", "E"}, {"new", "A"}} {
		ds = append(ds, c.delivery(order(e[0], e[1])))
	}
	got, err := w.db.Untouched(w.ctx, ds)
	w.must(err)
	w.equal("untouched is what has no inbox row, no delivery and no dead letter here, and whose key is free",
		got, []bool{false, false, false, false, false, true, true})
}

func batchConflict[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 2, nil)
	_, run := c.arrive(c.delivery(order("done", "")))
	w.must(c.succeedRun(run))
	_, run = c.arrive(c.delivery(order("retrying", "")))
	w.must(c.failRun(run, eventing.StateRetrying))
	for _, known := range []string{"done", "retrying"} {
		err := w.db.SucceedAll(w.ctx, c.success("e1", known, "e2"))
		w.equal("a batch with an event that is "+known+" is a conflict", errors.Is(err, eventing.ErrConflict), true)
	}
	w.effects("a conflict writes no effect", c.consumer, "done")
	w.equal("and no inbox row", w.stats().Inbox, int64(1))
	w.must(w.db.SucceedAll(w.ctx, c.success("e1", "e2")))
	w.equal("without it, all is written", c.sorted(), list("done", "e1", "e2"))
}

func batchShutdown[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 4, func(cfg *eventing.ConsumerConfig) { cfg.ShutdownGrace = time.Nanosecond })
	w.append(orders("", ids(4)...)...)
	w.dispatch()
	live := w.ctx
	ctx, stop := context.WithCancel(live)
	c.handleWith(func(ctx context.Context, _ eventing.Envelope) error {
		stop()
		<-ctx.Done()
		return ctx.Err()
	})
	w.ctx = ctx
	err := w.together(w.heads(c), c.engine)
	w.ctx = live
	w.equal("what is cut short by the shutdown is not acked", err != nil, true)
	w.deliveries("and is no attempt", 0, 0, 0)
	w.equal("nothing is recorded", w.stats().Inbox, int64(0))
	c.heal()
	w.restart()
	w.restTogether(c)
	w.equal("the broker delivers it again", c.sorted(), ids(4))
}
