package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/httpapi"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/reads"
	"github.com/waybill-go/waybill/service/internal/shipments"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// parts are those that tests may replace.
type parts struct {
	consumerStore eventing.ConsumerStore
	publisher     eventing.CompletionPublisher
}

// Run runs API, dispatcher and worker in this process until ctx ends. Then it
// drains: no new requests, the running ones answered, what the worker has in
// hand concluded, all within the shutdown timeout; what is left goes on at the
// next start.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	s, err := store.Open(ctx, cfg.StoreURL)
	if err != nil {
		return err
	}
	err = run(ctx, cfg, s)
	return errors.Join(err, s.Close())
}

func run(ctx context.Context, cfg Config, s *store.Store) error {
	made, err := cfg.secrets(s.Embedded)
	if err != nil {
		return err
	}
	if steps, err := s.Migrate(ctx); err != nil {
		return err
	} else if len(steps) > 0 {
		cfg.Logger.Info("schema brought up to date", "applied", steps)
	}
	g, err := assemble(cfg, s)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HTTPAddr)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR: %w", err)
	}
	made.URL, made.Embedded = "http://"+reachable(listener.Addr()), s.Embedded
	if cfg.Ready != nil {
		cfg.Ready(made)
	}
	cfg.Logger.Info("gateway serves", "url", made.URL, "store", store.Masked(cfg.StoreURL), "broker", cfg.BrokerURL)
	return g.serve(ctx, listener)
}

// reachable is the address for a client on this machine: one that stands for all
// interfaces is none to call.
func reachable(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return a.String()
}

// gateway is what runs.
type gateway struct {
	cfg        Config
	server     *http.Server
	router     *router.Router
	dispatcher *eventing.Dispatcher
	pruner     *eventing.Pruner
	ledger     *ledger.Ledger
	broker     *inproc.Broker
}

func assemble(cfg Config, s *store.Store) (*gateway, error) {
	keyring, err := courier.NewKeyring(courier.Secret{Value: []byte(cfg.HMACSecret)})
	if err != nil {
		return nil, fmt.Errorf("HMAC_SECRET: %w", err)
	}
	g := &gateway{cfg: cfg, broker: inproc.New(inproc.Config{Logger: watermill.NopLogger{}})}
	p := parts{consumerStore: s.Events, publisher: g.broker}
	if cfg.wrap != nil {
		p = cfg.wrap(p)
	}
	shipped := shipments.New(s)
	g.ledger = ledger.New(s, time.Duration(cfg.ProcessedTTLDays)*day)
	if g.router, err = router.New(router.Config{
		Store: p.consumerStore, Subscriber: g.broker, LeaseTTL: cfg.LeaseTTL, Logger: cfg.Logger, CloseTimeout: cfg.ShutdownTimeout,
	}); err != nil {
		return nil, err
	}
	w := &worker.Worker{Shipments: shipped, Ledger: g.ledger, Now: time.Now}
	if err := w.Register(g.router, cfg.policy()); err != nil {
		return nil, err
	}
	if g.dispatcher, err = eventing.NewDispatcher(s.Events, p.publisher, g.router, eventing.DispatcherConfig{
		LeaseTTL: cfg.LeaseTTL, DeadLetterRetention: time.Duration(cfg.DLQTTLDays) * day, Logger: cfg.Logger,
	}); err != nil {
		return nil, err
	}
	if g.pruner, err = eventing.NewPruner(s.Events, eventing.PrunerConfig{Logger: cfg.Logger}); err != nil {
		return nil, err
	}
	handler, err := httpapi.New(httpapi.Config{
		Acceptor: intake.New(eventing.NewOutbox(s.Events, eventing.OutboxConfig{}), g.ledger),
		Reader:   &reads.Reads{Shipments: shipped, Ledger: g.ledger, DeadLetters: eventing.NewDeadLetters(s.Events)},
		Keyring:  keyring, AdminToken: cfg.AdminToken, MaxSkew: cfg.SignatureMaxSkew, Logger: cfg.Logger,
		Checks: []httpapi.Check{{Name: "store", Ready: s.Ping}},
	})
	if err != nil {
		return nil, err
	}
	g.server = httpapi.NewServer(cfg.HTTPAddr, handler, cfg.Logger)
	return g, nil
}

// serve runs everything, and stops it in the order of an event's life.
func (g *gateway) serve(ctx context.Context, listener net.Listener) error {
	var running sync.WaitGroup
	failed := make(chan error, 2)
	background := context.WithoutCancel(ctx)
	dispatchCtx, stopDispatch := context.WithCancel(background)
	defer stopDispatch()
	workCtx, stopWork := context.WithCancel(background)
	defer stopWork()

	working := make(chan struct{})
	go func() {
		defer close(working)
		if err := g.router.Run(workCtx); err != nil {
			failed <- err
		}
	}()
	running.Go(func() { _ = g.dispatcher.Run(dispatchCtx) }) // logs its errors
	running.Go(func() { _ = g.pruner.Run(workCtx) })         // logs its errors
	running.Go(func() { g.sweep(workCtx) })
	running.Go(func() {
		if err := g.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	g.cfg.Logger.Info("gateway stops", "within", g.cfg.ShutdownTimeout)
	drain, cancel := context.WithTimeout(background, g.cfg.ShutdownTimeout)
	defer cancel()
	if stopErr := g.server.Shutdown(drain); stopErr != nil {
		err = errors.Join(err, fmt.Errorf("stop the API: %w", stopErr), g.server.Close())
	}
	stopWork()
	select {
	case <-working:
	case <-drain.Done():
		g.cfg.Logger.Warn("gateway: handlers are still running; their events go on at the next start")
	}
	err = errors.Join(err, g.broker.Close())
	stopDispatch()
	running.Wait()
	g.cfg.Logger.Info("gateway stopped")
	return err
}

const (
	sweepEvery = time.Minute
	sweepBatch = 1000
)

// sweep removes expired ledger rows.
func (g *gateway) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		for {
			n, err := g.ledger.Sweep(ctx, time.Now(), sweepBatch)
			if err != nil && ctx.Err() == nil {
				g.cfg.Logger.Warn("gateway: sweeping the ledger failed; will try again", "error", err, "in", sweepEvery)
			}
			if err != nil || n < sweepBatch {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
