package eventingtest

import (
	"errors"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func redeliverTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"a claim keeps others away until it ends":   redeliverClaim[Tx],
		"a claim that ran out concludes nothing":    redeliverStaleClaim[Tx],
		"the longest waiting come first, bounded":   redeliverOrder[Tx],
		"ordered: only heads of leased partitions":  redeliverHeads[Tx],
		"two workers run what is due once":          redeliverTwoWorkers[Tx],
		"a crash after the claim delays, no more":   redeliverCrash[Tx],
		"what was processed meanwhile is forgotten": redeliverProcessed[Tx],
	}
}

// due asks for an unordered consumer's deliveries.
func (c *consumer[Tx]) due(token string, limit int, exclude ...string) []eventing.Run {
	c.w.Helper()
	now := c.w.clock.Now()
	runs, err := c.w.db.Due(c.w.ctx, eventing.DueRequest{
		Consumer: c.name, Now: now, Limit: limit, Exclude: exclude, ClaimToken: token, ClaimUntil: now.Add(time.Minute),
	})
	c.w.must(err)
	return runs
}

// dueOrdered asks for those of an ordered one.
func (c *consumer[Tx]) dueOrdered(leases []eventing.Lease) []eventing.Run {
	c.w.Helper()
	runs, err := c.w.db.Due(c.w.ctx, eventing.DueRequest{Consumer: c.name, Ordered: true, Now: c.w.clock.Now(), Limit: 100, Leases: leases})
	c.w.must(err)
	return runs
}

// retrying leaves events retrying, due in an hour.
func (c *consumer[Tx]) retrying(ids ...string) {
	c.w.Helper()
	for _, id := range ids {
		_, run := c.arrive(c.delivery(order(id, "")))
		c.w.must(c.failRun(run, eventing.StateRetrying))
	}
}

func redeliverClaim[Tx any](w *world[Tx]) {
	c, other := w.consumer("billing", nil), w.consumer("mail", nil)
	c.retrying("e1")
	w.equal("what is not due is not redelivered", runIDs(c.due("a", 10)), list())
	w.clock.Advance(time.Hour)
	w.equal("one consumer does not get another's", runIDs(other.due("a", 10)), list())
	w.equal("what runs here already is left out", runIDs(c.due("a", 10, "e1")), list())
	runs := c.due("a", 10)
	w.equal("what is due is redelivered", runIDs(runs), list("e1"))
	r := runs[0]
	w.equal("a redelivery says what was recorded", []any{r.Found, r.Attempts, r.PriorAttempts, len(r.History), r.ClaimToken, r.Delivery},
		[]any{eventing.StateRetrying, 1, 0, 1, "a", c.delivery(order("e1", ""))})
	w.equal("a claim keeps others away", runIDs(c.due("b", 10)), list())
	w.clock.Advance(time.Minute)
	w.equal("until it ends", runIDs(c.due("b", 10)), list("e1"))
}

func redeliverStaleClaim[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.retrying("e1")
	w.clock.Advance(time.Hour)
	stale := c.due("a", 10)[0]
	w.clock.Advance(time.Minute)
	fresh := c.due("b", 10)[0]
	w.equal("a run whose claim another has taken does not succeed", errors.Is(c.succeedRun(stale), eventing.ErrConflict), true)
	w.equal("nor fail", errors.Is(c.failRun(stale, eventing.StateDead), eventing.ErrConflict), true)
	w.effects("and leaves no effect", c)
	w.must(c.failRun(fresh, eventing.StateRetrying))
	w.equal("a failure ends the claim: due when the retry is, not before", runIDs(c.due("c", 10)), list())
	w.clock.Advance(time.Hour)
	runs := c.due("c", 10)
	w.equal("and then it is due", runIDs(runs), list("e1"))
	w.must(c.succeedRun(runs[0]))
	w.effects("the current claim concludes", c, "e1")
	w.deliveries("a success removes the delivery", 0, 0, 0)
}

func redeliverOrder[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	for _, id := range []string{"e3", "e1", "e2"} {
		c.retrying(id)
		w.clock.Advance(time.Second)
	}
	w.clock.Advance(time.Hour)
	w.equal("the longest waiting are claimed first, no more than asked for", runIDs(c.due("a", 2)), list("e3", "e1"))
	w.equal("then the rest", runIDs(c.due("b", 2)), list("e2"))
}

func redeliverHeads[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	keys := samePartition(2)
	for i, id := range []string{"e1", "e2", "e3"} {
		d := c.delivery(order(id, keys[0]))
		if _, run := c.arrive(d); i == 0 {
			w.must(c.failRun(run, eventing.StateRetrying))
		}
	}
	_, run := c.arrive(c.delivery(order("f1", keys[1])))
	w.must(c.failRun(run, eventing.StateDead))
	c.decide("behind a dead delivery, events are parked", c.delivery(order("f2", keys[1])), eventing.DecidePark)
	leases := w.lease("consumer/ledger", w.holder())
	w.equal("behind a head that is not due or dead, nothing runs", runIDs(c.dueOrdered(leases)), list())
	w.clock.Advance(time.Hour)
	leases = w.lease("consumer/ledger", w.holder())
	w.equal("only the head of a key is redelivered", runIDs(c.dueOrdered(leases)), list("e1"))
	w.equal("without leases nothing is", runIDs(c.dueOrdered(nil)), list())
	run = c.dueOrdered(leases)[0]
	run.Lease = c.lease(run.Partition)
	w.must(c.succeedRun(run))
	runs := c.dueOrdered(leases)
	w.equal("when the head is gone, the next is the head, due by itself", runIDs(runs), list("e2"))
	w.equal("as parked", runs[0].Found, eventing.StateParked)
}

func redeliverTwoWorkers[Tx any](w *world[Tx]) {
	ids := []string{"e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"}
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) { cfg.Policy.Concurrency = 4 })
	c.fail(errBusy, ids...)
	w.append(orders("", ids...)...)
	w.rest()
	w.effects("runs that failed leave no effect", c)
	c.heal()
	w.clock.Advance(time.Hour)
	var workers sync.WaitGroup
	for _, holder := range []string{"a", "b"} {
		engine := c.newEngine(holder)
		workers.Go(func() {
			for range maxRounds {
				if n, err := engine.RedeliverOnce(w.ctx); err != nil {
					w.Errorf("redeliver: %v", err)
					return
				} else if n == 0 {
					return
				}
			}
		})
	}
	workers.Wait()
	done := map[string]int{}
	for _, id := range c.effects() {
		done[id]++
	}
	want := map[string]int{}
	for _, id := range ids {
		want[id] = 1
	}
	w.equal("two workers run what is due once", done, want)
	w.equal("and claim it before they run it", len(c.ran()), 2*len(ids))
}

func redeliverCrash[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.rest()
	c.heal()
	w.clock.Advance(time.Hour)
	w.faults.FailNext(eventing.FaultClaimedDue)
	w.rest()
	w.effects("a claim of a worker that died ends by itself", c, "e1")
}

// redeliverProcessed has a delivery in trouble whose event is in the inbox
// already: by another way, such as a message of the first worker that took long.
func redeliverProcessed[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	_, slow := c.arrive(c.delivery(order("e1", "")))
	_, twin := c.arrive(c.delivery(order("e1", "")))
	w.must(c.succeedRun(slow))
	w.equal("a twin's failure does not undo the success", errors.Is(c.failRun(twin, eventing.StateRetrying), eventing.ErrConflict), true)
	w.clock.Advance(2 * time.Hour)
	w.rest()
	w.effects("what was processed does not run again", c, "e1")
}
