package eventingtest

import (
	"fmt"
	"github.com/waybill-go/waybill/eventing"
	"slices"
)

// What the tests look at in the database, and the acts of an operator.

// effects checks what has happened at a consumer, in order.
func (w *world[Tx]) effects(guarantee string, c *consumer[Tx], want ...string) {
	w.Helper()
	w.equal(guarantee+" (effects of "+c.name+")", c.effects(), list(want...))
}

// outboxStatus checks the statuses of an event's outbox rows.
func (w *world[Tx]) outboxStatus(guarantee, eventID string, want ...string) {
	w.Helper()
	got, err := w.db.OutboxStatus(w.ctx, eventID)
	w.must(err)
	w.equal(guarantee+" (outbox rows of "+eventID+")", list(got...), list(want...))
}

// routedBy checks the routing versions of an event's outbox rows.
func (w *world[Tx]) routedBy(guarantee, eventID string, want ...string) {
	w.Helper()
	got, err := w.db.RoutingVersions(w.ctx, eventID)
	w.must(err)
	w.equal(guarantee+" (outbox rows of "+eventID+")", list(got...), list(want...))
}

func (w *world[Tx]) stats() eventing.Stats {
	w.Helper()
	s, err := w.db.Stats(w.ctx)
	w.must(err)
	return s
}

// deliveries checks how many deliveries are in trouble.
func (w *world[Tx]) deliveries(guarantee string, retrying, parked, dead int64) {
	w.Helper()
	d := w.stats().Deliveries
	w.equal(guarantee+" (retrying, parked, dead)",
		[]int64{d["retrying"], d["parked"], d["dead"]}, []int64{retrying, parked, dead})
}

func target[Tx any](eventID string, c *consumer[Tx]) eventing.Target {
	return eventing.Target{EventID: eventID, Consumer: c.name}
}

// deadLetter returns the dead letter of an event at a consumer.
func (w *world[Tx]) deadLetter(t eventing.Target) eventing.DeadLetter {
	w.Helper()
	found := w.list(eventing.DeadLetterFilter{EventID: t.EventID, Consumer: t.Consumer})
	found = slices.DeleteFunc(found, func(dl eventing.DeadLetter) bool { return dl.Consumer != t.Consumer })
	if len(found) != 1 {
		w.Fatalf("broken: an event that died has one dead letter at its consumer (%s has %d; all: %s)", t, len(found), w.graveyard())
	}
	dl := found[0]
	highest := 0
	for _, a := range dl.History {
		highest = max(highest, a.Attempt)
	}
	w.equal("attemptCount is the highest attempt of the history, always", dl.AttemptCount, highest)
	return dl
}

func (w *world[Tx]) list(f eventing.DeadLetterFilter) []eventing.DeadLetter {
	w.Helper()
	found, err := w.deadLetters.List(w.ctx, f)
	w.must(err)
	return found
}

// graveyard describes all dead letters.
func (w *world[Tx]) graveyard() []string {
	w.Helper()
	out := list()
	for _, dl := range w.list(eventing.DeadLetterFilter{}) {
		out = append(out, fmt.Sprintf("%s at %q: %s %s %s", dl.EventID, dl.Consumer, dl.Stage, dl.Reason, dl.Status))
	}
	return out
}

// status checks the state of a dead letter.
func (w *world[Tx]) status(guarantee string, t eventing.Target, status eventing.ReviewStatus, resolution eventing.Resolution) {
	w.Helper()
	dl := w.deadLetter(t)
	w.equal(guarantee+" ("+t.String()+")", [2]string{string(dl.Status), string(dl.Resolution)}, [2]string{string(status), string(resolution)})
}

// nothingDead checks that there are no dead letters.
func (w *world[Tx]) nothingDead(guarantee string) {
	w.Helper()
	w.equal(guarantee, w.graveyard(), list())
}

func (w *world[Tx]) replay(t eventing.Target) {
	w.Helper()
	w.try(func() error { return w.deadLetters.Replay(w.ctx, t, "ann", "fixed") })
}

func (w *world[Tx]) discard(t eventing.Target) {
	w.Helper()
	w.try(func() error { return w.deadLetters.Discard(w.ctx, t, "ann", "obsolete") })
}

// replayBySQL runs the documented statement.
func (w *world[Tx]) replayBySQL(eventID string) {
	w.Helper()
	n, err := w.db.ReplayBySQL(w.ctx, eventID)
	w.must(err)
	w.equal("the documented replay statement inserts one row for an event that has died", n, 1)
}

// delivery is a delivery to a consumer, for the tests that ask the store itself.
func (c *consumer[Tx]) delivery(e eventing.Event[orderPlaced]) eventing.Delivery {
	payload := fmt.Appendf(nil, `{"event_id":%q,"event_type":"order.placed","occurred_at":"2026-01-02T03:04:05Z",`+
		`"correlation_id":%q,"tenant_id":"","station_id":"","schema_version":1,"ordering_key":%q,"payload":{"number":%q}}`,
		e.ID, e.ID, e.OrderingKey, e.ID)
	d := eventing.Delivery{
		Consumer: c.name, EventID: e.ID, EventType: "order.placed", Payload: payload, Partition: eventing.PartitionOf(e.OrderingKey, e.ID),
	}
	if c.cfg.Policy.Ordered {
		d.OrderingKey = e.OrderingKey
	}
	return d
}
