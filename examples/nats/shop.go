package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/router"
)

// StatusChanged is an event of an order.
type StatusChanged struct{ Order, Status string }

// Every order goes through these, one after the other.
var statuses = []string{"placed", "packed", "shipped"}

// Nothing is unique here: an effect that happened twice would show.
const tables = `CREATE TABLE IF NOT EXISTS effects (id INTEGER PRIMARY KEY, consumer TEXT, number TEXT, what TEXT)`

// shop is one process: it appends to an outbox, dispatches, and consumes.
type shop struct {
	store      *sqlitestore.Store
	outbox     *eventing.Outbox[*sql.Tx]
	router     *router.Router
	dispatcher *eventing.Dispatcher
	conn       *nats.Conn
}

func open(ctx context.Context, url, file, holder string) (*shop, error) {
	store, err := sqlitestore.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	s := &shop{store: store, outbox: eventing.NewOutbox(store, eventing.OutboxConfig{})}
	conn, pub, sub, err := connect(url)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s.conn = conn
	if err := s.wire(ctx, pub, sub, holder); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close is for when run has returned.
func (s *shop) close() error {
	s.conn.Close()
	return s.store.Close()
}

func (s *shop) wire(ctx context.Context, pub message.Publisher, sub message.Subscriber, holder string) (err error) {
	if _, err := s.store.DB().ExecContext(ctx, tables); err != nil {
		return err
	}
	if err := provision(ctx, s.conn); err != nil {
		return err
	}
	if s.router, err = router.New(router.Config{Store: s.store, Subscriber: sub, Holder: holder}); err != nil {
		return err
	}
	policy := eventing.Policy{Concurrency: workers, Timeout: handlerTimeout, Retry: eventing.RetryPolicy{Base: 100 * time.Millisecond}}
	inOrder := policy
	inOrder.Ordered = true
	err1 := s.router.AddConsumer(router.Consumer{Name: billing, Policy: policy})
	err2 := s.router.AddConsumer(router.Consumer{Name: tracking, Policy: inOrder})
	err3 := router.HandleTx(s.router, billing, func(ctx context.Context, tx *sql.Tx, e eventing.Event[StatusChanged]) error {
		if e.Payload.Status != statuses[0] {
			return nil
		}
		return effect(ctx, tx, billing, e.Payload.Order, "invoiced")
	})
	err4 := router.HandleTx(s.router, tracking, func(ctx context.Context, tx *sql.Tx, e eventing.Event[StatusChanged]) error {
		return effect(ctx, tx, tracking, e.Payload.Order, e.Payload.Status)
	})
	var err5 error
	s.dispatcher, err5 = eventing.NewDispatcher(s.store, pub, s.router, eventing.DispatcherConfig{Holder: holder})
	return errors.Join(err1, err2, err3, err4, err5)
}

func effect(ctx context.Context, tx *sql.Tx, consumer, number, what string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO effects (consumer, number, what) VALUES (?, ?, ?)`, consumer, number, what)
	return err
}

// run dispatches and consumes until ctx ends; what is running then is still concluded.
func (s *shop) run(ctx context.Context) error {
	var dispatching sync.WaitGroup
	dispatching.Go(func() { _ = s.dispatcher.Run(ctx) }) // it logs its errors
	defer dispatching.Wait()
	return s.router.Run(ctx)
}

// place appends all that happens to an order, each status in a transaction of its own.
func (s *shop) place(ctx context.Context, number string) error {
	for _, status := range statuses {
		if err := s.outbox.InTx(ctx, func(tx *sql.Tx) error {
			return s.outbox.Append(ctx, tx, eventing.New("order", number, StatusChanged{Order: number, Status: status}))
		}); err != nil {
			return err
		}
	}
	return nil
}

// effects returns all effects, those of each order and consumer as they came.
func (s *shop) effects(ctx context.Context) (lines []string, err error) {
	rows, err := s.store.Reader().QueryContext(ctx, `SELECT number || ': ' || consumer || ': ' || what FROM effects ORDER BY number, consumer, id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}
