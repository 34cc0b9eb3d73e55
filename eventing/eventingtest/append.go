package eventingtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func appendTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"committed events are seen":         appendCommitted[Tx],
		"rolled-back events are never seen": appendRolledBack[Tx],
		"a crash before commit is a rollback": func(w *world[Tx]) {
			c := w.consumer("billing", nil)
			w.faults.FailNext(eventing.FaultAppended)
			err := w.outbox.InTx(w.ctx, func(tx Tx) error { return w.outbox.Append(w.ctx, tx, order("e1", "")) })
			w.equal("a crash is reported as what it is", errors.Is(err, ErrCrash), true)
			w.restart()
			w.rest()
			w.effects("an event whose transaction did not commit is never seen", c)
		},
		"headers are completed":                     appendCompletes[Tx],
		"the context says what caused it":           appendFromContext[Tx],
		"rows keep their order":                     appendOrder[Tx],
		"a delayed row waits until due":             appendDelayed[Tx],
		"an id is appended once":                    appendDuplicate[Tx],
		"an invalid event writes nothing":           appendInvalid[Tx],
		"SerializeKeys orders the writers of a key": appendSerialized[Tx],
	}
}

func appendCommitted[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(order("e1", ""), order("e2", ""))
	w.outboxStatus("an appended event is pending", "e1", "pending")
	w.rest()
	w.effects("an event of a committed transaction is handled", c, "e1", "e2")
	w.outboxStatus("what was handed over is sent", "e1", "sent")
}

func appendRolledBack[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	boom := errors.New("boom")
	err := w.outbox.InTx(w.ctx, func(tx Tx) error {
		if err := w.db.Effect(w.ctx, tx, "writer", "e1"); err != nil {
			return err
		}
		if err := w.outbox.Append(w.ctx, tx, order("e1", "")); err != nil {
			return err
		}
		return boom
	})
	w.equal("InTx returns the function's error as it is", err, boom)
	w.rest()
	w.effects("an event of a rolled-back transaction is never seen", c)
	all, err := w.db.Effects(w.ctx)
	w.must(err)
	w.equal("the rollback takes the business writes along", len(all), 0)
	w.append(order("e1", ""))
	w.rest()
	w.effects("the id of a rolled-back event is free", c, "e1")
}

func appendCompletes[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	e := eventing.New("order", "42", orderPlaced{Number: "42"})
	w.append(e)
	w.rest()
	got := c.lastEnvelope()
	w.equal("an id is made where there is none", len(got.ID), 36)
	w.equal("the type is the payload's", got.Type, "order.placed")
	w.equal("the time is now, in UTC", got.OccurredAt, w.clock.Now())
	w.equal("the correlation id is the event's own where the context has none", got.CorrelationID, got.ID)
	w.equal("the schema version is 1", got.SchemaVersion, 1)
	w.equal("the aggregate orders the event", got.OrderKey(), "order/42")
	w.equal("the payload arrives", string(got.Payload), `{"number":"42"}`)

	e.Header = eventing.Header{
		ID: "full", Type: "order.placed", OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.FixedZone("", 3600)),
		CorrelationID: "corr", CausationID: "cause", TenantID: "tenant", StationID: "station", SchemaVersion: 7,
		AggregateType: "order", AggregateID: "42", OrderingKey: "key", IdempotencyKey: "once",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=1",
	}
	w.append(e)
	w.rest()
	want := e.Header
	want.OccurredAt = want.OccurredAt.UTC()
	w.equal("a complete header arrives as it was appended", c.lastEnvelope().Header, want)
}

func appendFromContext[Tx any](w *world[Tx]) {
	first := w.consumer("billing", nil)
	appended := false
	first.handleWith(func(ctx context.Context, _ eventing.Envelope) error {
		if appended {
			return nil
		}
		appended = true
		tx, ok := eventing.TxFromContext[Tx](ctx)
		w.equal("a transactional handler finds its transaction", ok, true)
		return w.outbox.Append(ctx, tx, order("effect", ""))
	})
	ctx := eventing.WithCorrelationID(w.ctx, "corr")
	ctx = eventing.WithTraceContext(ctx, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1")
	w.must(w.outbox.InTx(ctx, func(tx Tx) error { return w.outbox.Append(ctx, tx, order("cause", "")) }))
	w.rest()
	got := first.lastEnvelope()
	w.equal("an event appended in a handler carries on correlation, cause and trace",
		[]string{got.ID, got.CorrelationID, got.CausationID, got.TraceParent, got.TraceState},
		[]string{"effect", "corr", "cause", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1"})
}

func appendOrder[Tx any](w *world[Tx]) {
	w.consumer("billing", nil)
	w.append(orders("", "e3", "e1")...)
	w.append(order("e2", ""))
	w.append(orders("", "e5", "e4")...)
	w.dispatch()
	w.equal("events are published in the order of their appending", w.broker.ids(""), []string{"e3", "e1", "e2", "e5", "e4"})
}

func appendDelayed[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	late := order("late", "")
	late.DueAt = w.clock.Now().Add(time.Hour)
	w.append(late, order("soon", ""))
	w.rest()
	w.effects("a delayed event holds up no other", c, "soon")
	w.clock.Advance(time.Hour - time.Millisecond)
	w.rest()
	w.effects("a delayed event waits until it is due", c, "soon")
	w.clock.Advance(time.Millisecond)
	w.rest()
	w.effects("a delayed event goes when it is due", c, "soon", "late")
}

func appendDuplicate[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	w.append(order("e1", ""))
	err := w.outbox.InTx(w.ctx, func(tx Tx) error { return w.outbox.Append(w.ctx, tx, order("e2", ""), order("e1", "")) })
	w.equal("appending an id a second time fails", err != nil, true)
	w.rest()
	w.effects("a failed append leaves nothing behind", c, "e1")
}

func appendInvalid[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	long := order("e2", "")
	long.OrderingKey = strings.Repeat("k", 2000)
	untyped := eventing.Event[map[string]int]{Payload: map[string]int{}}
	for field, bad := range map[string]eventing.Appendable{"ordering_key": long, "event_type": untyped} {
		w.must(w.outbox.InTx(w.ctx, func(tx Tx) error {
			var invalid *eventing.InvalidEventError
			err := w.outbox.Append(w.ctx, tx, order("good", ""), bad)
			if !errors.As(err, &invalid) {
				return fmt.Errorf("an invalid event is refused with an InvalidEventError; got %w", err)
			}
			w.equal("the error names the field", invalid.Field, field)
			return nil // and commit: nothing must have been written
		}))
	}
	w.rest()
	w.effects("an append that was refused has written nothing", c)
}

// appendSerialized has two transactions append to one key: the one that appended first
// commits last. With SerializeKeys the second cannot append before that.
func appendSerialized[Tx any](w *world[Tx]) {
	c := w.consumer("billing", ordered)
	outbox := eventing.NewOutbox[Tx](w.db, eventing.OutboxConfig{SerializeKeys: true, Now: w.clock.Now})
	appended, commit, second := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	first := make(chan error, 1)
	go func() {
		first <- outbox.InTx(w.ctx, func(tx Tx) error {
			if err := outbox.Append(w.ctx, tx, order("e1", "K"), order("e2", "K")); err != nil {
				return err
			}
			close(appended)
			<-commit
			return nil
		})
	}()
	select {
	case <-appended:
	case err := <-first:
		w.Fatal(err)
	}
	go func() {
		second <- outbox.InTx(w.ctx, func(tx Tx) error { return outbox.Append(w.ctx, tx, order("e3", "K")) })
	}()
	if w.caps.ConcurrentWriters {
		other := outbox.InTx(w.ctx, func(tx Tx) error { return outbox.Append(w.ctx, tx, order("f1", "L")) })
		w.equal("the lock of one key holds up no other key", other, nil)
		w.rest()
		w.effects("nothing of a key is seen before the transaction that holds it commits", c, "f1")
	}
	close(commit)
	w.must(<-first)
	w.must(<-second)
	w.rest()
	effects := c.effects()
	w.equal("events of a key are in the order of the commits of its writers",
		effects[max(0, len(effects)-3):], []string{"e1", "e2", "e3"})
}
