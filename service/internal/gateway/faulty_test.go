package gateway

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Gateways with a part of the tests' in them, as programs. The product has no
// switch for any of it. They say when they are where a crash would hurt.
const (
	// slow waits before each conclusion and is else as it should be.
	slow = "slow"
	// settleEarly marks a row as sent when the broker has the event, before the
	// consumer has concluded: what the broker has in memory is lost with the process.
	settleEarly = "settle early"
	// inboxOutside commits the effect before the inbox row: who dies in between does
	// it again.
	inboxOutside = "inbox outside"
)

// window is how long a faulty gateway stays where a crash would hurt. A healthy
// one is there for less than a millisecond, too short for a few kills to hit.
const window = 40 * time.Millisecond

func runProgram(program string) (exitCode int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	run := func() error { return runFaulty(ctx, program) }
	if program == committer {
		run = func() error { return runCommitter(ctx) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runFaulty(ctx context.Context, fault string) error {
	cfg := testConfig(os.Getenv("STORE_URL"), os.Getenv("HMAC_SECRET"))
	cfg.HTTPAddr, cfg.LeaseTTL = os.Getenv("HTTP_ADDR"), crashLeaseTTL
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg.Ready = func(s Started) { fmt.Println(s.URL) }
	cfg.wrap = func(r replaceable) replaceable { return withFault(r, fault) }
	return Run(ctx, cfg)
}

func withFault(r replaceable, fault string) replaceable {
	linger := lingerer(func() { fmt.Println(fault) })
	switch events := r.events.(type) {
	case *pgstore.Store:
		r.events = faultyStore(events, linger, fault, func(ctx context.Context, tx pgx.Tx, id string) error {
			_, err := tx.Exec(ctx, forget, id)
			return err
		})
	case store.Events:
		r.events = faultyStore(events, linger, fault, func(ctx context.Context, tx *sql.Tx, id string) error {
			_, err := tx.ExecContext(ctx, forget, id)
			return err
		})
	}
	if fault == settleEarly {
		r.publisher = earlyPublisher{r.publisher.(eventing.CompletionPublisher)}
	}
	return r
}

// forget: the ledger would do for an inbox.
const forget = `UPDATE courier_ledger SET status = 'received' WHERE envelope_id = $1`

func faultyStore[Tx any](events transactional[Tx], linger func(context.Context), fault string, forget func(context.Context, Tx, string) error) store.Library {
	if fault == inboxOutside {
		return outsideStore[Tx]{events, linger, forget}
	}
	return slowStore[Tx]{events, linger}
}

// lingerer returns what stays for the window, and tells when it does first.
func lingerer(tell func()) func(context.Context) {
	tell = sync.OnceFunc(tell)
	return func(ctx context.Context) {
		tell()
		select {
		case <-ctx.Done():
		case <-time.After(window):
		}
	}
}

// testConfig is that of a gateway on a free port with quick retries.
func testConfig(storeURL, secret string) Config {
	return Config{
		HTTPAddr: "127.0.0.1:0", StoreURL: storeURL, BrokerURL: "inproc:", HMACSecret: secret, AdminToken: secret,
		SignatureMaxSkew: courier.DefaultMaxSkew, RetryMaxAttempts: 5, RetryBackoffBaseMS: 20, RetryBackoffMultiplier: 2,
		ProcessedTTLDays: 30, DLQTTLDays: 90, WorkerConcurrency: 8, WorkerBatch: 1, ShipmentEventsMaxLen: 1_000_000, LeaseTTL: 5 * time.Second, ShutdownTimeout: 10 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	}
}

type transactional[Tx any] interface {
	store.Library
	eventing.OutboxStore[Tx]
}

type slowStore[Tx any] struct {
	transactional[Tx]
	linger func(context.Context)
}

func (s slowStore[Tx]) Succeed(ctx context.Context, r eventing.Success) error {
	s.linger(ctx)
	return s.transactional.Succeed(ctx, r)
}

type outsideStore[Tx any] struct {
	transactional[Tx]
	linger func(context.Context)
	forget func(ctx context.Context, tx Tx, eventID string) error
}

func (s outsideStore[Tx]) Succeed(ctx context.Context, r eventing.Success) error {
	if err := s.InTx(ctx, func(tx Tx) error {
		if err := r.Effect(ctx, tx); err != nil {
			return err
		}
		return s.forget(ctx, tx, r.EventID)
	}); err != nil {
		return err
	}
	s.linger(ctx)
	r.Effect = nil
	return s.transactional.Succeed(ctx, r)
}

type earlyPublisher struct{ eventing.CompletionPublisher }

func (p earlyPublisher) PublishWithCompletion(topic string, done func(*message.Message, error), msgs ...*message.Message) error {
	if err := p.CompletionPublisher.PublishWithCompletion(topic, func(*message.Message, error) {}, msgs...); err != nil {
		return err
	}
	for _, m := range msgs {
		done(m, nil)
	}
	return nil
}
