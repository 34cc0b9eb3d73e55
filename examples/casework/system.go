package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

//go:embed routes.yaml
var routesFile []byte

// config is what differs between the demonstration and the tests.
type config struct {
	now      func() time.Time // default: time.Now
	switches *switches        // default: all is well
	leaseTTL time.Duration    // default: that of the library
	poll     time.Duration    // default: that of the library
	logger   *slog.Logger
}

// system is the whole of it in one process: the four engines, and what connects them.
type system struct {
	db     *database
	table  *routing.Table
	outbox *eventing.Outbox[*sql.Tx]
	log    *eventlog.Log
	tally  *tally

	notifier *notifier
	app      *routing.Router

	broker     *inproc.Broker
	dispatcher *eventing.Dispatcher
	pruner     *eventing.Pruner
}

// kept is how long sent events stay in the outbox: as long as a story takes, so that the audit at its end
// can account for all of them, and less than the audit log keeps any.
const kept = pause * 24 * time.Hour

func newSystem(db *database, cfg config) (*system, error) {
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.switches == nil {
		cfg.switches = new(switches)
	}
	table, err := routing.Parse("routes.yaml", routesFile, nil)
	if err != nil {
		return nil, err
	}
	s := &system{db: db, table: table, tally: newTally(), broker: inproc.New(inproc.Config{})}
	// Events of a case have several writers, the people and three engines: the keys are locked, so that their order is
	// that of the commits.
	s.outbox = eventing.NewOutbox(db.events, eventing.OutboxConfig{SerializeKeys: true, Lane: table.Lane, Now: cfg.now})
	if s.log, err = eventlog.New(eventlog.Config{Dialect: db.log, Retention: table.Retention(), Now: cfg.now}); err != nil {
		return nil, err
	}
	s.notifier = &notifier{outbox: s.outbox, read: db.read, provider: &provider{switches: cfg.switches}}
	suspicions := &fraud{s.outbox, cfg.switches}
	s.app, err = routing.New(router.Config{
		Store: db.events, Subscriber: s.broker, LeaseTTL: cfg.leaseTTL, PollInterval: cfg.poll, Now: cfg.now, Logger: cfg.logger, Observer: s.tally.observer(),
	}, table, routing.Config{
		Lookups: lookups(db.read, cfg.switches), Upcasters: upcasters,
		Exhausted: map[string]map[string]eventing.Action{
			notificationEngine: {eventing.ActionFallback: s.notifier.fallBack},
			fraudEngine:        {eventing.ActionDefault: suspicions.assumeMedium},
		},
	})
	if err != nil {
		return nil, err
	}
	err1 := errors.Join(
		s.notifier.register(s), (&auditor{s.log, cfg.switches}).register(s), (&workflow{s.outbox, cfg.now}).register(s), suspicions.register(s),
		s.app.Ready(),
	)
	var err2, err3 error
	s.dispatcher, err2 = eventing.NewDispatcher(db.events, s.broker, s.app, eventing.DispatcherConfig{
		LeaseTTL: cfg.leaseTTL, PollInterval: cfg.poll, Now: cfg.now, Logger: cfg.logger,
	})
	s.pruner, err3 = eventing.NewPruner(db.events, eventing.PrunerConfig{
		SentRetention: kept, Also: map[string]eventing.PruneFunc{"events": s.log.Pruner(db.write)}, Now: cfg.now, Logger: cfg.logger,
	})
	return s, errors.Join(err1, err2, err3)
}

// handleTx registers the handler of an action, in the transaction that concludes the event, and has it counted.
func handleTx[T any](s *system, consumer, action string, fn func(context.Context, *sql.Tx, eventing.Event[T], routing.Action) error) error {
	return routing.HandleTx(s.app, consumer, action, func(ctx context.Context, tx *sql.Tx, e eventing.Event[T], a routing.Action) error {
		err := fn(ctx, tx, e, a)
		if err == nil {
			s.tally.did(consumer, action)
		}
		return err
	})
}

// handle is the same outside of any transaction.
func handle[T any](s *system, consumer, action string, fn func(context.Context, eventing.Event[T], routing.Action) error) error {
	return routing.Handle(s.app, consumer, action, func(ctx context.Context, e eventing.Event[T], a routing.Action) error {
		err := fn(ctx, e, a)
		if err == nil {
			s.tally.did(consumer, action)
		}
		return err
	})
}

// run dispatches and consumes until ctx ends. It stops the consumers first and the
// dispatcher last, so that what they concluded is settled.
func (s *system) run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { _ = s.dispatcher.Run(background) }) // it logs its errors
	running.Go(func() { _ = s.pruner.Run(background) })     // so does it
	err := errors.Join(s.app.Run(ctx), s.broker.Close())
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
