package eventingtest

import (
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// crashScenario is a story that has the same end wherever its process dies.
type crashScenario[Tx any] struct {
	name string
	must []eventing.FaultPoint // that it has to pass
	run  func(w *world[Tx])
}

// testCrashes runs each story with a crash at each fault point that it passes, as often as it
// passes it or the backend wants.
func testCrashes[Tx any](t *testing.T, b Backend[Tx]) {
	for _, s := range []crashScenario[Tx]{
		{"exactly once", []eventing.FaultPoint{
			eventing.FaultAppended, eventing.FaultClaimed, eventing.FaultPublished, eventing.FaultSettling,
			eventing.FaultArrived, eventing.FaultHandled, eventing.FaultConcluding, eventing.FaultConcluded,
			eventing.FaultFailing, eventing.FaultFailed, eventing.FaultClaimedDue,
		}, crashOnce[Tx]},
		{"the same in one process", []eventing.FaultPoint{
			eventing.FaultPublished, eventing.FaultSettling, eventing.FaultConcluded, eventing.FaultFailed,
		}, func(w *world[Tx]) {
			w.settleByCompletion()
			crashOnce(w)
			for _, id := range []string{"e1", "e2", "e3"} {
				w.outboxStatus("in the end every row is settled", id, "sent")
			}
		}},
		{"critical lane", []eventing.FaultPoint{
			eventing.FaultClaimed, eventing.FaultPublished, eventing.FaultExpediting, eventing.FaultSettling,
		}, crashExpedite[Tx]},
		{"the critical lane in one process", []eventing.FaultPoint{
			eventing.FaultClaimed, eventing.FaultPublished, eventing.FaultExpediting, eventing.FaultSettling,
		}, func(w *world[Tx]) {
			w.settleByCompletion()
			crashExpedite(w)
		}},
		{"dead letter and replay", []eventing.FaultPoint{
			eventing.FaultFailing, eventing.FaultFailed, eventing.FaultReplaying, eventing.FaultConcluding,
		}, crashReplay[Tx]},
		{"fallback", []eventing.FaultPoint{
			eventing.FaultHandled, eventing.FaultConcluding, eventing.FaultFailing, eventing.FaultFailed,
		}, crashExhausted[Tx]},
		{"prepare", []eventing.FaultPoint{
			eventing.FaultPrepared, eventing.FaultHandled, eventing.FaultFailing, eventing.FaultFailed, eventing.FaultClaimedDue,
		}, crashPrepare[Tx]},
		{"gate and replay", []eventing.FaultPoint{
			eventing.FaultParking, eventing.FaultFailing, eventing.FaultFailed, eventing.FaultReplaying,
			eventing.FaultHandled, eventing.FaultConcluding, eventing.FaultConcluded, eventing.FaultClaimedDue,
		}, crashGateReplay[Tx]},
		{"gate and discard", []eventing.FaultPoint{
			eventing.FaultParking, eventing.FaultDiscarding, eventing.FaultClaimedDue,
		}, crashGateDiscard[Tx]},
		{"adoption", []eventing.FaultPoint{eventing.FaultAdopted, eventing.FaultClaimed}, crashAdopt[Tx]},
		{"dispatch failure", []eventing.FaultPoint{
			eventing.FaultDispatchFailing, eventing.FaultDiscarding, eventing.FaultReplaying,
		}, crashDispatch[Tx]},
		{"batch", []eventing.FaultPoint{
			eventing.FaultArrived, eventing.FaultHandled, eventing.FaultConcluding, eventing.FaultConcluded,
			eventing.FaultFailing, eventing.FaultFailed, eventing.FaultClaimedDue,
		}, crashBatch[Tx]},
		{"quarantine", []eventing.FaultPoint{eventing.FaultFailing}, crashQuarantine[Tx]},
		{"schedule", []eventing.FaultPoint{eventing.FaultScheduling, eventing.FaultReplaying}, crashSchedule[Tx]},
		{"force", []eventing.FaultPoint{
			eventing.FaultForcing, eventing.FaultFailing, eventing.FaultReplaying, eventing.FaultHandled, eventing.FaultConcluding,
		}, crashForce[Tx]},
		{"force in order", []eventing.FaultPoint{eventing.FaultForcing, eventing.FaultParking, eventing.FaultClaimedDue}, crashForceOrdered[Tx]},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			crashEverywhere(t, s.must, b.CrashesPerPoint, func(t *testing.T, f *Faults) { s.run(newWorld(t, b, f)) })
		})
	}
}

// sorted returns the effects of a consumer without their order.
func (c *consumer[Tx]) sorted() []string {
	c.w.Helper()
	got := c.effects()
	slices.Sort(got)
	return got
}

// crashOnce has three events, of which one fails at first, at two consumers.
func crashOnce[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", hooked(w)), w.consumer("mail", nil)
	a.fail(errBusy, "e2")
	w.append(orders("", "e1", "e2")...)
	w.append(order("e3", ""))
	w.rest()
	w.equal("wherever the process died, what can be handled is", a.sorted(), list("e1", "e3"))
	a.heal()
	w.clock.Advance(2 * time.Hour)
	w.rest()
	w.equal("wherever the process died, each effect happens exactly once", a.sorted(), list("e1", "e2", "e3"))
	w.equal("wherever the process died, each effect happens exactly once", b.sorted(), list("e1", "e2", "e3"))
	hook := &consumer[Tx]{w: w, name: "hook"}
	w.equal("OnConclude happens exactly once with each conclusion", hook.sorted(), list("e1  1", "e2  2", "e2 retrying 1", "e3  1"))
	w.deliveries("nothing is left in trouble", 0, 0, 0)
	w.equal("everything is in the inbox", w.stats().Inbox, int64(6))
	w.equal("nothing is left in the outbox", w.stats().Outbox["pending"], int64(0))
	w.nothingDead("a crash kills no event")
}

// crashExpedite has a critical event behind a backlog, for an ordered consumer and one
// that is not.
func crashExpedite[Tx any](w *world[Tx]) {
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.behind("c", "e1", "e2")
	w.rest()
	w.equal("wherever the process died, a critical event's effect happens exactly once", loose.sorted(), list("c", "e1", "e2"))
	w.effects("wherever the process died, an ordered consumer gets it in its turn", strict, "e1", "e2", "c")
	w.equal("nothing is left in the outbox", w.stats().Outbox["pending"], int64(0))
	w.nothingDead("a crash kills no event")
}

func crashReplay[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	a.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.status("wherever the process died, the event is dead", target("e1", a), eventing.StatusPending, "")
	w.equal("after one recorded attempt", w.deadLetter(target("e1", a)).AttemptCount, 1)
	w.replay(target("e1", a))
	w.rest()
	w.status("a replay that fails again is pending again", target("e1", a), eventing.StatusPending, "")
	w.equal("after two recorded attempts", w.deadLetter(target("e1", a)).AttemptCount, 2)
	a.heal()
	w.replay(target("e1", a))
	w.rest()
	w.effects("the second replay has its effect exactly once", a, "e1")
	w.effects("the other consumer's effect happened exactly once", b, "e1")
	w.status("success closes", target("e1", a), eventing.StatusClosed, eventing.Resolved)
	w.deliveries("nothing is left in trouble", 0, 0, 0)
}

// crashExhausted has one consumer fall back, and another bury and note.
func crashExhausted[Tx any](w *world[Tx]) {
	a := w.consumer("billing", acting(w, eventing.ActionFallback))
	b := w.consumer("ledger", func(cfg *eventing.ConsumerConfig) {
		acting(w, eventing.ActionDeadLetter, "note")(cfg)
		cfg.Policy.Ordered = true
	})
	a.fail(errHopeless, "e1")
	b.fail(errHopeless, "e1")
	w.append(orders("K", "e1", "e2")...)
	w.rest()
	w.effects("wherever the process died, the fallback has its effect once", named(w, eventing.ActionFallback), "e1")
	w.effects("wherever the process died, the action that goes with a dead letter has its effect once", named(w, "note"), "e1")
	w.effects("the one goes on", a, "e2")
	w.effects("the other waits", b)
	w.status("wherever the process died, there is the dead letter", target("e1", b), eventing.StatusPending, "")
	w.equal("and no other", len(w.graveyard()), 1)
}

// crashGate is the gate with a crash anywhere.
func crashGate[Tx any](w *world[Tx]) *consumer[Tx] {
	w.Helper()
	c := w.consumer("ledger", ordered)
	keys := samePartition(2)
	c.fail(errHopeless, "e2")
	w.append(order("e1", keys[0]), order("e2", keys[0]), order("e3", keys[0]), order("f1", keys[1]),
		order("e4", keys[0]), order("e5", keys[0]))
	w.rest()
	w.effects("wherever the process died, the key waits and other keys flow", c, "e1", "f1")
	w.deliveries("wherever the process died, what waits is parked", 0, 3, 1)
	return c
}

func crashGateReplay[Tx any](w *world[Tx]) {
	c := crashGate(w)
	c.heal()
	w.replay(target("e2", c))
	w.rest()
	w.effects("wherever the process died, the key runs in order, each once", c, "e1", "f1", "e2", "e3", "e4", "e5")
	w.deliveries("the gate is open", 0, 0, 0)
	w.status("success closes", target("e2", c), eventing.StatusClosed, eventing.Resolved)
}

func crashGateDiscard[Tx any](w *world[Tx]) {
	c := crashGate(w)
	w.discard(target("e2", c))
	w.rest()
	w.effects("wherever the process died, the key runs in order without the event", c, "e1", "f1", "e3", "e4", "e5")
	w.deliveries("the gate is open", 0, 0, 0)
	w.status("a discard closes", target("e2", c), eventing.StatusClosed, eventing.Discarded)
}

func crashAdopt[Tx any](w *world[Tx]) {
	a, b, c := threeConsumers(w)
	a.heal()
	b.heal()
	w.replayBySQL("e1")
	w.must(w.db.InsertByHand(w.ctx, "new", "new", "order.placed", []byte(`{"ordering_key":"K","payload":{}}`)))
	w.must(w.db.InsertByHand(w.ctx, "bad", "bad", "order.placed", []byte(`{`)))
	w.rest()
	w.equal("wherever the process died, a consumer that failed handles the event once", a.sorted(), list("e1", "e2", "new"))
	w.effects("wherever the process died, an ordered one in order", b, "e1", "e2", "new")
	w.effects("wherever the process died, the third does not", c, "e1", "e2", "new")
	w.equal("a hand-written row that does not decode is one dead letter", len(w.list(eventing.DeadLetterFilter{OpenOnly: true})), 1)
	w.outboxStatus("and has failed", "bad", "failed")
	w.deliveries("nothing is left in trouble", 0, 0, 0)
}

func crashDispatch[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	keys := samePartition(3)
	w.append(order("e1", keys[0]), order("f1", keys[1]), order("g1", keys[2]), order("e2", keys[0]), order("f2", keys[1]))
	w.broker.refuseEvents("e1", "f1")
	w.rest()
	w.append(order("g2", keys[2])) // if a crash left one of them the last of its topic
	w.rest()
	w.effects("wherever the process died, the keys are held", c, "g1", "g2")
	w.discard(dispatchTarget("e1"))
	w.broker.refuseIf(nil)
	w.replay(dispatchTarget("f1"))
	w.rest()
	got := slices.DeleteFunc(c.effects(), func(id string) bool { return id[0] != 'f' })
	w.equal("after the replay the key goes on in order", got, list("f1", "f2"))
	w.equal("after the discard without the event", c.sorted(), list("e2", "f1", "f2", "g1", "g2"))
	w.equal("nothing is left in the outbox", w.stats().Outbox["pending"], int64(0))
}

func crashQuarantine[Tx any](w *world[Tx]) {
	codec := &learningCodec{}
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) { cfg.Codec = codec })
	id := c.garble("old format: e1")
	w.equal("wherever the process died, undecodable bytes are one dead letter", len(w.graveyard()), 1)
	codec.learn()
	w.replay(target(id, c))
	w.rest()
	w.effects("the replay has its effect exactly once", c, id)
	w.status("success closes", target(id, c), eventing.StatusClosed, eventing.Resolved)
}

func crashSchedule[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	c.heal()
	w.schedule(target("e1", c), time.Hour)
	w.clock.Advance(time.Hour)
	w.replayDue()
	w.equal("wherever the process died, what was due is replayed", w.replayDue(), 0)
	w.rest()
	w.effects("wherever the process died, a scheduled replay happens once", c, "e1")
	w.status("success closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.equal("two acts are recorded", len(w.deadLetter(target("e1", c)).Acts), 2)
}

// crashForce has a forced run fail for now, then for good, and its replay succeed.
func crashForce[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(order("e1", ""))
	w.rest()
	c.fail(errBusy, "e1")
	w.force(target("e1", c))
	w.rest()
	w.deliveries("wherever the process died, a forced run is retried", 1, 0, 0)
	c.fail(errHopeless, "e1")
	w.clock.Advance(time.Hour)
	w.rest()
	w.equal("wherever the process died, there are two recorded attempts", w.deadLetter(target("e1", c)).AttemptCount, 2)
	w.equal("and the event counts as processed", w.stats().Inbox, int64(1))
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	w.effects("wherever the process died, a forced run has its effect once more", c, "e1", "e1")
	w.status("success closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.deliveries("nothing is left in trouble", 0, 0, 0)
}

func crashForceOrdered[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	w.append(order("e1", "K"))
	w.rest()
	c.fail(errBusy, "e2")
	w.append(order("e2", "K"))
	w.rest()
	w.force(target("e1", c))
	w.rest()
	c.heal()
	w.clock.Advance(time.Hour)
	w.rest()
	w.effects("wherever the process died, a forced event runs in its turn", c, "e1", "e2", "e1")
	w.deliveries("nothing is left in trouble", 0, 0, 0)
}

// crashBatch has two batches, in one of which an event fails at first. Of two events it does not
// matter which one comes first: the scenario stays the same.
func crashBatch[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 2, hooked(w))
	c.fail(errBusy, "e002")
	w.append(orders("", ids(4)[2:]...)...)
	w.restTogether(c)
	w.append(orders("", ids(2)...)...)
	w.restTogether(c)
	w.equal("wherever the process died, the others are processed", c.sorted(), list("e000", "e001", "e003"))
	c.heal()
	w.clock.Advance(2 * time.Hour)
	w.restTogether(c)
	w.equal("wherever the process died, each effect happens exactly once", c.sorted(), ids(4))
	hook := &consumer[Tx]{w: w, name: "hook"}
	w.equal("OnConclude happens exactly once with each conclusion", hook.sorted(),
		list("e000  1", "e001  1", "e002  2", "e002 retrying 1", "e003  1"))
	w.equal("everything is in the inbox", w.stats().Inbox, int64(4))
	w.deliveries("nothing is left in trouble", 0, 0, 0)
	w.nothingDead("a crash kills no event")
}
