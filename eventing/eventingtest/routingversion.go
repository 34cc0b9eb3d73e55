package eventingtest

import (
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// By which version of the routing table an event went where it went can be told.
func routingVersionTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"a settled row tells by which table it was routed":   versionSettled[Tx],
		"one that cannot be published tells it, too":         versionFailed[Tx],
		"a row that is sent again is routed again":           versionRequeued[Tx],
		"in one process, each row has that of its own time":  versionCompletion[Tx],
		"a critical event's row has that of its last part":   versionExpedited[Tx],
		"a row that stays, although sent ones are deleted":   versionDeleteSent[Tx],
		"retries keep that of the message":                   versionRetry[Tx],
		"so does what is parked":                             versionParked[Tx],
		"a replay has that of the table that routes it then": versionReplay[Tx],
		"in a batch, each event has its own":                 versionBatch[Tx],
	}
}

// routeBy exchanges the routing table for one that routes the same.
func (w *world[Tx]) routeBy(version string) { w.version = version }

func versionSettled[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	archived := order("e2", "")
	archived.Type = "order.archived"
	w.routeBy("v1")
	w.append(order("e1", ""), archived)
	w.rest()
	w.routedBy("a row has the version of its table", "e1", "v1")
	w.routedBy("also if it goes nowhere", "e2", "v1")
	w.routeBy("")
	w.append(order("e3", ""))
	w.rest()
	w.routedBy("a table without a version has none", "e3", "")
}

func versionFailed[Tx any](w *world[Tx]) {
	w.routeBy("v1")
	lost := order("e1", "")
	lost.Type = "order.lost"
	w.append(lost)
	w.rest()
	w.outboxStatus("the table has no route", "e1", "failed")
	w.routedBy("and it is known which one", "e1", "v1")
}

func versionRequeued[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	w.routeBy("v1")
	w.append(order("e1", ""))
	w.rest()
	w.routeBy("v2")
	w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1"}}, false)
	w.rest()
	w.routedBy("what is sent again is routed by the table of then", "e1", "v2")
}

func versionCompletion[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	c := w.consumer("billing", nil)
	w.routeBy("v1")
	w.append(order("e1", ""))
	w.dispatch()
	w.routeBy("v2")
	w.append(order("e2", ""))
	w.dispatch()
	w.deliver()
	w.equal("both are settled at once", w.dispatch(), 2)
	w.routedBy("each as it was routed", "e1", "v1")
	w.routedBy("each as it was routed", "e2", "v2")
	c.tried("as its consumer was told", eventing.CurrentAttempt{Number: 1, RoutingVersion: "v1"}, eventing.CurrentAttempt{Number: 1, RoutingVersion: "v2"})
}

func versionExpedited[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	loose, strict := w.consumer("billing", nil), w.consumer("ledger", ordered)
	w.routeBy("v1")
	w.behind("c", "e1")
	w.dispatch()
	w.routeBy("v2")
	w.rest()
	w.equal("the critical event came first", loose.ran(), list("c", "e1"))
	w.equal("and in its turn", strict.ran(), list("e1", "c"))
	w.routedBy("its row was routed last", "c", "v2")
}

func versionDeleteSent[Tx any](w *world[Tx]) {
	w.settleByCompletion()
	w.deleteSent()
	c := w.consumer("billing", nil)
	c.fail(errHopeless, "e1")
	w.routeBy("v1")
	w.append(order("e1", ""), order("e2", ""))
	w.rest()
	w.routedBy("a row that stays has its version", "e1", "v1")
	w.outboxStatus("others are gone", "e2")
}

func versionRetry[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errBusy, "e1")
	w.routeBy("v1")
	w.append(order("e1", ""))
	w.rest()
	w.routeBy("v2")
	w.clock.Advance(time.Hour)
	w.rest()
	w.equal("OnConclude is told of a failure's version", c.lastConclusion().RoutingVersion, "v1")
	c.heal()
	w.clock.Advance(2 * time.Hour)
	w.rest()
	w.equal("and of a success's", c.lastConclusion().RoutingVersion, "v1")
	c.tried("a retry belongs to the table that sent the event",
		eventing.CurrentAttempt{Number: 1, RoutingVersion: "v1"}, eventing.CurrentAttempt{Number: 2, RoutingVersion: "v1"},
		eventing.CurrentAttempt{Number: 3, RoutingVersion: "v1"})
}

func versionParked[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	c.fail(errBusy, "e1")
	w.routeBy("v1")
	w.append(orders("K", "e1")...)
	w.rest()
	w.routeBy("v2")
	w.append(orders("K", "e2")...)
	w.rest()
	w.deliveries("the second is parked", 1, 1, 0)
	w.routeBy("v3")
	c.heal()
	w.clock.Advance(time.Hour)
	w.rest()
	c.tried("a parked event belongs to the table that sent it",
		eventing.CurrentAttempt{Number: 1, RoutingVersion: "v1"}, eventing.CurrentAttempt{Number: 2, RoutingVersion: "v1"},
		eventing.CurrentAttempt{Number: 1, RoutingVersion: "v2"})
}

func versionReplay[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(errHopeless, "e1")
	w.routeBy("v1")
	w.append(order("e1", ""))
	w.rest()
	w.routeBy("v2")
	c.fail(errBusy, "e1")
	w.replay(target("e1", c))
	w.rest()
	w.routedBy("the row of a replay is routed by the table of then", "e1", "v1", "v2")
	w.routeBy("v3")
	c.heal()
	w.clock.Advance(2 * time.Hour)
	w.rest()
	c.tried("a replay belongs to the table that sent it, its retries too",
		eventing.CurrentAttempt{Number: 1, RoutingVersion: "v1"}, eventing.CurrentAttempt{Number: 2, Generation: 1, RoutingVersion: "v2"},
		eventing.CurrentAttempt{Number: 3, Generation: 1, RoutingVersion: "v2"})
	w.status("it succeeded", target("e1", c), eventing.StatusClosed, eventing.Resolved)
}

func versionBatch[Tx any](w *world[Tx]) {
	c := w.batchConsumer("billing", 2, nil)
	w.routeBy("v1")
	w.append(order("e1", ""))
	w.dispatch()
	w.routeBy("v2")
	w.append(order("e2", ""))
	w.dispatch()
	w.must(w.together(w.heads(c), c.engine))
	w.equal("both are in one call", c.calls(), []int{2})
	c.tried("which is no attempt at any of them")
	versions := map[string]string{}
	for _, conclusion := range c.conclusions {
		versions[conclusion.Envelope.ID] = conclusion.RoutingVersion
	}
	w.equal("OnConclude is told of each", versions, map[string]string{"e1": "v1", "e2": "v2"})
}
