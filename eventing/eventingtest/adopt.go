package eventingtest

import (
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// What people write into event_outbox by hand.
func adoptTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"the replay statement runs where it failed":        adoptReplay[Tx],
		"and again, if it fails again":                     adoptReplayAgain[Tx],
		"with none open it runs nothing":                   adoptNoneOpen[Tx],
		"what was closed stays closed":                     adoptClosed[Tx],
		"before adoption its id is taken":                  adoptIDTaken[Tx],
		"reviewed and replayed ones are open too":          adoptOpenStates[Tx],
		"retrying and parked deliveries are left alone":    adoptInTrouble[Tx],
		"two dispatchers at once run nothing twice":        adoptTwice[Tx],
		"a new event is completed":                         adoptNew[Tx],
		"a payload that does not decode is a dead letter":  adoptMalformed[Tx],
		"bytes that are not UTF-8 are a dead letter":       adoptBinary[Tx],
		"an envelope that contradicts its row":             adoptContradiction[Tx],
		"the replay statement works on quarantined events": adoptUndecodable[Tx],
	}
}

// threeConsumers has e1 fail for good at two of three.
func threeConsumers[Tx any](w *world[Tx]) (a, b, c *consumer[Tx]) {
	w.Helper()
	a, b, c = w.consumer("billing", nil), w.consumer("ledger", ordered), w.consumer("mail", nil)
	a.fail(errHopeless, "e1")
	b.fail(errHopeless, "e1")
	w.append(order("e1", "K"), order("e2", "K"))
	w.rest()
	w.effects("one consumer's failure is nothing to another", a, "e2")
	w.effects("the ordered one waits", b)
	w.effects("the third has both", c, "e1", "e2")
	return a, b, c
}

func adoptReplay[Tx any](w *world[Tx]) {
	a, b, c := threeConsumers(w)
	a.heal()
	b.heal()
	w.replayBySQL("e1")
	w.rest()
	w.effects("the replay statement has each consumer that failed handle the event, once", a, "e2", "e1")
	w.effects("the replay statement has each consumer that failed handle the event, once", b, "e1", "e2")
	w.effects("and no other", c, "e1", "e2")
	w.equal("and no other even sees it", c.ran(), list("e1", "e2"))
	w.status("success closes, also after plain SQL", target("e1", a), eventing.StatusClosed, eventing.Resolved)
	w.status("success closes, also after plain SQL", target("e1", b), eventing.StatusClosed, eventing.Resolved)
	w.deliveries("nothing is in trouble any more", 0, 0, 0)
}

func adoptReplayAgain[Tx any](w *world[Tx]) {
	a, b, c := threeConsumers(w)
	a.heal()
	w.replayBySQL("e1")
	w.rest()
	w.effects("the consumer that is mended handles it", a, "e2", "e1")
	w.status("at the other it failed again", target("e1", b), eventing.StatusPending, "")
	w.equal("its generation went up", w.deadLetter(target("e1", b)).Generation, 1)
	b.heal()
	w.replayBySQL("e1")
	w.rest()
	w.effects("the same statement works again for the one that failed again", b, "e1", "e2")
	w.equal("and runs nothing elsewhere", [][]string{a.ran(), c.ran()}, [][]string{{"e1", "e2", "e1"}, {"e1", "e2"}})
}

func adoptNoneOpen[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	w.discard(target("e1", c))
	c.heal()
	for range 2 {
		w.replayBySQL("e1")
		w.rest()
		w.effects("with no dead letter open, the statement is accepted and runs nothing", c)
	}
	statuses := w.statuses("e1")
	w.equal("its rows are settled, and the id is free for the next time", statuses[len(statuses)-2:], []string{"sent", "sent"})
	n, err := w.db.ReplayBySQL(w.ctx, "never seen")
	w.must(err)
	w.equal("for an event that never died the statement inserts nothing", n, 0)
}

func adoptClosed[Tx any](w *world[Tx]) {
	a, b, _ := threeConsumers(w)
	w.discard(target("e1", a))
	a.heal()
	b.heal()
	w.replayBySQL("e1")
	w.rest()
	w.effects("what was given up at one consumer does not run there", a, "e2")
	w.status("nor is it open again", target("e1", a), eventing.StatusClosed, eventing.Discarded)
	w.effects("and runs where it is open", b, "e1", "e2")
}

func adoptIDTaken[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	c.heal()
	w.replayBySQL("e1")
	if _, err := w.db.ReplayBySQL(w.ctx, "e1"); err == nil {
		w.Error("broken: before the adoption the statement fails on the unique id when it is run again")
	}
	w.rest()
	w.effects("a statement that failed changes nothing", c, "e1")
	w.equal("one replay", c.ran(), list("e1", "e1"))
}

func adoptOpenStates[Tx any](w *world[Tx]) {
	c := die(w, "e1", "e2")
	w.review(target("e1", c))
	w.replay(target("e2", c))
	w.dispatch()
	w.broker.lose() // the replay is lost on its way
	c.heal()
	w.replayBySQL("e1")
	w.replayBySQL("e2")
	w.rest()
	w.effects("what is reviewed is replayed, and what was replayed and lost is replayed again", c, "e1", "e2")
	w.equal("with the next generation", w.deadLetter(target("e2", c)).Generation, 2)
}

// adoptInTrouble runs the statement while one consumer's delivery is dead, another's
// retries after a replay, and a third's is parked.
func adoptInTrouble[Tx any](w *world[Tx]) {
	dead, retrying, parked := w.consumer("billing", nil), w.consumer("mail", nil), w.consumer("ledger", ordered)
	dead.fail(errHopeless, "e2")
	retrying.fail(errHopeless, "e2")
	parked.fail(errHopeless, "e1")
	w.append(orders("K", "e1", "e2")...)
	w.rest()
	retrying.fail(errBusy, "e2")
	w.replay(target("e2", retrying))
	w.rest()
	w.deliveries("one of each", 1, 1, 2)
	dead.heal()
	w.replayBySQL("e2")
	w.rest()
	w.effects("the statement replays the dead delivery", dead, "e1", "e2")
	w.deliveries("and leaves retrying and parked ones alone", 1, 1, 1)
	w.equal("they have not run", [][]string{retrying.ran(), parked.ran()}, [][]string{{"e1", "e2", "e2"}, {"e1"}})
	w.equal("nor has their generation changed", w.deadLetter(target("e2", retrying)).Generation, 1)
}

func adoptTwice[Tx any](w *world[Tx]) {
	ids := []string{"e1", "e2", "e3", "e4", "e5", "e6"}
	c := die(w, ids...)
	c.heal()
	for _, id := range ids {
		w.replayBySQL(id)
	}
	w.must(w.db.InsertByHand(w.ctx, "new", "new", "order.placed", []byte(`{"payload":{"number":"new"}}`)))
	var dispatchers sync.WaitGroup
	for _, holder := range []string{"a", "b", "c"} {
		d := w.newDispatcher(holder)
		dispatchers.Go(func() {
			for range 5 {
				if _, err := d.DispatchOnce(w.ctx); err != nil {
					w.Errorf("dispatch: %v", err)
				}
			}
		})
	}
	dispatchers.Wait()
	w.restart() // only one of the three has the leases; let another take over
	w.rest()
	for _, id := range ids {
		w.equal("a row is adopted once", w.deadLetter(target(id, c)).Generation, 1)
	}
	w.equal("two dispatchers that adopt at once run nothing twice", len(c.ran()), 2*len(ids)+1)
	w.equal("and lose nothing", len(c.effects()), len(ids)+1)
}

func adoptNew[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	before := time.Now()
	w.must(w.db.InsertByHand(w.ctx, "row-1", "e1", "order.placed", []byte(`{"tenant_id":"t","ordering_key":"K","payload":{"number":"1"}}`)))
	w.rest()
	w.effects("a hand-written event is handled", c, "e1")
	e := c.lastEnvelope()
	w.equal("what its envelope leaves out is completed", []any{e.ID, e.Type, e.CorrelationID, e.TenantID, e.SchemaVersion, e.OrderKey(), string(e.Payload)},
		[]any{"e1", "order.placed", "e1", "t", 1, "K", `{"number":"1"}`})
	if age := e.OccurredAt.Sub(before).Abs(); age > time.Hour {
		w.Errorf("broken: a hand-written event occurred when its row was made; it says %v", e.OccurredAt)
	}
	w.outboxStatus("its row is settled like any other", "e1", "sent")
	w.rest()
	w.equal("it is handled once", c.ran(), list("e1"))
}

// malformed checks that a hand-written row has become a dead letter of bytes that do
// not decode, and that it holds up nothing.
func malformed[Tx any](w *world[Tx], payload []byte) eventing.Target {
	w.Helper()
	c := w.consumer("billing", nil)
	w.must(w.db.InsertByHand(w.ctx, "bad", "bad", "order.placed", payload))
	w.append(order("good", ""))
	w.rest()
	w.effects("a hand-written row that does not decode holds up no other", c, "good")
	w.outboxStatus("a hand-written row that does not decode has failed", "bad", "failed")
	id, kept := eventing.Undecodable(payload)
	dl := w.deadLetter(eventing.Target{EventID: id})
	w.equal("it is a dead letter of stage decode", []any{dl.Stage, dl.Reason, dl.Status, string(dl.Payload)},
		[]any{eventing.StageDecode, eventing.ReasonEnvelopeMalformed, eventing.StatusPending, string(kept)})
	return eventing.Target{EventID: id}
}

func adoptMalformed[Tx any](w *world[Tx]) {
	t := malformed(w, []byte(`{"payload":`))
	w.rest()
	w.equal("the row is adopted once", len(w.graveyard()), 1)
	w.discard(t)
	w.status("its dead letter can be discarded", t, eventing.StatusClosed, eventing.Discarded)
}

func adoptBinary[Tx any](w *world[Tx]) {
	if !w.caps.BinaryPayload {
		err := w.db.InsertByHand(w.ctx, "bad", "bad", "order.placed", []byte("{\"payload\":\"\xff\xfe\"}"))
		w.equal("a column that takes no such bytes refuses them", err != nil, true)
		return
	}
	malformed(w, []byte("{\"payload\":\"\xff\xfe\"}"))
}

func adoptContradiction[Tx any](w *world[Tx]) {
	malformed(w, []byte(`{"event_id":"another","event_type":"order.placed","payload":1}`))
}

// adoptUndecodable replays, by the statement, bytes that a consumer has quarantined and
// has since learnt to decode.
func adoptUndecodable[Tx any](w *world[Tx]) {
	codec := &learningCodec{}
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) { cfg.Codec = codec })
	id := c.garble("old format: e1")
	codec.learn()
	w.replayBySQL(id)
	w.rest()
	w.effects("bytes that decode now are handled, under the id of their dead letter", c, id)
	w.status("success closes", target(id, c), eventing.StatusClosed, eventing.Resolved)
	if !strings.HasPrefix(string(c.lastEnvelope().Payload), "{") {
		w.Error("broken: the handler gets the decoded payload")
	}
}
