package eventingtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func operateTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"each act in each state":                         operateTable[Tx],
		"a plan replays what it has seen, once":          operatePlan[Tx],
		"a schedule replays in its time":                 scheduleLife[Tx],
		"a schedule ends with another act":               scheduleEnds[Tx],
		"a schedule is kept until then":                  scheduleKept[Tx],
		"of several processes one replays what is due":   scheduleShared[Tx],
		"what is due for the longest first, and so many": scheduleOrder[Tx],
		"a schedule is in the future":                    scheduleRefused[Tx],
	}
}

// operatorActs are what an operator can do to a dead letter.
func operatorActs[Tx any](w *world[Tx]) map[string]func(t eventing.Target) error {
	d := w.deadLetters
	return map[string]func(t eventing.Target) error{
		"reviewed":    func(t eventing.Target) error { return d.Review(w.ctx, t, "ann", "why") },
		"scheduled":   func(t eventing.Target) error { return d.Schedule(w.ctx, t, w.clock.Now().Add(time.Hour), "ann", "why") },
		"unscheduled": func(t eventing.Target) error { return d.Unschedule(w.ctx, t, "ann", "why") },
		"replayed":    func(t eventing.Target) error { return d.Replay(w.ctx, t, "ann", "why") },
		"forced":      func(t eventing.Target) error { return d.Force(w.ctx, t, "ann", "why") },
		"discarded":   func(t eventing.Target) error { return d.Discard(w.ctx, t, "ann", "why") },
	}
}

// operateTable tries each act on a dead letter in each state.
func operateTable[Tx any](w *world[Tx]) {
	acts := operatorActs(w)
	type state struct {
		name    string
		before  []string          // the acts that lead there
		allowed map[string]string // act → status and resolution after it
	}
	states := []state{
		{"pending", nil, map[string]string{"reviewed": "reviewed", "scheduled": "reviewed", "replayed": "replayed", "discarded": "closed discarded"}},
		{"reviewed", []string{"reviewed"}, map[string]string{"scheduled": "reviewed", "replayed": "replayed", "discarded": "closed discarded"}},
		{"scheduled", []string{"scheduled"}, map[string]string{
			"scheduled": "reviewed", "unscheduled": "reviewed", "replayed": "replayed", "discarded": "closed discarded",
		}},
		{"replayed", []string{"replayed"}, map[string]string{"discarded": "closed discarded"}},
		{"resolved", nil, map[string]string{"forced": "closed resolved"}},
		{"discarded", []string{"discarded"}, nil},
	}
	var ids []string
	for _, s := range states {
		for act := range acts {
			ids = append(ids, s.name+"-"+act)
		}
	}
	slices.Sort(ids)
	c := die(w, ids...)
	c.heal()
	for act := range acts { // those that are resolved first: all that is replayed runs
		w.must(acts["replayed"](target("resolved-"+act, c)))
	}
	w.rest()
	for _, s := range states {
		for act, do := range acts {
			t := target(s.name+"-"+act, c)
			for _, earlier := range s.before {
				w.must(acts[earlier](t))
			}
			before := w.deadLetter(t)
			err := do(t)
			after := w.deadLetter(t)
			want, allowed := s.allowed[act]
			if !allowed {
				w.equal(s.name+" refuses to be "+act, errors.Is(err, eventing.ErrState) || errors.Is(err, eventing.ErrNotFound) && act == "forced", true)
				w.equal("a refused act changes nothing", after, before)
				continue
			}
			w.must(err)
			got := string(after.Status)
			if after.Resolution != "" {
				got += " " + string(after.Resolution)
			}
			w.equal(s.name+" that is "+act, got, want)
			w.equal("an act is recorded after the others: "+t.EventID, len(after.Acts), len(before.Acts)+1)
			last := after.Acts[len(after.Acts)-1]
			w.equal("with what, who, why and when: "+t.EventID, []any{last.Act, last.By, last.Note, last.At.Equal(w.clock.Now())}, []any{act, "ann", "why", true})
			w.equal("only a schedule is scheduled: "+t.EventID, !after.ScheduledAt.IsZero(), act == "scheduled")
			w.equal("an act keeps the dead letter: "+t.EventID, after.ExpiresAt.Before(w.clock.Now().Add(eventing.ActRetention)), false)
		}
	}
}

func operatePlan[Tx any](w *world[Tx]) {
	c := die(w, "e1", "e2")
	t := target("e1", c)
	replay := func(generation int) error {
		return w.deadLetters.ReplayAs(w.ctx, t, eventing.ReplayOptions{By: "ann", Note: "fixed", Plan: "p1", Generation: generation})
	}
	w.equal("a plan that expects another generation replays nothing", errors.Is(replay(1), eventing.ErrChanged), true)
	w.equal("which is no matter of the state", errors.Is(replay(1), eventing.ErrState), false)
	w.status("and changes nothing", t, eventing.StatusPending, "")
	w.must(replay(0))
	w.equal("while it is replayed, the state says so", errors.Is(replay(0), eventing.ErrState), true)
	w.rest()
	w.status("the replay has failed again", t, eventing.StatusPending, "")
	w.equal("a plan that is resumed does not replay it again", errors.Is(replay(0), eventing.ErrChanged), true)
	acts := w.deadLetter(t).Acts
	w.equal("the act says of which plan it is part", []any{len(acts), acts[0].Plan, acts[0].Act}, []any{1, "p1", "replayed"})
	w.equal("it ran once more", c.ran(), list("e1", "e2", "e1"))
}

// due replays what is scheduled until now.
func (w *world[Tx]) replayDue() (n int) {
	w.Helper()
	w.try(func() (err error) {
		n, err = w.db.ReplayScheduled(w.ctx, w.clock.Now(), 10)
		return err
	})
	return n
}

func (w *world[Tx]) schedule(t eventing.Target, in time.Duration) {
	w.Helper()
	at := w.clock.Now().Add(in)
	w.try(func() error { return w.deadLetters.Schedule(w.ctx, t, at, "ann", "the bank opens then") })
}

func scheduleLife[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	t := target("e1", c)
	c.heal()
	at := w.clock.Now().Add(time.Hour)
	w.schedule(t, time.Hour)
	w.status("what is scheduled is reviewed", t, eventing.StatusReviewed, "")
	w.equal("for its time", w.deadLetter(t).ScheduledAt.Equal(at), true)
	w.clock.Advance(time.Hour - time.Second)
	w.equal("nothing is due before its time", w.replayDue(), 0)
	w.rest()
	w.effects("nothing runs before its time", c)
	w.clock.Advance(time.Second)
	w.equal("in its time it is replayed", w.replayDue(), 1)
	w.equal("once", w.replayDue(), 0)
	w.status("it is replayed then", t, eventing.StatusReplayed, "")
	w.rest()
	w.effects("its effect happens once", c, "e1")
	w.status("success closes", t, eventing.StatusClosed, eventing.Resolved)
	acts := w.deadLetter(t).Acts
	w.equal("each act is recorded", []any{len(acts), acts[0].Act, acts[0].By, acts[0].DueAt.Equal(at), acts[1].Act, acts[1].By},
		[]any{2, "scheduled", "ann", true, "replayed", "scheduler"})
}

func scheduleEnds[Tx any](w *world[Tx]) {
	c := die(w, "e1", "e2", "e3", "e4")
	for _, id := range []string{"e1", "e2", "e3", "e4"} {
		w.schedule(target(id, c), time.Minute)
	}
	w.must(w.deadLetters.Unschedule(w.ctx, target("e1", c), "ann", ""))
	w.replay(target("e2", c))
	w.rest() // it fails again
	w.discard(target("e3", c))
	w.schedule(target("e4", c), time.Hour)
	c.heal()
	w.clock.Advance(30 * time.Minute)
	w.equal("an act ends a schedule, another schedule moves it", w.replayDue(), 0)
	w.status("what is taken back stays reviewed", target("e1", c), eventing.StatusReviewed, "")
	w.status("what has died again is pending", target("e2", c), eventing.StatusPending, "")
	w.clock.Advance(time.Hour)
	w.equal("the one that was moved comes later", w.replayDue(), 1)
	w.rest()
	w.effects("and runs", c, "e4")
}

func scheduleKept[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	c.heal()
	w.schedule(target("e1", c), 300*24*time.Hour)
	w.clock.Advance(301 * 24 * time.Hour)
	_, err := w.db.Prune(w.ctx, eventing.PruneRequest{Now: w.clock.Now(), SentBefore: w.clock.Now(), Limit: 100})
	w.must(err)
	w.equal("what is scheduled does not expire before", w.replayDue(), 1)
	w.rest()
	w.effects("and runs", c, "e1")
}

func scheduleShared[Tx any](w *world[Tx]) {
	ids := []string{"e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"}
	c := die(w, ids...)
	c.heal()
	for _, id := range ids {
		w.schedule(target(id, c), time.Minute)
	}
	w.clock.Advance(time.Hour)
	type result struct {
		n   int
		err error
	}
	const processes = 4
	results := make(chan result, processes)
	for range processes {
		go func(ctx context.Context) {
			n, err := w.db.ReplayScheduled(ctx, w.clock.Now(), 100)
			results <- result{n, err}
		}(w.ctx)
	}
	total := 0
	for range processes {
		r := <-results
		w.must(r.err)
		total += r.n
	}
	w.equal("however many look at once, each is replayed once", total, len(ids))
	w.rest()
	w.equal("and runs once", c.sorted(), ids)
}

func scheduleOrder[Tx any](w *world[Tx]) {
	c := die(w, "e1", "e2", "e3")
	c.heal()
	for i, id := range []string{"e2", "e3", "e1"} {
		w.schedule(target(id, c), time.Duration(i+1)*time.Minute)
	}
	w.clock.Advance(time.Hour)
	n, err := w.db.ReplayScheduled(w.ctx, w.clock.Now(), 2)
	w.must(err)
	w.equal("as many as are asked for", n, 2)
	w.rest()
	w.effects("those that are due for the longest come first", c, "e2", "e3", "e1")
}

func scheduleRefused[Tx any](w *world[Tx]) {
	c := die(w, "e1")
	for _, at := range []time.Time{{}, w.clock.Now(), w.clock.Now().Add(-time.Hour), w.clock.Now().Add(10 * 366 * 24 * time.Hour)} {
		if err := w.deadLetters.Schedule(w.ctx, target("e1", c), at, "ann", ""); err == nil {
			w.Errorf("broken: a replay is scheduled within a year from now; %v is not", at)
		}
	}
	w.status("what is refused changes nothing", target("e1", c), eventing.StatusPending, "")
}
