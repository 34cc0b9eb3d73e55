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
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

type OrderPlaced struct {
	OrderID    string  `json:"order_id"`
	CustomerID string  `json:"customer_id"`
	Total      float64 `json:"total"`
}

// EventType is the type's name in the file; without this method it would be OrderPlaced.
func (OrderPlaced) EventType() string { return "order_placed" }

type OrderCancelled struct {
	OrderID    string  `json:"order_id"`
	CustomerID string  `json:"customer_id"`
	Reason     string  `json:"reason"`
	Refund     float64 `json:"refund"`
}

func (OrderCancelled) EventType() string { return "order_cancelled" }

// Customer is what the lookup finds.
type Customer struct {
	WantsMail bool `json:"wants_mail"`
}

// handlers are what actions do, and lookups find.
type handlers struct {
	customers map[string]Customer
	told      chan string // what they do, for this example to tell
}

func (h handlers) customer(_ context.Context, id string) (any, error) {
	c, known := h.customers[id]
	if !known {
		return nil, fmt.Errorf("there is no customer %s", id)
	}
	return c, nil
}

func (h handlers) charge(ctx context.Context, tx *sql.Tx, e eventing.Event[OrderPlaced], _ routing.Action) error {
	h.told <- fmt.Sprintf("billing charges %v for order %s", e.Payload.Total, e.Payload.OrderID)
	_, err := tx.ExecContext(ctx, `INSERT INTO charges VALUES (?, ?)`, e.Payload.OrderID, e.Payload.Total)
	return err // nil: the charge commits together with the record that the event is processed
}

func (h handlers) refund(ctx context.Context, tx *sql.Tx, e eventing.Event[OrderCancelled], _ routing.Action) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO charges VALUES (?, ?)`, e.Payload.OrderID, -e.Payload.Refund)
	return err
}

// write is for events of several types, so it takes the payload as it is.
func (h handlers) write(_ context.Context, e eventing.Event[json.RawMessage], a routing.Action) error {
	if len(a.List("to")) == 0 {
		return nil // modifiers have left nobody to write to
	}
	h.told <- fmt.Sprintf("mail writes %s to %v, priority %s, about %s", a.Text("template"), a.List("to"), a.Text("priority"), e.ID)
	return nil
}

// record is for all types.
func (h handlers) record(ctx context.Context, tx *sql.Tx, e eventing.Event[json.RawMessage], _ routing.Action) error {
	h.told <- fmt.Sprintf("audit records %s %s: %s", e.Type, e.ID, e.Payload)
	_, err := tx.ExecContext(ctx, `INSERT INTO audit VALUES (?, ?, ?)`, e.ID, e.Type, string(e.Payload))
	return err
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "shop")
	check(err)
	store, err := sqlitestore.Open(context.Background(), filepath.Join(dir, "shop.db"))
	check(err)
	_, err = store.DB().Exec(`CREATE TABLE charges (order_id TEXT, amount REAL); CREATE TABLE audit (event_id TEXT, event_type TEXT, payload TEXT)`)
	check(err)

	table, err := routing.Load("testdata/shop.yaml") // or routing.Parse, for an embedded file
	check(err)
	broker := inproc.New(inproc.Config{})
	h := handlers{customers: map[string]Customer{"c-7": {WantsMail: false}}, told: make(chan string, 10)}
	app, err := routing.New(router.Config{Store: store, Subscriber: broker}, table, routing.Config{
		Lookups: map[string]routing.LookupFunc{"customer": h.customer},
	})
	check(err)
	check(errors.Join(
		routing.HandleTx(app, "billing", "charge", h.charge),
		routing.HandleTx(app, "billing", "refund", h.refund),
		routing.Handle(app, "mail", "write", h.write),
		routing.HandleTx(app, "audit", "record", h.record),
	))
	dispatcher, err := eventing.NewDispatcher(store, broker, app, eventing.DispatcherConfig{})
	check(err)

	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{Lane: table.Lane}) // for critical
	check(outbox.InTx(context.Background(), func(tx *sql.Tx) error {
		e := eventing.New("order", "1", OrderPlaced{OrderID: "1", CustomerID: "c-7", Total: 12000})
		e.ID = "o-1" // default: a UUID
		return outbox.Append(context.Background(), tx, e)
	}))

	consuming, stopConsuming := context.WithTimeout(context.Background(), time.Minute) // in earnest: signal.NotifyContext
	dispatching, stopDispatching := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { check(dispatcher.Run(dispatching)) })
	go func() {
		for range 3 {
			fmt.Println(<-h.told)
		}
		stopConsuming() // three consumers have the event; what is running is still concluded
	}()
	check(errors.Join(app.Run(consuming), broker.Close())) // first the consumers, so that what they conclude is settled
	stopDispatching()
	running.Wait()

	var charged float64
	check(store.Reader().QueryRow(`SELECT sum(amount) FROM charges`).Scan(&charged))
	fmt.Println("charged:", charged)
	check(errors.Join(store.Close(), os.RemoveAll(dir)))
	// Unordered output:
	// billing charges 12000 for order 1
	// mail writes thanks_large to [sales], priority immediate, about o-1
	// audit records order_placed o-1: {"order_id":"1","customer_id":"c-7","total":12000}
	// charged: 12000
}
