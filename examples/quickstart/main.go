// Command quickstart places an order and has it invoiced: one process, one file.
// The order and its event commit together; so do the invoice and the record that
// the event has been processed.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/router"
)

const schema = `CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS invoices (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL)`

// OrderPlaced is the event, and the name of its type.
type OrderPlaced struct{ OrderID int64 }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "quickstart.db", os.Stdout); err != nil {
		log.Print(err)
	}
}

func run(ctx context.Context, file string, out io.Writer) (err error) {
	store, err := sqlitestore.Open(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	id, err := placeOrder(ctx, store, "a kettle")
	if err != nil {
		return err
	}

	broker := inproc.New(inproc.Config{})
	r, err := router.New(router.Config{Store: store, Subscriber: broker})
	if err != nil {
		return err
	}
	consuming, invoiced := context.WithCancel(ctx)
	defer invoiced()
	if err := router.HandleTx(r, "billing", func(ctx context.Context, tx *sql.Tx, e eventing.Event[OrderPlaced]) error {
		if e.Payload.OrderID == id {
			defer invoiced() // stop: this handler is still concluded
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO invoices (order_id) VALUES (?)`, e.Payload.OrderID)
		return err
	}); err != nil {
		return err
	}
	dispatcher, err := eventing.NewDispatcher(store, broker, r, eventing.DispatcherConfig{})
	if err != nil {
		return err
	}

	// Stop in the order of an event's life, so that what is concluded is settled too.
	dispatching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = dispatcher.Run(dispatching) }) // it logs its errors
	err = errors.Join(r.Run(consuming), broker.Close())
	stop()
	running.Wait()
	return errors.Join(err, report(context.WithoutCancel(ctx), store, out))
}

// placeOrder writes an order and appends its event, in one transaction.
func placeOrder(ctx context.Context, store *sqlitestore.Store, item string) (id int64, err error) {
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		return 0, err
	}
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	err = outbox.InTx(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `INSERT INTO orders (item) VALUES (?) RETURNING id`, item).Scan(&id); err != nil {
			return err
		}
		return outbox.Append(ctx, tx, eventing.New("order", fmt.Sprint(id), OrderPlaced{OrderID: id}))
	})
	return id, err
}

func report(ctx context.Context, store *sqlitestore.Store, out io.Writer) error {
	var orders, invoices, pending int
	const counts = `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM invoices), (SELECT count(*) FROM event_outbox WHERE status = 'pending')`
	if err := store.Reader().QueryRowContext(ctx, counts).Scan(&orders, &invoices, &pending); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "orders %d, invoices %d, events to send %d\n", orders, invoices, pending)
	return err
}
