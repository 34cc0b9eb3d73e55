package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Run runs the parts of the gateway in this process until ctx ends. Then it
// drains: no new requests, the running ones answered, what the worker has in
// hand concluded, all within the shutdown timeout; what is left goes on at the
// next start, or in another process.
func Run(ctx context.Context, cfg Config) error {
	cfg.Parts = cmp.Or(cfg.Parts, All)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.LookupEnv == nil {
		cfg.LookupEnv = os.LookupEnv
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	b, err := backend.Open(ctx, cfg.StoreURL, backend.Config{ProcessedTTL: cfg.processedTTL(), DeadLetterTTL: cfg.deadLetterTTL()})
	if err != nil {
		return err
	}
	err = run(ctx, cfg, b)
	return errors.Join(err, b.Close())
}

func run(ctx context.Context, cfg Config, b *backend.Backend) error {
	started, err := cfg.secrets(b.Embedded)
	if err != nil {
		return err
	}
	if steps, err := b.Migrate(ctx); err != nil {
		return err
	} else if len(steps) > 0 {
		cfg.Logger.Info("schema brought up to date", "applied", steps)
	}
	g, err := assemble(cfg, b)
	if err != nil {
		return err
	}
	started.Embedded = b.Embedded
	var listener net.Listener
	if cfg.HTTPAddr != "" {
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HTTPAddr); err != nil {
			return errors.Join(fmt.Errorf("HTTP_ADDR: %w: give another, as in :8081, if something else listens there", err), g.letGo())
		}
		started.URL = "http://" + reachable(listener.Addr())
	}
	if cfg.Ready != nil {
		cfg.Ready(started)
	}
	cfg.Logger.Info("gateway runs", "parts", cfg.Parts.String(), "url", started.URL, "store", store.Masked(cfg.StoreURL), "broker", masked(cfg.BrokerURL))
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

// serve runs the parts, and stops them in the order of an event's life.
func (g *gateway) serve(ctx context.Context, listener net.Listener) error {
	var running, working sync.WaitGroup
	failed := make(chan error, 2)
	background := context.WithoutCancel(ctx)
	dispatchCtx, stopDispatch := context.WithCancel(background)
	defer stopDispatch()
	workCtx, stopWork := context.WithCancel(background)
	defer stopWork()

	if listener != nil {
		running.Go(func() {
			if err := g.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	if g.pressure != nil {
		running.Go(func() { g.pressure.watch(workCtx) })
	}
	if g.cfg.Parts.has(Work) {
		working.Go(func() {
			if err := g.router.Run(workCtx); err != nil {
				failed <- err
			}
		})
		running.Go(func() { g.sweep(workCtx) })
	}
	if g.cfg.Parts.has(Dispatch) {
		running.Go(func() { _ = g.dispatcher.Run(dispatchCtx) }) // logs its errors
		running.Go(func() { _ = g.pruner.Run(workCtx) })         // logs its errors
	}
	running.Go(func() { g.tryBroker(workCtx) })
	running.Go(func() { g.reread(workCtx) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	g.cfg.Logger.Info("gateway stops", "within", g.cfg.ShutdownTimeout)
	drain, cancel := context.WithTimeout(background, g.cfg.ShutdownTimeout)
	defer cancel()
	cut := context.AfterFunc(drain, func() { _ = g.letGo() }) // nobody waits for a broker any longer
	if stopErr := g.server.Shutdown(drain); stopErr != nil {
		err = errors.Join(err, fmt.Errorf("stop the API: %w", stopErr), g.server.Close())
	}
	if g.intake != nil {
		_ = g.intake.Close(drain) // what nobody waits for any longer
	}
	stopWork()
	err = errors.Join(err, within(drain, func() error {
		working.Wait()
		if g.broker == nil {
			return nil
		}
		return g.broker.subscriber.Close()
	}))
	if drain.Err() != nil {
		g.cfg.Logger.Warn("gateway: not all could be finished in time; what was not goes on at the next start")
	}
	stopDispatch()
	running.Wait()
	cut()
	err = errors.Join(err, g.letGo())
	g.cfg.Logger.Info("gateway stopped")
	return err
}

// within waits for f until ctx ends.
func within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}

// brokerTimeout is how long a broker may take to answer at the start.
const brokerTimeout = 5 * time.Second

// tryBroker tells who starts the gateway that the broker does not answer, or takes no
// such password. It is no reason to stop: whoever needs it tries on.
func (g *gateway) tryBroker(ctx context.Context) {
	if g.broker == nil || g.broker.ping == nil {
		return
	}
	pingCtx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	if err := g.broker.ping(pingCtx); err != nil && ctx.Err() == nil {
		until := "events wait in the outbox"
		if g.cfg.direct() {
			until = "events are refused"
		}
		g.cfg.Logger.Warn("gateway: the broker does not answer; "+until+", and it is tried again", "broker", masked(g.cfg.BrokerURL), "error", err)
	}
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
			n, err := g.backend.Ledger.Sweep(ctx, g.cfg.now(), sweepBatch)
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
