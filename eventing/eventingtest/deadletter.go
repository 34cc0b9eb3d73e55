package eventingtest

import (
	"errors"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func deadLetterTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"pending, reviewed, replayed, closed":        deadLetterLife[Tx],
		"acts that the state does not allow":         deadLetterRefusals[Tx],
		"what does not exist":                        deadLetterMissing[Tx],
		"a replay that fails again is pending again": deadLetterAgain[Tx],
		"a replay is for its consumer only":          deadLetterTarget[Tx],
		"a replay that fails transiently is retried": deadLetterRetried[Tx],
		"a replay under way can be discarded":        deadLetterDiscardReplayed[Tx],
		"lists are filtered, the oldest first":       deadLetterList[Tx],
		"one event, two consumers, two dead letters": deadLetterTwo[Tx],
	}
}

// die leaves the events dead at a new consumer, the only one.
func die[Tx any](w *world[Tx], ids ...string) *consumer[Tx] {
	w.Helper()
	c := w.consumer("billing", nil)
	c.fail(errHopeless, ids...)
	for _, id := range ids {
		w.append(order(id, ""))
		w.rest()
		w.clock.Advance(time.Second)
	}
	return c
}

func (w *world[Tx]) review(t eventing.Target) {
	w.Helper()
	w.must(w.deadLetters.Review(w.ctx, t, "bob", "looking into it"))
}

func deadLetterLife[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	t := target("e1", c)
	w.status("an event that dies is pending", t, eventing.StatusPending, "")
	w.review(t)
	w.status("then reviewed", t, eventing.StatusReviewed, "")
	c.heal()
	w.replay(t)
	w.status("then replayed", t, eventing.StatusReplayed, "")
	w.equal("a replay raises the generation", w.deadLetter(t).Generation, 1)
	w.rest()
	w.status("then closed", t, eventing.StatusClosed, eventing.Resolved)
	w.effects("the replay's effect happens once", c, "e1")
	var acts []string
	for _, a := range w.deadLetter(t).Acts {
		if a.At.IsZero() {
			w.Error("broken: every act records when")
		}
		acts = append(acts, a.Act+" by "+a.By+": "+a.Note)
	}
	w.equal("every act records who and why", acts, []string{"reviewed by bob: looking into it", "replayed by ann: fixed"})
}

func deadLetterRefusals[Tx any](w *world[Tx]) {
	c := die(w, "e1", "e2", "e3")
	acts := map[string]func(t eventing.Target) error{
		"review":  func(t eventing.Target) error { return w.deadLetters.Review(w.ctx, t, "ann", "") },
		"replay":  func(t eventing.Target) error { return w.deadLetters.Replay(w.ctx, t, "ann", "") },
		"discard": func(t eventing.Target) error { return w.deadLetters.Discard(w.ctx, t, "ann", "obsolete") },
	}
	refused := func(state string, t eventing.Target, names ...string) {
		w.Helper()
		before := w.deadLetter(t)
		for _, name := range names {
			if err := acts[name](t); !errors.Is(err, eventing.ErrState) {
				w.Errorf("broken: a %s dead letter refuses %s with ErrState; got %v", state, name, err)
			}
		}
		w.equal("a refused act changes nothing", w.deadLetter(t), before)
	}
	w.review(target("e1", c))
	refused("reviewed", target("e1", c), "review")
	w.replay(target("e1", c))
	refused("replayed", target("e1", c), "review", "replay")
	c.heal()
	w.rest()
	refused("resolved", target("e1", c), "review", "replay", "discard")
	w.discard(target("e2", c))
	refused("discarded", target("e2", c), "review", "replay", "discard")
	w.review(target("e3", c))
	w.discard(target("e3", c))
	w.status("what is reviewed may be discarded", target("e3", c), eventing.StatusClosed, eventing.Discarded)
	w.rest()
	w.effects("what was discarded does not run", c, "e1")
	w.deliveries("nor has a delivery", 0, 0, 0)
}

func deadLetterMissing[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	for _, t := range []eventing.Target{{EventID: "e2", Consumer: c.name}, {EventID: "e1", Consumer: "mail"}, {EventID: "e1"}} {
		for act, err := range map[string]error{
			"review":  w.deadLetters.Review(w.ctx, t, "ann", ""),
			"replay":  w.deadLetters.Replay(w.ctx, t, "ann", ""),
			"discard": w.deadLetters.Discard(w.ctx, t, "ann", "obsolete"),
		} {
			if !errors.Is(err, eventing.ErrNotFound) {
				w.Errorf("broken: %s of what does not exist is ErrNotFound; got %v", act, err)
			}
		}
	}
	w.status("an act on one dead letter does nothing to another", target("e1", c), eventing.StatusPending, "")
}

func deadLetterAgain[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.rest()
	for range 2 {
		w.clock.Advance(4 * time.Hour)
		w.rest()
	}
	w.equal("the budget of attempts is three", w.deadLetter(target("e1", c)).AttemptCount, 3)
	for generation := 1; generation <= 2; generation++ {
		w.replay(target("e1", c))
		w.rest()
		for range 2 {
			w.status("while its retries last, a replay is under way", target("e1", c), eventing.StatusReplayed, "")
			w.clock.Advance(4 * time.Hour)
			w.rest()
		}
		w.status("a replay that fails again is pending again", target("e1", c), eventing.StatusPending, "")
		dl := w.deadLetter(target("e1", c))
		w.equal("the attempt numbers continue, the budget is fresh", []int{dl.Generation, dl.AttemptCount, len(dl.History)},
			[]int{generation, 3 + 3*generation, 3 + 3*generation})
	}
	w.equal("and so do the acts", len(w.deadLetter(target("e1", c)).Acts), 2)
	for i, a := range w.deadLetter(target("e1", c)).History {
		w.equal("the history goes on", a.Attempt, i+1)
	}
	w.equal("each replay is a row of its own", len(w.statuses("e1")), 3)
}

func (w *world[Tx]) statuses(eventID string) []string {
	w.Helper()
	got, err := w.db.OutboxStatus(w.ctx, eventID)
	w.must(err)
	return got
}

func deadLetterTarget[Tx any](w *world[Tx]) {
	a, b, other := w.consumer("billing", nil), w.consumer("mail", nil), w.consumer("audit", nil)
	a.fail(errHopeless, "e1")
	b.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	a.heal()
	b.heal()
	w.replay(target("e1", a))
	w.rest()
	w.effects("a replay runs at its consumer", a, "e1")
	w.equal("and not at another that failed", b.ran(), list("e1"))
	w.equal("nor at one that has processed it", other.ran(), list("e1"))
	w.status("the other's dead letter stays as it is", target("e1", b), eventing.StatusPending, "")
}

func deadLetterRetried[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	c.fail(errBusy, "e1")
	w.replay(target("e1", c))
	w.rest()
	w.deliveries("a replay that fails transiently is retried", 1, 0, 0)
	c.heal()
	w.restart()
	w.clock.Advance(time.Hour)
	w.rest()
	w.effects("and succeeds in the end", c, "e1")
	w.status("success closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
	w.equal("attempts count on through the replay", c.lastConclusion().Attempts, 3)
}

func deadLetterDiscardReplayed[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	c.heal()
	w.replay(target("e1", c))
	w.dispatch()
	w.discard(target("e1", c))
	w.rest()
	w.effects("a replay that was discarded on its way does not run", c)
	w.status("a discard closes", target("e1", c), eventing.StatusClosed, eventing.Discarded)
}

func deadLetterList[Tx any](w *world[Tx]) {
	c := die(w, "e3", "e1", "e2", "e4")
	w.review(target("e1", c))
	w.discard(target("e4", c))
	ids := func(f eventing.DeadLetterFilter) []string {
		w.Helper()
		out := list()
		for _, dl := range w.list(f) {
			out = append(out, dl.EventID)
		}
		return out
	}
	w.equal("the oldest first", ids(eventing.DeadLetterFilter{}), list("e3", "e1", "e2", "e4"))
	w.equal("by status", ids(eventing.DeadLetterFilter{Status: eventing.StatusReviewed}), list("e1"))
	w.equal("what is open", ids(eventing.DeadLetterFilter{OpenOnly: true}), list("e3", "e1", "e2"))
	w.equal("by event", ids(eventing.DeadLetterFilter{EventID: "e2"}), list("e2"))
	w.equal("by consumer", ids(eventing.DeadLetterFilter{Consumer: "billing", Limit: 2}), list("e3", "e1"))
	w.equal("by another consumer", ids(eventing.DeadLetterFilter{Consumer: "mail"}), list())
	counts := w.stats().DeadLetters
	w.equal("they are counted", []int64{counts["pending"], counts["reviewed"], counts["closed"]}, []int64{2, 1, 1})
}

func deadLetterTwo[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	a.fail(errHopeless, "e1")
	b.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.equal("one consumer's death is not the other's", w.graveyard(), []string{`e1 at "billing": handle REJECTED pending`})
	b.fail(errHopeless, "e1")
	w.clock.Advance(time.Hour)
	w.rest()
	w.equal("each consumer has a dead letter of its own", []int{w.deadLetter(target("e1", a)).AttemptCount, w.deadLetter(target("e1", b)).AttemptCount},
		[]int{1, 2})
	w.discard(target("e1", a))
	w.status("closing one does nothing to the other", target("e1", b), eventing.StatusPending, "")
}
