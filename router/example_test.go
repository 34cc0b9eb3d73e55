package router_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"

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

func Example() {
	dir, err := os.MkdirTemp("", "waybill")
	check(err)
	defer os.RemoveAll(dir) //nolint:errcheck // a folder for temporary files
	file, invoiced := filepath.Join(dir, "orders.db"), make(chan string, 1)
	createTables(file)

	// README: begin
	ctx, stop := context.WithCancel(context.Background())
	store, err := sqlitestore.Open(ctx, file)
	check(err)
	broker := inproc.New(inproc.Config{})
	r, err := router.New(router.Config{Store: store, Subscriber: broker})
	check(err)
	check(router.HandleTx(r, "billing", func(ctx context.Context, tx *sql.Tx, e eventing.Event[OrderPlaced]) error {
		defer func() { invoiced <- e.Payload.Number }()
		_, err := tx.ExecContext(ctx, `INSERT INTO invoices VALUES (?)`, e.Payload.Number)
		return err // nil: the invoice commits together with the record that the event is processed
	}))
	dispatcher, err := eventing.NewDispatcher(store, broker, r, eventing.DispatcherConfig{})
	check(err)
	var running sync.WaitGroup
	running.Go(func() { check(r.Run(ctx)) })
	running.Go(func() { check(dispatcher.Run(ctx)) })

	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	check(outbox.InTx(ctx, func(tx *sql.Tx) error { // the order and its event commit together, or not at all
		_, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, "7")
		check(err)
		return outbox.Append(ctx, tx, eventing.New("order", "7", OrderPlaced{Number: "7"}))
	}))
	fmt.Println("invoiced:", <-invoiced)
	stop() // handlers that are running are concluded
	running.Wait()
	check(store.Close())
	// README: end

	// Output: invoiced: 7
}
