package gateway

import (
	"errors"
	"net/http"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/httpapi"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/reads"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// replaceable is what tests may replace.
type replaceable struct {
	events    store.Library // of the worker
	publisher message.Publisher
}

// gateway is what runs. Of parts that do not run, some things are nil.
type gateway struct {
	cfg        Config
	backend    *backend.Backend
	server     *http.Server
	metrics    *metrics
	intake     *intake.Intake // nil without the API
	broker     *broker        // nil for the API alone, unless it publishes
	router     *router.Router
	dispatcher *eventing.Dispatcher
	pruner     *eventing.Pruner
	pressure   *pressure    // of the API
	files      []secretFile // of secrets, which may change
}

func assemble(cfg Config, b *backend.Backend) (*gateway, error) {
	g := &gateway{cfg: cfg, backend: b}
	var err error
	if g.metrics, err = newMetrics(b.Events, cfg.Logger); err != nil {
		return nil, err
	}
	if cfg.needsBroker() {
		if err := g.connect(); err != nil {
			return nil, err
		}
	}
	if cfg.Parts.has(Dispatch | Work) {
		if err := g.process(); err != nil {
			return nil, errors.Join(err, g.letGo())
		}
	}
	handler, err := g.handler()
	if err != nil {
		return nil, errors.Join(err, g.letGo())
	}
	g.server = httpapi.NewServer(cfg.HTTPAddr, handler, cfg.Logger)
	return g, nil
}

// connect makes the broker.
func (g *gateway) connect() error {
	open, err := parseBroker(g.cfg.BrokerURL)
	if err != nil {
		return err
	}
	g.broker, err = open(g.cfg)
	return err
}

// process makes dispatcher and worker.
func (g *gateway) process() (err error) {
	cfg, b := g.cfg, g.backend
	r := replaceable{events: b.Events, publisher: g.broker.publisher}
	if cfg.wrap != nil {
		r = cfg.wrap(r)
	}
	if g.broker.ping != nil {
		r.events = b.Telling(r.events, deadLetterRow)
	}
	if g.router, err = router.New(router.Config{
		Store: r.events, Subscriber: g.broker.subscriber, LeaseTTL: cfg.LeaseTTL, Logger: cfg.Logger, CloseTimeout: cfg.ShutdownTimeout,
		Observer: g.metrics.observer, Now: cfg.now,
	}); err != nil {
		return err
	}
	policy := cfg.policy()
	policy.InboxRetention = b.InboxTTL
	if err := b.Register(g.router, policy, backend.Worker{
		Batch: cfg.WorkerBatch, Logger: cfg.Logger, Now: cfg.now,
		Tells: g.broker.ping != nil && cfg.ShipmentEventsMaxLen > 0, // in the process, nobody could read it
	}); err != nil {
		return err
	}
	if g.dispatcher, err = eventing.NewDispatcher(b.Events, r.publisher, queueRoutes{g.router}, eventing.DispatcherConfig{
		LeaseTTL: cfg.LeaseTTL, DeadLetterRetention: cfg.deadLetterTTL(), Logger: cfg.Logger, Observer: g.metrics.observer, Now: cfg.now,
	}); err != nil {
		return err
	}
	g.pruner, err = eventing.NewPruner(b.Events, eventing.PrunerConfig{Logger: cfg.Logger, Now: cfg.now})
	return err
}

// handler is the API's, or one for the health of the process. The API is ready without
// the broker, if what it takes in waits in the outbox.
func (g *gateway) handler() (http.Handler, error) {
	b := g.backend
	checks := []httpapi.Check{{Name: "store", Ready: b.Ping}}
	if !g.cfg.Parts.has(API) || g.cfg.direct() {
		checks = append(checks, httpapi.Check{Name: "broker", Ready: g.broker.ping})
	}
	if !g.cfg.Parts.has(API) {
		return httpapi.NewHealth(checks, g.metrics.handler, g.cfg.Logger), nil
	}
	keyring, err := g.keys()
	if err != nil {
		return nil, err
	}
	tokens, err := g.tokens()
	if err != nil {
		return nil, err
	}
	g.intake = g.newIntake()
	letters := eventing.NewDeadLetters(b.Events)
	g.pressure = newPressure(g.cfg, b)
	if err := g.metrics.register(g.pressure.refused, g.pressure.overloaded, g.pressure.pendingIs); err != nil {
		return nil, err
	}
	return httpapi.New(httpapi.Config{
		Acceptor:    g.intake,
		Reader:      &reads.Reads{Shipments: b.Shipments, Ledger: b.Ledger, DeadLetters: letters, Worker: worker.Consumer},
		DeadLetters: letters,
		Keyring:     keyring, Tokens: tokens, MaxSkew: g.cfg.SignatureMaxSkew, Logger: g.cfg.Logger, Now: g.cfg.now, Checks: checks,
		Metrics: g.metrics.handler, Overloaded: g.pressure.Overloaded,
	})
}

func (g *gateway) newIntake() *intake.Intake {
	if g.cfg.direct() {
		return intake.New(intake.Config{Store: &intake.Direct{Publisher: g.broker.publisher, Topic: worker.Queue}, Direct: true})
	}
	return intake.New(intake.Config{Store: g.backend.Receiver(), Outbox: eventing.OutboxConfig{Now: g.cfg.now}})
}

// letGo closes the connections to the broker.
func (g *gateway) letGo() error {
	if g.broker == nil {
		return nil
	}
	return g.broker.close()
}
