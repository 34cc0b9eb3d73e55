package router_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/router"
)

// OrderPlaced is an event; its type's name is that of the event's type.
type OrderPlaced struct{ Number string }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func createTables(file string) {
	store, err := sqlitestore.Open(context.Background(), file)
	check(err)
	_, err = store.DB().Exec(`CREATE TABLE orders (number TEXT PRIMARY KEY); CREATE TABLE invoices (number TEXT)`)
	check(err)
	check(store.Close())
}

func invoices(file string) (numbers []string) {
	store, err := sqlitestore.Open(context.Background(), file)
	check(err)
	defer store.Close()
	rows, err := store.Reader().Query(`SELECT number FROM invoices`)
	check(err)
	defer rows.Close()
	for rows.Next() {
		var number string
		check(rows.Scan(&number))
		numbers = append(numbers, number)
	}
	check(rows.Err())
	return numbers
}

func Example() {
	dir, err := os.MkdirTemp("", "waybill")
	check(err)
	defer os.RemoveAll(dir) //nolint:errcheck // a folder for temporary files
	file := filepath.Join(dir, "orders.db")
	createTables(file)

	// README: begin
	ctx, stop := context.WithCancel(context.Background())
	store, err := sqlitestore.Open(ctx, file)
	check(err)
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	check(outbox.InTx(ctx, func(tx *sql.Tx) error { // the order and its event commit together, or not at all
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, "7"); err != nil {
			return err
		}
		return outbox.Append(ctx, tx, eventing.New("order", "7", OrderPlaced{Number: "7"}))
	}))

	broker := inproc.New(inproc.Config{})
	r, err := router.New(router.Config{Store: store, Subscriber: broker})
	check(err)
	check(router.HandleTx(r, "billing", func(ctx context.Context, tx *sql.Tx, e eventing.Event[OrderPlaced]) error {
		defer stop() // one invoice is enough here; a handler that is running is still concluded
		_, err := tx.ExecContext(ctx, `INSERT INTO invoices VALUES (?)`, e.Payload.Number)
		return err // nil: the invoice commits together with the record that the event is processed
	}))
	dispatcher, err := eventing.NewDispatcher(store, broker, r, eventing.DispatcherConfig{})
	check(err)
	dispatching, stopDispatching := context.WithCancel(context.Background())
	dispatched := make(chan error)
	go func() { dispatched <- dispatcher.Run(dispatching) }()
	check(errors.Join(r.Run(ctx), broker.Close())) // until stop: first the router, then the broker,
	stopDispatching()                              // last the dispatcher, so that what is concluded is settled
	check(errors.Join(<-dispatched, store.Close()))
	// README: end

	fmt.Println("invoices:", invoices(file))
	// Output: invoices: [7]
}
