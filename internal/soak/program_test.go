//go:build unix

package soak

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// spec is what a process is to be. What is zero is by default.
type spec struct {
	Dispatches, Works bool   // what it does
	Unslowed          bool   // by the race detector
	Store, Redis      string // their URLs
	Broker            string // Default: onRedis
	Topics            string // what the topics' names begin with
	Holder            string // in the leases, and in the effects
	Concurrency       int
	LeaseTTL          time.Duration
	ReadTimeout       time.Duration
	StopAt            eventing.FaultPoint // where it stops itself, the first time it comes there
	TellSettled       bool                // it tells of each settlement
	Unchecked         bool                // it does not check its leases when it concludes
	Outside           bool                // its effects commit on their own, not with the inbox row
	Doubles           bool                // it publishes each message twice
	Poisonable        bool                // it is one of those of TestSoakPoisonedKey
}

// The brokers.
const (
	onRedis    = "redis"
	onPostgres = "postgres" // the store's database
	inProcess  = "inproc"   // of a process that dispatches and works
)

// report is a line that a process says on standard output.
type report struct {
	Serving  bool
	Stopping bool
	// Settled is how many of Rows a statement settled.
	Settled int
	Rows    []int64 `json:",omitempty"`
	// Event is one whose handler stops or that is concluded, which the store may have
	// Refused.
	Event              string `json:",omitempty"`
	Concluded, Refused bool
}

// program is that of a process, which runs until SIGTERM.
func program(text string) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	run := s.run
	if s.Poisonable {
		run = s.runPoisonable
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

func (s spec) run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, s.Store)
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := s.connect()
	if err != nil {
		return err
	}
	defer b.close()
	if s.Doubles {
		b.Publisher = doubling{b.Publisher}
	}
	w := &witness{Store: pgstore.New(pool), spec: s, continued: make(chan os.Signal, 1)}
	signal.Notify(w.continued, syscall.SIGCONT)
	var parts []func(context.Context) error
	if s.Works {
		tries, err := pgxpool.New(ctx, s.Store)
		if err != nil {
			return err
		}
		defer tries.Close()
		r, err := s.worker(w, tries, b.Subscriber)
		if err != nil {
			return err
		}
		parts = append(parts, r.Run)
	}
	if s.Dispatches {
		d, err := s.dispatcher(w, b.Publisher)
		if err != nil {
			return err
		}
		parts = append(parts, d.Run)
	}
	w.tell(report{Serving: true})
	return together(eventing.WithFaults(ctx, w.stopAt), parts)
}

// together runs the parts of a process until the first ends.
func together(ctx context.Context, parts []func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error)
	for _, run := range parts {
		go func() { ended <- run(ctx) }()
	}
	var err error
	for range parts {
		err = errors.Join(err, <-ended)
		stop()
	}
	return err
}

// connection is that of a process to its broker.
type connection struct {
	message.Publisher
	message.Subscriber
	close func()
}

func (s spec) connect() (connection, error) {
	switch broker := cmp.Or(s.Broker, onRedis); broker {
	case inProcess:
		b := inproc.New(inproc.Config{})
		return connection{b, b, func() { _ = b.Close() }}, nil // always nil
	case onRedis:
		return s.connectRedis()
	case onPostgres:
		return s.connectPostgres()
	default:
		return connection{}, fmt.Errorf("there is no broker %q", broker)
	}
}

func (s spec) connectRedis() (connection, error) {
	options, err := redis.ParseURL(s.Redis)
	if err != nil {
		return connection{}, err
	}
	options.ContextTimeoutEnabled, options.MaxRetries, options.ReadTimeout = true, -1, s.ReadTimeout
	client := redis.NewClient(options)
	publisher, err := redisbroker.NewPublisher(client, redisbroker.PublisherConfig{})
	if err != nil {
		return connection{}, err
	}
	subscriber, err := redisbroker.NewSubscriber(client, redisbroker.SubscriberConfig{Logger: logger()})
	if err != nil {
		return connection{}, err
	}
	return connection{publisher, subscriber, func() {
		_, _ = subscriber.Close(), client.Close()
	}}, nil
}

func (s spec) connectPostgres() (connection, error) {
	db, err := sql.Open("pgx", s.Store)
	if err != nil {
		return connection{}, err
	}
	publisher, err := sqlbroker.NewPublisher(db, sqlbroker.PublisherConfig{})
	if err != nil {
		return connection{}, err
	}
	subscriber, err := sqlbroker.NewSubscriber(db, sqlbroker.SubscriberConfig{TakeOverAfter: time.Second, Logger: logger()})
	if err != nil {
		return connection{}, err
	}
	return connection{publisher, subscriber, func() {
		_, _ = subscriber.Close(), db.Close()
	}}, nil
}
