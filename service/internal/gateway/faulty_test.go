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

	"github.com/waybill-go/waybill/eventing"
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
	events := r.events.(store.Events) // of an SQL database
	linger := lingerer(func() { fmt.Println(fault) })
	r.events = slowStore{events, linger}
	switch fault {
	case settleEarly:
		r.publisher = earlyPublisher{r.publisher.(eventing.CompletionPublisher)}
	case inboxOutside:
		r.events = outsideStore{events, linger}
	}
	return r
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

type slowStore struct {
	store.Events
	linger func(context.Context)
}

func (s slowStore) Succeed(ctx context.Context, r eventing.Success) error {
	s.linger(ctx)
	return s.Events.Succeed(ctx, r)
}

type outsideStore struct {
	store.Events
	linger func(context.Context)
}

func (s outsideStore) Succeed(ctx context.Context, r eventing.Success) error {
	if err := s.InTx(ctx, func(tx *sql.Tx) error {
		if err := r.Effect(ctx, tx); err != nil {
			return err
		}
		// The ledger would do for an inbox.
		_, err := tx.ExecContext(ctx, `UPDATE courier_ledger SET status = 'received' WHERE envelope_id = $1`, r.EventID)
		return err
	}); err != nil {
		return err
	}
	s.linger(ctx)
	r.Effect = nil
	return s.Events.Succeed(ctx, r)
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
