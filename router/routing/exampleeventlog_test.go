package routing_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

const loggedOrders = `
routing: 1
consumers: {audit: {}}
events:
  order_placed:
    category: order
    schemas:
      1: {type: object, required: [total], properties: {total: {type: string}}}
      2: {type: object, required: [total], properties: {total: {type: number}}}
matrix: {order_placed: [audit]}
actions: {order_placed: {audit: [{do: record, continue: true}, {do: tell}]}}
retention: {order: 7y}
`

// withoutQuotes makes a number of the total, which was a text in version 1.
func withoutQuotes(payload json.RawMessage) (json.RawMessage, error) {
	var old struct {
		Total string `json:"total"`
	}
	err := json.Unmarshal(payload, &old)
	return fmt.Appendf(nil, `{"total":%s}`, old.Total), err
}

// The event log as a consumer of a routing file has events as they were appended, and not as handlers get them.
func ExampleHandleTx_eventLog() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	dir, err := os.MkdirTemp("", "shop")
	check(err)
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "shop.db"))
	check(err)
	table, err := routing.Parse("routes.yaml", []byte(loggedOrders), nil)
	check(err)
	broker := inproc.New(inproc.Config{})
	app, err := routing.New(router.Config{Store: store, Subscriber: broker}, table, routing.Config{
		Upcasters: []routing.Upcaster{{EventType: "order_placed", From: 1, Upcast: withoutQuotes}},
	})
	check(err)

	// docs: begin
	_, err = eventlog.Migrations(eventlog.SQLite).Up(ctx, store.DB())
	check(err)
	log, err := eventlog.New(eventlog.Config{Dialect: eventlog.SQLite, Retention: table.Retention()})
	check(err)
	check(routing.HandleTx(app, "audit", "record", func(ctx context.Context, tx *sql.Tx, e eventing.Event[json.RawMessage], _ routing.Action) error {
		if sent, ok := eventing.EnvelopeFromContext(ctx); ok {
			e = sent // as it was appended; the parameter is what upcasters have made of it
		}
		return log.Handle(ctx, tx, e)
	}))
	pruner, err := eventing.NewPruner(store, eventing.PrunerConfig{Also: map[string]eventing.PruneFunc{"events": log.Pruner(store.DB())}})
	check(err) // run it beside the router, in one process at least
	// docs: end

	check(routing.HandleTx(app, "audit", "tell", func(_ context.Context, _ *sql.Tx, e eventing.Event[json.RawMessage], _ routing.Action) error {
		fmt.Printf("handlers get version %d, %s\n", e.SchemaVersion, e.Payload)
		stop()
		return nil
	}))
	dispatcher, err := eventing.NewDispatcher(store, broker, app, eventing.DispatcherConfig{})
	check(err)
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	check(outbox.InTx(ctx, func(tx *sql.Tx) error {
		e := eventing.New("order", "1", json.RawMessage(`{"total":"5"}`))
		e.Type, e.SchemaVersion = "order_placed", 1
		return outbox.Append(ctx, tx, e)
	}))
	background, stopBackground := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { check(dispatcher.Run(background)) })
	running.Go(func() { check(pruner.Run(background)) })
	check(errors.Join(app.Run(ctx), broker.Close()))
	stopBackground()
	running.Wait()

	for e, err := range log.Each(context.Background(), store.Reader(), eventlog.Filter{}) {
		check(err)
		fmt.Printf("the log has version %d, %s\n", e.SchemaVersion, e.Payload)
	}
	check(errors.Join(store.Close(), os.RemoveAll(dir)))
	// Output:
	// handlers get version 2, {"total":5}
	// the log has version 1, {"total":"5"}
}
