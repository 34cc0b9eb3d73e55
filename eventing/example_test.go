package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

type OrderPlaced struct {
	Number string `json:"number"`
}

// Business data and event commit together, or not at all.
func ExampleOutbox_InTx() {
	ctx := context.Background()
	store := memstore.New()
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})

	err := outbox.InTx(ctx, func(tx *memstore.Tx) error {
		tx.Set("order/7", "placed")
		return outbox.Append(ctx, tx, eventing.New("order", "7", OrderPlaced{"7"}))
	})
	fmt.Println("placed:", err)

	err = outbox.InTx(ctx, func(tx *memstore.Tx) error {
		tx.Set("order/8", "placed")
		if err := outbox.Append(ctx, tx, eventing.New("order", "8", OrderPlaced{"8"})); err != nil {
			return err
		}
		return errors.New("out of stock")
	})
	_, placed := store.Get("order/8")
	fmt.Printf("not placed: %v, %v\n", err, placed)

	stats, err := store.Stats(ctx)
	fmt.Println("to send:", stats.Outbox["pending"], err)
	// Output:
	// placed: <nil>
	// not placed: out of stock, false
	// to send: 1 <nil>
}

// An event is checked and encoded before its transaction begins, which stays short.
func ExampleOutboxConfig_Row() {
	ctx := eventing.WithCorrelationID(context.Background(), "request-1")
	store := memstore.New()

	order := eventing.New("order", "7", OrderPlaced{"7"})
	order.ID = "event-1"
	row, err := eventing.OutboxConfig{}.Row(ctx, order)
	fmt.Println(row.EventID, row.EventType, row.OrderingKey, err)

	err = store.InTx(ctx, func(tx *memstore.Tx) error { return store.AppendRows(ctx, tx, []eventing.OutboxRow{row}) })
	stats, _ := store.Stats(ctx)
	fmt.Println("to send:", stats.Outbox["pending"], err)

	order.AggregateID = strings.Repeat("7", 10_000)
	_, err = eventing.OutboxConfig{}.Row(ctx, order)
	fmt.Println(err)
	// Output:
	// event-1 OrderPlaced order/7 <nil>
	// to send: 1 <nil>
	// invalid event event-1: aggregate_id has 10000 bytes, more than 255
}

// An envelope as it is stored and sent.
func ExampleEncodeEnvelope() {
	e := eventing.Envelope{
		Header: eventing.Header{
			ID: "event-1", Type: "OrderPlaced", OccurredAt: time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC),
			CorrelationID: "request-1", SchemaVersion: 1, AggregateType: "order", AggregateID: "7",
		},
		Payload: []byte(`{"number":"7"}`),
	}
	b, err := eventing.EncodeEnvelope(e)
	fmt.Println(string(b), err)
	// Output: {"event_id":"event-1","event_type":"OrderPlaced","occurred_at":"2026-02-26T12:00:00Z","correlation_id":"request-1","tenant_id":"","station_id":"","schema_version":1,"aggregate_type":"order","aggregate_id":"7","payload":{"number":"7"}} <nil>
}

// The delays of a policy, without its jitter.
func ExampleRetryPolicy_Delay() {
	policy := eventing.RetryPolicy{MaxAttempts: 5, Base: time.Second, Multiplier: 2, Jitter: 0.2}
	for attempt := 1; attempt < policy.MaxAttempts; attempt++ {
		fmt.Printf("after attempt %d: %v, at most %v\n", attempt, policy.Delay(attempt, 0), policy.Delay(attempt, 1))
	}
	// Output:
	// after attempt 1: 1s, at most 1.2s
	// after attempt 2: 2s, at most 2.4s
	// after attempt 3: 4s, at most 4.8s
	// after attempt 4: 8s, at most 9.6s
}

// A handler steers by the error that it returns.
func ExamplePermanent() {
	handle := func(_ context.Context, e eventing.Event[OrderPlaced]) error {
		switch e.Payload.Number {
		case "":
			return eventing.Permanent(errors.New("an order needs a number")) // a dead letter at once
		case "7":
			return eventing.RetryAfter(time.Hour, errors.New("the shop is closed")) // a snooze: no attempt is counted
		}
		return errors.New("the database is busy") // tried again by the policy
	}
	for _, number := range []string{"", "7", "8"} {
		err := handle(context.Background(), eventing.New("order", number, OrderPlaced{number}))
		fmt.Printf("%v: permanent %v\n", err, eventing.IsPermanent(err))
	}
	// Output:
	// an order needs a number: permanent true
	// the shop is closed: permanent false
	// the database is busy: permanent false
}
