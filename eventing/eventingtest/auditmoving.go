package eventingtest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// auditMoving moves an event on, between what is read of it.
func auditMoving[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errBusy, "e1")
	w.append(order("e1", ""))
	w.dispatch()
	w.clock.Advance(grace)
	_, found := w.audit(auditing{read: "deliveries", meanwhile: func() { w.deliver() }})
	w.equal("an event that fails meanwhile is not missing", found, list())
	c.heal()
	w.clock.Advance(time.Hour)
	_, found = w.audit(auditing{read: "deliveries", meanwhile: func() { w.redeliver() }})
	w.equal("nor one that succeeds", found, list())
	w.append(order("e2", ""))
	w.dispatch()
	w.clock.Advance(grace)
	missing := list("e2 missing billing")
	_, found = w.audit(auditing{read: "events", meanwhile: func() { w.deliver() }})
	w.equal("what is found missing was so at some moment", found, missing)
	report, found := w.audit(auditing{read: "page", meanwhile: func() { w.append(order("e3", "")) }})
	w.equal("what is appended meanwhile is not looked at", []any{found, report.Rows}, []any{list(), 2})
	report, found = w.audit(auditing{read: "deliveries", meanwhile: func() { w.rest(); w.clock.Advance(grace) }})
	w.equal("what was pending a moment ago is not missing", found, list())
	w.equal("but pending", report.Consumers["billing"], counts{eventing.StandingProcessed: 2, eventing.StandingPending: 1})
}

// auditMoment looks at events all the time, while they go from the deliveries to the inbox.
func auditMoment[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprintf("e%d", i))
	}
	c.fail(errBusy, ids...)
	w.append(orders("", ids...)...)
	w.rest()
	c.heal()
	w.clock.Advance(time.Hour)
	done := make(chan error, 1)
	go func() {
		for {
			if n, err := c.engine.RedeliverOnce(w.ctx); err != nil || n == 0 {
				done <- err
				return
			}
		}
	}()
	for always := true; ; {
		select {
		case err := <-done:
			w.must(err)
			w.equal("whatever an event is going through, it is known", always, true)
			w.equal("they have moved", len(c.effects()), len(ids))
			return
		default:
			known, err := w.db.AuditDeliveries(w.ctx, ids)
			w.must(err)
			always = always && len(known) == len(ids)
		}
	}
}

func auditPruned[Tx any](w *world[Tx]) {
	w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		cfg.Policy.InboxRetention, cfg.Policy.Retry.Base = time.Hour, time.Second
	})
	w.append(order("e1", ""))
	w.rest()
	report, found := w.audit(auditing{read: "deliveries", meanwhile: func() {
		w.later(2 * sentRetention)
		w.equal("its rows are removed", []int64{w.stats().Outbox["sent"], w.stats().Inbox}, []int64{0, 0})
	}})
	w.equal("an event that is pruned meanwhile is not missing", found, list())
	w.equal("nor anything else", report.Consumers, map[string]map[eventing.Standing]int{})
}

func auditRequeued[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	late := func() { w.dispatch(); w.clock.Advance(grace) } // longer ago than the grace, but after its consumer was looked at
	for _, again := range []func(){func() {}, func() { w.dispatch() }, late} {
		w.append(order(fmt.Sprintf("e%d", w.stats().Outbox["sent"]), ""))
		w.dispatch()
		w.broker.lose()
		w.clock.Advance(grace)
		_, found := w.audit(auditing{read: "events", meanwhile: func() {
			w.requeue(eventing.RequeueFilter{SentFrom: w.clock.Now().Add(-time.Hour)}, false)
			again()
		}})
		w.equal("what is sent again meanwhile is on its way", found, list())
		w.rest()
	}
}

func auditTwin[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	w.append(order("e1", ""))
	w.dispatch()
	w.broker.lose()
	w.clock.Advance(grace)
	if err := w.db.InTx(w.ctx, func(tx Tx) error { return w.outbox.Append(w.ctx, tx, order("e1", "")) }); err != nil {
		return // IDs are unique for ever
	}
	_, found := w.audit(auditing{})
	w.equal("an event that is appended again is on its way", found, list())
	w.dispatch()
	_, found = w.audit(auditing{})
	w.equal("until the grace has passed", found, list())
	w.broker.lose()
	w.clock.Advance(grace)
	_, found = w.audit(auditing{})
	w.equal("and then missing, twice", found, list("e1 missing billing", "e1 missing billing"))
	w.equal("it can be sent again, once", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1"}}, false), 1)
	_, found = w.audit(auditing{})
	w.equal("and is on its way again", found, list())
}

func auditAccepted[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	cfg := eventing.AuditConfig{EventIDs: slices.Values([]string{"e1"})}
	report, found := w.audit(auditing{cfg, "deliveries", func() { w.append(order("e1", "")) }})
	w.equal("an ID that is accepted meanwhile is not unknown", found, list())
	w.equal("but pending", slices.Collect(maps.Values(report.Consumers)), []map[eventing.Standing]int{{eventing.StandingPending: 1}})
}
