package eventingtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func auditTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"what the broker lost is named, and nothing else": auditLost[Tx],
		"each standing":                                    auditStandings[Tx],
		"only the consumer that it is lost to":             auditOneOfTwo[Tx],
		"what it names can be sent again, once":            auditRequeue[Tx],
		"a replay that is lost":                            auditReplay[Tx],
		"a consumer without a store":                       auditUntracked[Tx],
		"an event that could not be sent":                  auditUndispatched[Tx],
		"a hand-written row of which nothing came":         auditAside[Tx],
		"a list of IDs":                                    auditList[Tx],
		"a time narrows it":                                auditTime[Tx],
		"more than a batch":                                auditBatches[Tx],
		"an event that moves is not missing":               auditMoving[Tx],
		"what is known of an event is seen at one moment":  auditMoment[Tx],
		"one that is pruned meanwhile is not missing":      auditPruned[Tx],
		"one that is sent again meanwhile is not missing":  auditRequeued[Tx],
		"one that is appended again is not missing either": auditTwin[Tx],
		"an ID that is accepted meanwhile is not unknown":  auditAccepted[Tx],
		"an error of its caller ends it":                   auditEnds[Tx],
	}
}

// watched is a store on which something happens before its tables are read.
type watched[Tx any] struct {
	Database[Tx]
	before func(read string)
}

func (s watched[Tx]) AuditPage(ctx context.Context, after int64, limit int) ([]eventing.AuditRow, error) {
	s.before("page")
	return s.Database.AuditPage(ctx, after, limit)
}

func (s watched[Tx]) AuditEvents(ctx context.Context, eventIDs []string) ([]eventing.AuditRow, error) {
	s.before("events")
	return s.Database.AuditEvents(ctx, eventIDs)
}

func (s watched[Tx]) AuditDeliveries(ctx context.Context, eventIDs []string) (map[eventing.Target]eventing.AuditDelivery, error) {
	s.before("deliveries")
	return s.Database.AuditDeliveries(ctx, eventIDs)
}

// auditing is an audit of the world, in which something may happen before what number of
// which read.
type auditing struct {
	cfg       eventing.AuditConfig
	read      string
	meanwhile func()
}

// audit returns the report, and the findings as "ID standing consumer".
func (w *world[Tx]) audit(a auditing) (eventing.AuditReport, []string) {
	w.Helper()
	once := a.meanwhile
	store := watched[Tx]{w.db, func(read string) {
		if read == a.read && once != nil {
			once()
			once = nil
		}
	}}
	a.cfg.Outbox, a.cfg.Stores, a.cfg.Now = store, []eventing.AuditStore{store}, w.clock.Now
	if a.cfg.Routes == nil {
		a.cfg.Routes = routes[Tx]{w}
	}
	found := list()
	report, err := eventing.Audit(w.ctx, a.cfg, func(f eventing.AuditFinding) error {
		found = append(found, fmt.Sprintf("%s %s %s", f.EventID, f.Standing, f.Consumer))
		return nil
	})
	w.must(err)
	w.equal("it is clean if nothing is found", report.Clean(), len(found) == 0)
	w.equal("findings are counted", report.Missing+report.Unknown, len(found))
	if a.meanwhile != nil {
		w.equal("something happened meanwhile", once == nil, true)
	}
	return report, found
}

// counts are those of a consumer in a report.
type counts = map[eventing.Standing]int

const grace = time.Minute // the default

func auditLost[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	for i, id := range []string{"e1", "e2", "e3", "e4", "e5", "e6"} {
		w.append(order(id, ""))
		w.dispatch()
		if i%2 == 1 {
			w.broker.lose()
		}
		w.rest()
	}
	w.effects("the broker has lost some", c, "e1", "e3", "e5")
	report, found := w.audit(auditing{})
	w.equal("what is on its way for less than the grace is not missing", found, list())
	w.equal("but in flight", report.Consumers["billing"], counts{eventing.StandingProcessed: 3, eventing.StandingInFlight: 3})
	w.clock.Advance(grace - time.Millisecond)
	_, found = w.audit(auditing{})
	w.equal("until the grace has passed", found, list())
	w.clock.Advance(time.Millisecond)
	report, found = w.audit(auditing{})
	w.equal("what the broker lost is named, in the order of appending", found, list("e2 missing billing", "e4 missing billing", "e6 missing billing"))
	w.equal("and counted", report.Consumers["billing"], counts{eventing.StandingProcessed: 3, eventing.StandingMissing: 3})
	w.equal("as is all that was looked at", report.Rows, 6)
	w.equal("it says how far back it reaches", report.OldestSent.Equal(w.clock.Now().Add(-grace)), true)
	_, found = w.audit(auditing{cfg: eventing.AuditConfig{Grace: time.Hour}})
	w.equal("the grace can be longer", found, list())
}

// auditStandings has one event of each standing.
func auditStandings[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	c.fail(errHopeless, "dead", "given up")
	c.fail(errBusy, "retrying")
	w.append(order("done", "A"), order("dead", "B"), order("parked", "B"), order("retrying", "C"), order("given up", "D"))
	w.rest()
	w.discard(target("given up", c))
	nowhere := order("nowhere", "E")
	nowhere.Type = "order.archived"
	w.append(nowhere, order("lost", "E"))
	w.dispatch()
	w.broker.lose()
	w.clock.Advance(grace)
	w.append(order("in flight", "F"))
	w.dispatch()
	w.append(order("pending", "G"))
	w.must(w.db.InsertByHand(w.ctx, "hand", "hand", "order.placed", []byte(`{"payload":1}`)))
	report, found := w.audit(auditing{})
	w.equal("only what is lost is named", found, list("lost missing ledger"))
	w.equal("each event is accounted for", report.Consumers, map[string]map[eventing.Standing]int{
		"ledger": {
			eventing.StandingProcessed: 1, eventing.StandingDead: 1, eventing.StandingParked: 1, eventing.StandingRetrying: 1, eventing.StandingDiscarded: 1,
			eventing.StandingMissing: 1, eventing.StandingInFlight: 1, eventing.StandingPending: 2,
		},
		"": {eventing.StandingUntracked: 1},
	})
	w.equal("all rows are looked at", report.Rows, 10)
}

func auditOneOfTwo[Tx any](w *world[Tx]) {
	a, b := w.consumer("ledger", ordered), w.consumer("billing", nil)
	w.append(orders("K", "e1", "e2")...)
	w.dispatch()
	w.deliver(b)
	w.broker.lose()
	w.append(order("e3", "K"))
	w.rest()
	w.effects("the broker has lost what was for one of them", a, "e3")
	w.effects("and not what was for the other", b, "e1", "e2", "e3")
	w.clock.Advance(grace)
	report, found := w.audit(auditing{})
	w.equal("an event is named for the consumer that does not have it", found, list("e1 missing ledger", "e2 missing ledger"))
	w.equal("and for no other", report.Consumers["billing"], counts{eventing.StandingProcessed: 3})
	w.requeue(eventing.RequeueFilter{EventIDs: []string{"e2", "e1"}}, false)
	w.rest()
	w.effects("sent again, they come in their order", a, "e3", "e1", "e2")
	w.effects("and only where they were missing", b, "e1", "e2", "e3")
}

func auditRequeue[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(orders("", "e1", "e2")...)
	w.rest()
	w.append(orders("", "e3", "e4", "e5")...)
	w.dispatch()
	w.broker.lose()
	w.clock.Advance(grace)
	var lost []string
	_, err := eventing.Audit(w.ctx, eventing.AuditConfig{Outbox: w.db, Stores: []eventing.AuditStore{w.db}, Routes: routes[Tx]{w}, Now: w.clock.Now},
		func(f eventing.AuditFinding) error { lost = append(lost, f.EventID); return nil })
	w.must(err)
	w.equal("what it names can be sent again", w.requeue(eventing.RequeueFilter{EventIDs: lost}, false), 3)
	_, found := w.audit(auditing{})
	w.equal("and is not missing any more", found, list())
	w.rest()
	w.effects("then it is handled, once", c, "e1", "e2", "e3", "e4", "e5")
	report, found := w.audit(auditing{})
	w.equal("and the audit is clean", found, list())
	w.equal("and the audit is clean", report.Consumers["billing"], counts{eventing.StandingProcessed: 5})
}

func auditReplay[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.consumer("mail", nil)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	c.heal()
	w.replay(target("e1", c))
	_, found := w.audit(auditing{})
	w.equal("a replay is pending", found, list())
	w.dispatch()
	w.broker.lose()
	report, found := w.audit(auditing{})
	w.equal("and then in flight", found, list())
	w.equal("beside the row of its event", report.Consumers["billing"], counts{eventing.StandingDead: 1, eventing.StandingInFlight: 1})
	w.clock.Advance(grace)
	_, found = w.audit(auditing{})
	w.equal("a dead letter does not account for a replay that is lost", found, list("e1 missing billing"))
	w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1"}}, false)
	w.rest()
	w.effects("it can be sent again", c, "e1")
	report, found = w.audit(auditing{})
	w.equal("and is accounted for", found, list())
	w.equal("a replay concerns its consumer only", report.Consumers["mail"], counts{eventing.StandingProcessed: 1})
	w.status("and closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
}

// nobody is a routing table without consumers.
type nobody struct{}

func (nobody) Route(string) (to []eventing.Route, routed bool)    { return nil, true }
func (nobody) Consumer(string) (route eventing.Route, known bool) { return eventing.Route{}, false }

func auditUntracked[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errHopeless, "e1")
	w.append(orders("", "e1", "e2")...)
	w.rest()
	w.replay(target("e1", c))
	w.dispatch()
	w.broker.lose()
	w.clock.Advance(grace)
	report, found := w.audit(auditing{cfg: eventing.AuditConfig{Routes: nobody{}}})
	w.equal("what is for no consumer of the table is not missing", found, list())
	w.equal("but untracked", report.Consumers, map[string]map[eventing.Standing]int{
		"":        {eventing.StandingUntracked: 2},
		"billing": {eventing.StandingUntracked: 1},
	})
}

func auditUndispatched[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	w.append(orders("", "big", "vast", "small")...)
	w.broker.refuseEvents("big", "vast")
	w.rest()
	w.clock.Advance(grace)
	report, _ := w.audit(auditing{})
	w.equal("an event that could not be sent is dead", report.Consumers["billing"], counts{eventing.StandingDead: 2, eventing.StandingProcessed: 1})
	w.discard(dispatchTarget("vast"))
	w.broker.refuseIf(nil)
	w.replay(dispatchTarget("big"))
	w.dispatch()
	w.broker.lose()
	w.clock.Advance(grace)
	report, found := w.audit(auditing{})
	w.equal("its replay can be lost", found, list("big missing billing"))
	w.equal("and its discard accounts for it", report.Consumers["billing"], counts{eventing.StandingMissing: 1, eventing.StandingDiscarded: 1, eventing.StandingProcessed: 1})
	w.equal("the replay can be sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"big"}}, false), 1)
	w.rest()
	_, found = w.audit(auditing{})
	w.equal("and is accounted for", found, list())
}

func auditAside[Tx any](w *world[Tx]) {
	c := w.consumer("billing", keeping)
	w.consumer("mail", keeping)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	w.later(2 * inboxRetention) // the rows of the event go, and not its dead letter
	w.replayBySQL("e1")
	w.rest()
	w.clock.Advance(grace)
	report, found := w.audit(auditing{})
	w.equal("a row that was settled unsent is not missing", found, list())
	w.equal("nor counted", report.Rows, 0)
	w.equal("nor sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1"}}, false), 0)
}

func auditList[Tx any](w *world[Tx]) {
	c := w.consumer("billing", keeping)
	c.fail(errHopeless, "dead")
	w.append(orders("", "done", "dead")...)
	w.rest()
	w.append(orders("", "lost", "lost, too")...)
	w.dispatch()
	w.broker.lose()
	w.must(w.db.Succeed(w.ctx, eventing.Success{
		Run: eventing.Run{Delivery: eventing.Delivery{Consumer: "mail", EventID: "elsewhere"}}, Now: w.clock.Now(), InboxUntil: w.clock.Now().Add(day),
	}))
	w.clock.Advance(grace)
	w.append(order("new", ""))
	asked := []string{"lost", "never", "done", "lost", "dead", "elsewhere", "new", "never"}
	report, found := w.audit(auditing{cfg: eventing.AuditConfig{EventIDs: slices.Values(asked)}})
	slices.Sort(found)
	w.equal("of a list, what is lost or unknown is named, once", found, list("lost missing billing", "never unknown "))
	w.equal("each ID is accounted for", report.Consumers, map[string]map[eventing.Standing]int{
		"billing": {eventing.StandingMissing: 1, eventing.StandingProcessed: 1, eventing.StandingDead: 1, eventing.StandingPending: 1},
		"mail":    {eventing.StandingProcessed: 1}, // its row is not in this outbox
		"":        {eventing.StandingUnknown: 1},
	})
	report, found = w.audit(auditing{cfg: eventing.AuditConfig{EventIDs: slices.Values([]string{})}})
	w.equal("of an empty list there is nothing to say", []any{found, report.Rows}, []any{list(), 0})
}

func auditTime[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	start := w.clock.Now()
	for _, id := range []string{"e1", "e2", "e3"} {
		w.append(order(id, ""))
		w.dispatch()
		w.broker.lose()
		w.clock.Advance(time.Hour)
	}
	w.append(order("e4", ""))
	cfg := eventing.AuditConfig{From: start.Add(time.Hour), To: start.Add(2 * time.Hour)}
	report, found := w.audit(auditing{cfg: cfg})
	w.equal("from a time on, inclusive, to a time, exclusive", found, list("e2 missing billing"))
	w.equal("the others are not looked at", report.Rows, 1)
	cfg.To = time.Time{}
	report, found = w.audit(auditing{cfg: cfg})
	w.equal("or with no end", found, list("e2 missing billing", "e3 missing billing"))
	w.equal("what is pending goes by its creation", report.Consumers["billing"][eventing.StandingPending], 1)
	cfg.EventIDs = slices.Values([]string{"e1", "e2"})
	_, found = w.audit(auditing{cfg: cfg})
	w.equal("a time narrows a list, too", found, list("e2 missing billing"))
}

// requeuing is a store that notes which rows are requeued.
type requeuing[Tx any] struct {
	Database[Tx]
	order *[]int64
}

func (s requeuing[Tx]) Requeue(ctx context.Context, seqs []int64) (int, error) {
	if len(seqs) > eventing.AuditBatch {
		return 0, errors.New("more than a batch")
	}
	*s.order = append(*s.order, seqs...)
	return s.Database.Requeue(ctx, seqs)
}

// auditBatches has more events than a batch, all but a few of which are known.
func auditBatches[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	var events []eventing.Appendable
	var ids, want []string
	for i := range 2*eventing.AuditBatch + 100 {
		id := fmt.Sprintf("e%04d", 9999-i) // the order of the IDs is not that of appending
		ids = append(ids, id)
		events = append(events, order(id, ""))
	}
	w.append(events...)
	for w.dispatch() > 0 {
	}
	w.broker.lose()
	w.clock.Advance(grace)
	for _, id := range ids {
		want = append(want, id+" missing billing")
	}
	batches := 0
	_, found := w.audit(auditing{cfg: eventing.AuditConfig{Progress: func(eventing.AuditReport) { batches++ }}})
	w.equal("every lost event is named", slices.Equal(found, want), true)
	w.equal("in batches", batches, 3)
	_, found = w.audit(auditing{cfg: eventing.AuditConfig{EventIDs: slices.Values(append(slices.Clone(ids), "never"))}})
	w.equal("and of a list, too", slices.Equal(found[:len(want)], want) && found[len(want)] == "never unknown ", true)
	var order []int64
	done, err := eventing.Requeue(w.ctx, requeuing[Tx]{w.db, &order}, eventing.RequeueFilter{EventIDs: append(slices.Clone(ids), "never")}, false)
	w.must(err)
	w.equal("in the order of appending, so that no event overtakes another of its key", slices.IsSorted(order), true)
	w.equal("all of them can be sent again", done.Rows, len(ids))
	w.equal("and the one that cannot is named", done.NotKept, list("never"))
	_, found = w.audit(auditing{})
	w.equal("then nothing is missing", found, list())
}

func auditEnds[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	w.append(orders("", "e1", "e2")...)
	w.dispatch()
	w.broker.lose()
	w.clock.Advance(grace)
	full := errors.New("the disk is full")
	calls := 0
	cfg := eventing.AuditConfig{Outbox: w.db, Stores: []eventing.AuditStore{w.db}, Routes: routes[Tx]{w}, Now: w.clock.Now}
	_, err := eventing.Audit(w.ctx, cfg, func(eventing.AuditFinding) error { calls++; return full })
	w.equal("an error of its caller ends it", []any{errors.Is(err, full), calls}, []any{true, 1})
	cfg.Routes = nil
	_, err = eventing.Audit(w.ctx, cfg, nil)
	w.equal("without routes nothing can be said", err != nil, true)
}
