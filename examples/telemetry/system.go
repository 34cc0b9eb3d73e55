package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/router"
)

// The consumers' names. They are for ever: under another name, a consumer would
// process again what is sent again.
const (
	statisticsConsumer = "statistics"
	settlementConsumer = "settlement"
	billingConsumer    = "billing-report"
)

// config is what differs between the demonstration and the tests.
type config struct {
	settlement eventing.Policy
	leaseTTL   time.Duration // default: that of the library
	poll       time.Duration // default: that of the library
	logger     *slog.Logger
}

// system is the whole pipeline in one process.
type system struct {
	stations

	broker     *inproc.Broker
	router     *router.Router
	dispatcher *eventing.Dispatcher
	pruner     *eventing.Pruner
}

func newSystem(store eventStore, cfg config) (*system, error) {
	s := &system{
		stations: stations{eventing.NewOutbox(store, eventing.OutboxConfig{})},
		broker:   inproc.New(inproc.Config{}),
	}
	var err1, err2, err3 error
	s.router, err1 = router.New(router.Config{
		Store: store, Subscriber: s.broker, LeaseTTL: cfg.leaseTTL, PollInterval: cfg.poll, Logger: cfg.logger,
	})
	s.dispatcher, err2 = eventing.NewDispatcher(store, s.broker, s.router, eventing.DispatcherConfig{
		LeaseTTL: cfg.leaseTTL, PollInterval: cfg.poll, Logger: cfg.logger,
	})
	s.pruner, err3 = eventing.NewPruner(store, eventing.PrunerConfig{Logger: cfg.logger})
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	return s, s.register(cfg.settlement)
}

// register declares who handles what. All three consumers are unordered: what a
// window costs does not depend on the window before it, so a station's later windows
// need not wait for one that failed. With Ordered they would; other stations' would
// not even then.
func (s *system) register(settlement eventing.Policy) error {
	return errors.Join(
		s.router.AddConsumer(router.Consumer{Name: settlementConsumer, Policy: settlement}),
		router.HandleTx(s.router, statisticsConsumer, s.calculateStatistic),
		router.HandleTx(s.router, settlementConsumer, s.calculateSettlement),
		router.HandleTx(s.router, billingConsumer, addToBill),
	)
}

// run dispatches and consumes until ctx ends. It stops the consumers first and the
// dispatcher last, so that what they concluded is settled.
func (s *system) run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { _ = s.dispatcher.Run(background) }) // it logs its errors
	running.Go(func() { _ = s.pruner.Run(background) })     // so does it
	err := errors.Join(s.router.Run(ctx), s.broker.Close())
	stop()
	running.Wait()
	return err
}

// during runs the system while do runs. If the system cannot, do's context ends.
func (s *system) during(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- s.run(ctx)
	}()
	err := do(ctx)
	cancel()
	return errors.Join(err, <-ended)
}

// waitUntilQuiet waits until nothing is on its way any more: all is processed, or a
// dead letter.
func waitUntilQuiet(ctx context.Context, db *sql.DB) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// One statement, one snapshot: an event that leads to the next is still pending
		// when that one appears.
		var busy int
		if err := db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM event_outbox WHERE status = 'pending') +
			(SELECT count(*) FROM event_deliveries WHERE state <> 'dead')`).Scan(&busy); err != nil {
			return err
		}
		if busy == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
