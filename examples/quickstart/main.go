// Command quickstart places an order and has it invoiced: one process, one SQLite file.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"sync"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/router"
)

// OrderPlaced is the event, and the name of its type.
type OrderPlaced struct{ Number string }

func main() {
	if err := run(context.Background(), "quickstart.db", eventing.NewID()); err != nil {
		log.Fatal(err)
	}
	log.Print("invoiced: look into quickstart.db")
}

func run(ctx context.Context, file, number string) error {
	store, err := sqlitestore.Open(ctx, file)
	if err != nil {
		return err
	}
	broker, outbox := inproc.New(inproc.Config{}), eventing.NewOutbox(store, eventing.OutboxConfig{})
	r, err1 := router.New(router.Config{Store: store, Subscriber: broker})
	dispatcher, err2 := eventing.NewDispatcher(store, broker, r, eventing.DispatcherConfig{})
	_, err3 := store.DB().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (number TEXT); CREATE TABLE IF NOT EXISTS invoices (number TEXT)`)
	consuming, stopConsuming := context.WithCancel(ctx)
	err4 := router.HandleTx(r, "billing", func(ctx context.Context, tx *sql.Tx, e eventing.Event[OrderPlaced]) error {
		if e.Payload.Number == number {
			defer stopConsuming() // whatever is running is still concluded
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO invoices VALUES (?)`, e.Payload.Number)
		return err // nil: the invoice commits together with the record that the event is processed
	})
	err5 := outbox.InTx(ctx, func(tx *sql.Tx) error { // the order and its event commit together, or not at all
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, number); err != nil {
			return err
		}
		return outbox.Append(ctx, tx, eventing.New("order", number, OrderPlaced{number}))
	})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return errors.Join(err, store.Close())
	}
	dispatching, stopDispatching := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = dispatcher.Run(dispatching) }) // it logs its errors
	err = errors.Join(r.Run(consuming), broker.Close())    // first the consumers, so that what they conclude is settled
	stopDispatching()
	running.Wait()
	return errors.Join(err, store.Close())
}
