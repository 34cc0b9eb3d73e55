package eventingtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func browseTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"each filter":                                  browseFilters[Tx],
		"page by page, none is lost or doubled":        browsePages[Tx],
		"all of more than a page, others are added":    browseEach[Tx],
		"an error of the caller ends it":               browseEnds[Tx],
		"failures are grouped, the most of them first": browseGroups[Tx],
		"what is closed has nothing behind it":         browseParked[Tx],
	}
}

// kill leaves an event dead at a consumer, without running anything.
func (c *consumer[Tx]) kill(e eventing.Event[orderPlaced], reason eventing.ReasonCode, message string) {
	c.w.Helper()
	d := c.delivery(e)
	if e.TenantID != "" {
		d.Payload = fmt.Appendf(nil, `{"event_id":%q,"event_type":"order.placed","occurred_at":"2026-01-02T03:04:05Z","correlation_id":%q,`+
			`"tenant_id":%q,"station_id":"","schema_version":1,"payload":{"number":%q}}`, e.ID, e.ID, e.TenantID, e.ID)
	}
	_, run := c.arrive(d)
	now := c.w.clock.Now()
	c.w.must(c.w.db.Fail(c.w.ctx, eventing.Failure{
		Run: run, Now: now, State: eventing.StateDead, Attempts: 1,
		History: []eventing.Attempt{{Attempt: 1, At: now, Outcome: "failed", ErrorCode: reason, ErrorMessage: message}},
		Stage:   eventing.StageHandle, Reason: reason, Message: message, DeadLetterUntil: now.Add(24 * time.Hour),
	}))
}

// died returns the events of dead letters, in their order.
func died(letters []eventing.DeadLetter) []string {
	out := list()
	for _, dl := range letters {
		out = append(out, dl.EventID)
	}
	return out
}

func browseFilters[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("ledger", ordered)
	start := w.clock.Now()
	acme := order("e1", "")
	acme.TenantID = "acme"
	a.kill(acme, eventing.ReasonRejected, "no")
	w.clock.Advance(time.Hour)
	a.kill(order("e2", ""), eventing.ReasonRetriesExhausted, "busy")
	w.clock.Advance(time.Hour)
	b.kill(order("e3", "K"), eventing.ReasonRejected, "no")
	w.broker.refuseEvents("e4")
	w.append(orders("", "e4", "e5")...)
	w.rest()
	for _, try := range []struct {
		filter eventing.DeadLetterFilter
		want   []string
	}{
		{eventing.DeadLetterFilter{}, list("e1", "e2", "e3", "e4")},
		{eventing.DeadLetterFilter{EventType: "order.placed"}, list("e1", "e2", "e3", "e4")},
		{eventing.DeadLetterFilter{EventType: "order.archived"}, list()},
		{eventing.DeadLetterFilter{Consumer: "billing"}, list("e1", "e2")},
		{eventing.DeadLetterFilter{Reason: eventing.ReasonRejected}, list("e1", "e3")},
		{eventing.DeadLetterFilter{Stage: eventing.StageDispatch}, list("e4")},
		{eventing.DeadLetterFilter{OrderingKey: "K"}, list("e3")},
		{eventing.DeadLetterFilter{TenantID: "acme"}, list("e1")},
		{eventing.DeadLetterFilter{TenantID: "acme", Reason: eventing.ReasonRetriesExhausted}, list()},
		{eventing.DeadLetterFilter{Since: start.Add(time.Hour), Until: start.Add(2 * time.Hour)}, list("e2")},
		{eventing.DeadLetterFilter{Status: eventing.StatusPending, OpenOnly: true, Reason: eventing.ReasonRejected, Consumer: "ledger"}, list("e3")},
		{eventing.DeadLetterFilter{EventID: "e2", Reason: eventing.ReasonRejected}, list()},
	} {
		w.equal(fmt.Sprintf("the filter %+v", try.filter), died(w.list(try.filter)), try.want)
	}
}

func browsePages[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	for _, id := range []string{"e4", "e1", "e3", "e2"} { // all at one time
		a.kill(order(id, ""), eventing.ReasonRejected, "no")
		b.kill(order(id, ""), eventing.ReasonRejected, "no")
	}
	w.clock.Advance(time.Second)
	a.kill(order("e0", ""), eventing.ReasonRejected, "no")
	var got []string
	f := eventing.DeadLetterFilter{Limit: 3}
	for page := w.list(f); len(page) > 0; page = w.list(f) {
		for _, dl := range page {
			got = append(got, dl.Target().String())
			f.After = dl.Place()
		}
		if len(got) == 6 { // meanwhile
			w.discard(target("e1", a))
			w.clock.Advance(time.Second)
			a.kill(order("e9", ""), eventing.ReasonRejected, "no")
		}
	}
	want := list()
	for _, id := range []string{"e1", "e2", "e3", "e4"} {
		want = append(want, id+" at billing", id+" at mail")
	}
	w.equal("pages have each once, in order", got, append(want, "e0 at billing", "e9 at billing"))
}

func browseEach[Tx any](w *world[Tx]) {
	const many = 520 // more than a page of Each
	c := w.consumer("billing", nil)
	for i := range many {
		e := order(fmt.Sprintf("e%03d", i), "")
		if i%90 == 0 {
			e.TenantID = "acme"
		}
		c.kill(e, eventing.ReasonRejected, "no")
	}
	w.clock.Advance(time.Second)
	var got []string
	w.must(w.deadLetters.Each(w.ctx, eventing.DeadLetterFilter{}, func(dl eventing.DeadLetter) error {
		if len(got) == 100 {
			c.kill(order("new", ""), eventing.ReasonRejected, "no")
		}
		got = append(got, dl.EventID)
		return nil
	}))
	w.equal("each is seen, and the one that was added", []any{len(got), got[0], got[many-1], got[many], slices.IsSorted(got)},
		[]any{many + 1, "e000", "e519", "new", true})
	w.equal("a list of a tenant is one of all pages", died(w.list(eventing.DeadLetterFilter{TenantID: "acme", Limit: 10})), list("e000", "e090", "e180", "e270", "e360", "e450"))
	w.equal("and bounded", died(w.list(eventing.DeadLetterFilter{TenantID: "acme", Limit: 2})), list("e000", "e090"))
}

func browseEnds[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	for _, id := range []string{"e1", "e2", "e3"} {
		c.kill(order(id, ""), eventing.ReasonRejected, "no")
	}
	boom, n := errors.New("boom"), 0
	count := func(err error) func(eventing.DeadLetter) error {
		return func(eventing.DeadLetter) error {
			n++
			return err
		}
	}
	w.equal("an error is returned as it is", w.deadLetters.Each(w.ctx, eventing.DeadLetterFilter{}, count(boom)), boom)
	w.must(w.deadLetters.Each(w.ctx, eventing.DeadLetterFilter{Limit: 2}, count(nil)))
	w.equal("it ends at an error, or at the limit", n, 1+2)
}

func browseGroups[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	start := w.clock.Now()
	for i := range 4 {
		a.kill(order(fmt.Sprint("a", i), ""), eventing.ReasonTimeoutExhausted, fmt.Sprintf("dial tcp 10.0.0.%d:443: i/o timeout after %dms", i, 100*i+7))
		w.clock.Advance(time.Minute)
	}
	a.kill(order("b", ""), eventing.ReasonRejected, `no customer "7"`)
	b.kill(order("b", ""), eventing.ReasonRejected, `no customer "8"`)
	groups, err := w.deadLetters.Groups(w.ctx, eventing.Selection{})
	w.must(err)
	var got []string
	for _, g := range groups {
		got = append(got, fmt.Sprintf("%d %s %s %s, as %s", g.Count, g.Consumer, g.Reason, g.Error, g.Example))
	}
	w.equal("failures that look the same are one group", got, list(
		"4 billing DOWNSTREAM_TIMEOUT_EXHAUSTED dial tcp <addr>: i/o timeout after <n>, as a0 at billing",
		"1 billing REJECTED no customer <text>, as b at billing",
		"1 mail REJECTED no customer <text>, as b at mail",
	))
	w.equal("with their first and last time", []bool{groups[0].FirstAt.Equal(start), groups[0].LastAt.Equal(start.Add(3 * time.Minute))}, []bool{true, true})
	groups, err = w.deadLetters.Groups(w.ctx, eventing.Selection{Consumers: []string{"mail"}})
	w.must(err)
	w.equal("of what is selected", len(groups), 1)
}

func browseParked[Tx any](w *world[Tx]) {
	c := closeGate(w)
	w.discard(target("e2", c))
	w.equal("behind what is closed nothing waits", w.deadLetter(target("e2", c)).ParkedBehind, 0)
}
