package eventingtest

import (
	"errors"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Each row of the arrival table, asked of the store itself.
func arriveTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"nothing found: run": arriveNew[Tx],
		"processed: ack":     arriveProcessed[Tx],
		"retrying: ack":      arriveRetrying[Tx],
		"dead: ack, unless it is the current replay": arriveDead[Tx],
		"discarded: ack":                            arriveDiscarded[Tx],
		"the key is busy: park":                     arriveBusy[Tx],
		"replayed out of turn: park":                arriveOutOfTurn[Tx],
		"parking under a lost lease writes nothing": arriveStale[Tx],
	}
}

// arrive asks the store, under the lease that an ordered consumer holds.
func (c *consumer[Tx]) arrive(d eventing.Delivery) (eventing.Decision, eventing.Run) {
	c.w.Helper()
	decision, run, err := c.w.db.Arrive(c.w.ctx, d, c.lease(d.Partition), c.w.clock.Now())
	c.w.must(err)
	run.Lease = c.lease(d.Partition)
	return decision, run
}

// lease returns the lease of a partition for an ordered consumer, nil for others.
func (c *consumer[Tx]) lease(partition int) *eventing.Lease {
	c.w.Helper()
	if !c.cfg.Policy.Ordered {
		return nil
	}
	for _, l := range c.w.lease("consumer/"+c.name, c.w.holder()) {
		if l.Partition == partition {
			return &l
		}
	}
	c.w.Fatalf("%s does not hold partition %d", c.name, partition)
	return nil
}

// decide checks what the store decides about an event that arrives.
func (c *consumer[Tx]) decide(guarantee string, d eventing.Delivery, want eventing.Decision) eventing.Run {
	c.w.Helper()
	got, run := c.arrive(d)
	c.w.equal(guarantee, got, want)
	return run
}

// failRun records a failure of a run.
func (c *consumer[Tx]) failRun(r eventing.Run, state eventing.State) error {
	now := c.w.clock.Now()
	return c.w.db.Fail(c.w.ctx, eventing.Failure{
		Run: r, Now: now, State: state, DueAt: now.Add(time.Hour), Attempts: r.Attempts + 1,
		History: append(r.History, eventing.Attempt{
			Attempt: r.Attempts + 1, At: now, Outcome: "failed", ErrorCode: eventing.ReasonHandlerError, ErrorMessage: "no",
		}),
		Stage: eventing.StageHandle, Reason: eventing.ReasonRejected, Message: "no", DeadLetterUntil: now.Add(24 * time.Hour),
	})
}

// succeedRun records the success of a run, with an effect.
func (c *consumer[Tx]) succeedRun(r eventing.Run) error {
	return c.w.db.Succeed(c.w.ctx, c.success(r))
}

func (c *consumer[Tx]) success(r eventing.Run) eventing.Success {
	now := c.w.clock.Now()
	return eventing.Success{Run: r, Now: now, InboxUntil: now.Add(24 * time.Hour), DeadLetterUntil: now.Add(24 * time.Hour),
		Effect: c.w.effect(c.name, r.EventID)}
}

func arriveNew[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	d := c.delivery(order("e1", "K"))
	run := c.decide("an event that the store knows nothing about is run", d, eventing.DecideRun)
	w.equal("the run has no past", []any{run.Found, run.Attempts, run.PriorAttempts, len(run.History)}, []any{eventing.StateNone, 0, 0, 0})
	w.equal("the run is of the delivery", run.Delivery, d)
	c.decide("arriving alone stores nothing", d, eventing.DecideRun)
}

func arriveProcessed[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	d := a.delivery(order("e1", ""))
	w.must(a.succeedRun(a.decide("a new event is run", d, eventing.DecideRun)))
	a.decide("an event that was processed is dropped", d, eventing.DecideAck)
	b.decide("one consumer's inbox is nothing to another", b.delivery(order("e1", "")), eventing.DecideRun)
	a.decide("the inbox tells events apart", a.delivery(order("e2", "")), eventing.DecideRun)
	d.Generation = 1
	a.decide("also a replay of what was processed is dropped", d, eventing.DecideAck)
}

func arriveRetrying[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	d := c.delivery(order("e1", ""))
	w.must(c.failRun(c.decide("a new event is run", d, eventing.DecideRun), eventing.StateRetrying))
	c.decide("a delivery that retries is redelivered from the store only", d, eventing.DecideAck)
	w.clock.Advance(2 * time.Hour)
	c.decide("also when it is due", d, eventing.DecideAck)
}

func arriveDead[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	d := c.delivery(order("e1", ""))
	w.must(c.failRun(c.decide("a new event is run", d, eventing.DecideRun), eventing.StateDead))
	c.decide("a dead delivery is not run by a message without its generation", d, eventing.DecideAck)
	replayed := d
	replayed.Generation = 1
	c.decide("a dead delivery that was not replayed is not run", replayed, eventing.DecideAck)
	w.replay(target("e1", c))
	c.decide("the old message does not run it either", d, eventing.DecideAck)
	run := c.decide("the current replay is run", replayed, eventing.DecideRun)
	w.equal("the replay's history goes on, its budget is fresh", []any{run.Found, run.Attempts, run.PriorAttempts, len(run.History)},
		[]any{eventing.StateDead, 1, 1, 1})
	w.must(c.failRun(run, eventing.StateDead))
	c.decide("a second copy of a replay that failed is dropped", replayed, eventing.DecideAck)
	w.replay(target("e1", c))
	c.decide("a replay of an earlier generation is dropped", replayed, eventing.DecideAck)
	replayed.Generation = 2
	w.must(c.succeedRun(c.decide("the current replay is run", replayed, eventing.DecideRun)))
	c.decide("a second copy of a replay that succeeded is dropped", replayed, eventing.DecideAck)
}

func arriveDiscarded[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	d := c.delivery(order("e1", ""))
	w.must(c.failRun(c.decide("a new event is run", d, eventing.DecideRun), eventing.StateDead))
	w.discard(target("e1", c))
	c.decide("what was discarded is not run", d, eventing.DecideAck)
	d.Generation = 1
	c.decide("also not by a replay that was under way", d, eventing.DecideAck)
}

func arriveBusy[Tx any](w *world[Tx]) {
	c, other := w.consumer("ledger", ordered), w.consumer("audit", ordered)
	keys := samePartition(2)
	for i, state := range []eventing.State{eventing.StateRetrying, eventing.StateDead} {
		first, second := order(string(state)+"1", keys[0]), order(string(state)+"2", keys[0])
		if i == 1 {
			first, second = order(string(state)+"1", keys[1]), order(string(state)+"2", keys[1])
		}
		w.must(c.failRun(c.decide("a new event is run", c.delivery(first), eventing.DecideRun), state))
		c.decide("behind a "+string(state)+" delivery of the key, events are parked", c.delivery(second), eventing.DecidePark)
		c.decide("a parked delivery is redelivered from the store only", c.delivery(second), eventing.DecideAck)
		other.decide("one consumer's gate is nothing to another", other.delivery(second), eventing.DecideRun)
	}
	w.deliveries("parking stores the delivery", 1, 2, 1)
	c.decide("another key is not parked", c.delivery(order("f1", "L")), eventing.DecideRun)
}

// arriveOutOfTurn makes two dead deliveries of a key, as an ordered consumer would not,
// to see that a replay of the second waits for the first.
func arriveOutOfTurn[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	first, second := c.delivery(order("e1", "K")), c.delivery(order("e2", "K"))
	run1 := c.decide("a new event is run", first, eventing.DecideRun)
	run2 := c.decide("a new event is run", second, eventing.DecideRun)
	w.must(c.failRun(run1, eventing.StateDead))
	w.must(c.failRun(run2, eventing.StateDead))
	w.replay(target("e2", c))
	second.Generation, second.OutboxSeq, second.RoutingVersion = 1, 7, "v2"
	c.decide("a dead delivery that is replayed out of turn is parked", second, eventing.DecidePark)
	w.deliveries("it is parked where it is", 0, 1, 1)
	w.discard(target("e1", c))
	runs, err := w.db.Due(w.ctx, eventing.DueRequest{
		Consumer: c.name, Ordered: true, Now: w.clock.Now(), Limit: 10, Leases: w.lease("consumer/ledger", w.holder()),
	})
	w.must(err)
	w.equal("and runs when it is the head", runIDs(runs), list("e2"))
	w.equal("as the replay that it is", []any{runs[0].Generation, runs[0].OutboxSeq, runs[0].RoutingVersion}, []any{1, int64(7), "v2"})
}

func arriveStale[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	first, second := c.delivery(order("e1", "K")), c.delivery(order("e2", "K"))
	w.must(c.failRun(c.decide("a new event is run", first, eventing.DecideRun), eventing.StateDead))
	stale := c.lease(second.Partition)
	w.clock.Advance(leaseTTL)
	w.lease("consumer/ledger", "other")
	_, _, err := w.db.Arrive(w.ctx, second, stale, w.clock.Now())
	w.equal("parking checks the lease's token", errors.Is(err, eventing.ErrLeaseLost), true)
	w.deliveries("under a lost lease nothing is written", 0, 0, 1)
}

func runIDs(runs []eventing.Run) []string {
	ids := list()
	for _, r := range runs {
		ids = append(ids, r.EventID)
	}
	return ids
}
