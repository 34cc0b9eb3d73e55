package eventingtest

import (
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func gateTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"a dead event parks what follows of its key":  func(w *world[Tx]) { closeGate(w) },
		"after a replay all run in order":             gateReplay[Tx],
		"after a discard the others run in order":     gateDiscard[Tx],
		"a retrying event parks what follows":         gateRetry[Tx],
		"a replay that fails again closes it again":   gateReplayFails[Tx],
		"one that dies while released stops the rest": gateSecondDeath[Tx],
		"new arrivals line up behind":                 gateNewcomers[Tx],
		"one of each partition, keys apart":           gateKeys[Tx],
		"events without a key are in order with none": gateNoKey[Tx],
	}
}

// closeGate has the second of five events of a key fail for good, at an ordered
// consumer, while another key's events flow.
func closeGate[Tx any](w *world[Tx]) *consumer[Tx] {
	w.Helper()
	c := w.consumer("ledger", ordered)
	keys := samePartition(2)
	c.fail(errHopeless, "e2")
	w.append(order("e1", keys[0]), order("e2", keys[0]), order("f1", keys[1]),
		order("e3", keys[0]), order("e4", keys[0]), order("f2", keys[1]), order("e5", keys[0]))
	w.rest()
	w.effects("behind an event that died its key waits, other keys flow", c, "e1", "f1", "f2")
	w.deliveries("what waits is parked", 0, 3, 1)
	w.equal("a dead letter tells how many wait behind it", w.deadLetter(target("e2", c)).ParkedBehind, 3)
	w.clock.Advance(100 * time.Hour)
	w.rest()
	w.effects("a closed gate does not open by itself", c, "e1", "f1", "f2")
	return c
}

func gateReplay[Tx any](w *world[Tx]) {
	c := closeGate(w)
	c.heal()
	w.replay(target("e2", c))
	w.rest()
	w.effects("after the replay the key goes on in order", c, "e1", "f1", "f2", "e2", "e3", "e4", "e5")
	w.deliveries("the gate opens with the last", 0, 0, 0)
	w.append(order("e6", "K"))
	w.rest()
	w.effects("an open gate is open", c, "e1", "f1", "f2", "e2", "e3", "e4", "e5", "e6")
	w.equal("each ran once more than it failed", len(c.ran()), 9)
}

func gateDiscard[Tx any](w *world[Tx]) {
	c := closeGate(w)
	w.discard(target("e2", c))
	w.rest()
	w.effects("after the discard the key goes on without the event", c, "e1", "f1", "f2", "e3", "e4", "e5")
	w.deliveries("the gate opens with the last", 0, 0, 0)
}

func gateRetry[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	c.fail(errBusy, "e2")
	w.append(orders("K", "e1", "e2", "e3")...)
	w.rest()
	w.effects("behind an event that retries its key waits", c, "e1")
	w.deliveries("what waits is parked", 1, 1, 0)
	c.heal()
	w.clock.Advance(time.Hour)
	w.rest()
	w.effects("after the retry the key goes on in order", c, "e1", "e2", "e3")
}

func gateReplayFails[Tx any](w *world[Tx]) {
	c := closeGate(w)
	w.replay(target("e2", c))
	w.rest()
	w.effects("a replay that fails again releases nothing", c, "e1", "f1", "f2")
	w.deliveries("the gate is closed as before", 0, 3, 1)
	c.fail(errBusy, "e2")
	w.replay(target("e2", c))
	w.rest()
	w.deliveries("a replay that fails transiently is retried", 1, 3, 0)
	c.heal()
	w.clock.Advance(time.Hour)
	w.rest()
	w.effects("it keeps its place", c, "e1", "f1", "f2", "e2", "e3", "e4", "e5")
}

func gateSecondDeath[Tx any](w *world[Tx]) {
	c := closeGate(w)
	c.heal()
	c.fail(errHopeless, "e4")
	w.replay(target("e2", c))
	w.rest()
	w.effects("an event that dies while the key is released stops the rest", c, "e1", "f1", "f2", "e2", "e3")
	w.deliveries("the rest waits", 0, 1, 1)
	w.discard(target("e4", c))
	w.rest()
	w.effects("and goes on without it", c, "e1", "f1", "f2", "e2", "e3", "e5")
}

// gateNewcomers steps through the release, an event arriving at each step.
func gateNewcomers[Tx any](w *world[Tx]) {
	c := closeGate(w)
	c.heal()
	w.replay(target("e2", c))
	for _, id := range []string{"n1", "n2", "n3"} {
		w.append(order(id, "K"))
		w.dispatch()
		w.deliver()
		_, err := c.engine.RedeliverOnce(w.ctx)
		w.must(err)
	}
	w.rest()
	w.effects("an event that arrives during the release lines up behind", c,
		"e1", "f1", "f2", "e2", "e3", "e4", "e5", "n1", "n2", "n3")
}

func gateKeys[Tx any](w *world[Tx]) {
	c, loose := w.consumer("ledger", ordered), w.consumer("billing", nil)
	c.fail(errHopeless, "a1", "b1")
	loose.fail(errHopeless, "a1", "b1")
	w.append(order("a1", "A"), order("b1", "B"), order("a2", "A"), order("b2", "B"))
	w.rest()
	w.effects("for an unordered consumer nothing waits", loose, "a2", "b2")
	w.deliveries("each key has a gate of its own", 0, 2, 4)
	c.heal()
	w.replay(target("a1", c))
	w.rest()
	w.effects("opening one key's gate opens no other's", c, "a1", "a2")
	w.equal("a replay is for one consumer", loose.ran(), list("a1", "b1", "a2", "b2"))
}

func gateNoKey[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""), order("e2", ""))
	w.rest()
	w.effects("events without a key are in order with none", c, "e2")
	c.heal()
	w.replay(eventing.Target{EventID: "e1", Consumer: "ledger"})
	w.rest()
	w.effects("and are replayed like others", c, "e2", "e1")
}
