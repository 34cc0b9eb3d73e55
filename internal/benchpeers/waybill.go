package main

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

const anyPending = `SELECT EXISTS (SELECT 1 FROM event_outbox WHERE status = 'pending')`

// dispatcher drains the outbox with what a user gets: one ordered consumer, and
// the defaults but for what is compared.
func dispatcher(concurrency int, deleteSent bool) func(context.Context, *arena) (time.Duration, error) {
	return func(ctx context.Context, a *arena) (time.Duration, error) {
		if err := pgstore.Migrate(ctx, a.pool); err != nil {
			return 0, err
		}
		if err := a.fillOutbox(ctx); err != nil {
			return 0, err
		}
		if err := a.settle(ctx); err != nil {
			return 0, err
		}
		d, err := a.newDispatcher(pgstore.New(a.pool), eventing.DispatcherConfig{Concurrency: concurrency, DeleteSent: deleteSent})
		if err != nil {
			return 0, err
		}
		published := a.published.expect(len(a.events))
		start := time.Now()
		stop := runDispatcher(ctx, d)
		err = a.waitDrained(ctx, published, anyPending)
		took := time.Since(start)
		stop()
		return took, err
	}
}

func (a *arena) newDispatcher(store eventing.DispatchStore, config eventing.DispatcherConfig) (*eventing.Dispatcher, error) {
	config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	pub, err := redisbroker.NewPublisher(a.redis, redisbroker.PublisherConfig{})
	if err != nil {
		return nil, err
	}
	return eventing.NewDispatcher(store, pub, newRoutes(), config)
}

// runDispatcher runs d until stop is called, which waits for its end.
func runDispatcher(ctx context.Context, d *eventing.Dispatcher) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Run(ctx) // it logs its errors and returns nil
	}()
	return func() {
		cancel()
		<-ended
	}
}

// fillOutbox appends the arena's events, in large transactions.
func (a *arena) fillOutbox(ctx context.Context) error {
	outbox := eventing.NewOutbox(pgstore.New(a.pool), eventing.OutboxConfig{})
	for batch := range slices.Chunk(a.events, batchSize) {
		if err := outbox.InTx(ctx, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, appendables(batch)...) }); err != nil {
			return err
		}
	}
	return nil
}

func appendPgx(ctx context.Context, a *arena) (time.Duration, error) {
	if err := pgstore.Migrate(ctx, a.pool); err != nil {
		return 0, err
	}
	outbox := eventing.NewOutbox(pgstore.New(a.pool), eventing.OutboxConfig{})
	return a.each(ctx, "event_outbox", func(ctx context.Context, e event) error {
		return outbox.InTx(ctx, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, e.Envelope) })
	})
}

func appendSQL(ctx context.Context, a *arena) (time.Duration, error) {
	if err := pgstore.Migrate(ctx, a.pool); err != nil {
		return 0, err
	}
	db := a.openSQL()
	defer db.Close()
	outbox := eventing.NewOutbox(pgstore.NewSQL(db), eventing.OutboxConfig{})
	return a.each(ctx, "event_outbox", func(ctx context.Context, e event) error {
		return outbox.InTx(ctx, func(tx *sql.Tx) error { return outbox.Append(ctx, tx, e.Envelope) })
	})
}

func appendBatchPgx(ctx context.Context, a *arena) (time.Duration, error) {
	if err := pgstore.Migrate(ctx, a.pool); err != nil {
		return 0, err
	}
	outbox := eventing.NewOutbox(pgstore.New(a.pool), eventing.OutboxConfig{})
	return a.batches(ctx, "event_outbox", func(ctx context.Context, events []event) error {
		return outbox.InTx(ctx, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, appendables(events)...) })
	})
}

// openSQL is a database/sql handle that keeps as many connections as there are
// writers: by default it keeps two and opens the others again and again.
func (a *arena) openSQL() *sql.DB {
	db := stdlib.OpenDB(*a.pool.Config().ConnConfig)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}
