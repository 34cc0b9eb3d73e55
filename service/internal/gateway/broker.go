package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/service/internal/store"
)

// broker is how events get from the dispatcher to the worker. Nothing of it waits for a
// server: while that is down, both try on.
type broker struct {
	publisher  message.Publisher
	subscriber message.Subscriber
	// ping checks that the server answers; nil: there is none.
	ping func(context.Context) error
	// close lets go of the server, and has fail what still waits for it.
	close func() error
}

// inProcess is the address of the broker that is part of the process.
const inProcess = "inproc:"

// parseBroker returns what opens the broker of an address.
func parseBroker(address string) (open func(Config) (*broker, error), err error) {
	scheme, _, _ := strings.Cut(address, "://")
	switch {
	case address == inProcess:
		return openInProcess, nil
	case scheme == "redis", scheme == "rediss":
		options, err := redis.ParseURL(address)
		if err != nil || store.Unescaped(address) {
			return nil, notAnAddress(address, scheme, "6379/0")
		}
		return func(cfg Config) (*broker, error) { return openRedis(options, cfg) }, nil
	case scheme == "postgres", scheme == "postgresql":
		config, err := pgx.ParseConfig(address)
		if err != nil || store.Unescaped(address) {
			return nil, notAnAddress(address, scheme, "5432/waybill")
		}
		return func(cfg Config) (*broker, error) { return openPostgres(config, cfg) }, nil
	}
	return nil, fmt.Errorf("BROKER_URL is %q: it must be %s, redis://…, rediss://… or postgres://…", masked(address), inProcess)
}

// masked returns a broker's address without its password and options.
func masked(address string) string {
	address, _, _ = strings.Cut(store.Masked(address), "?")
	return address
}

// notAnAddress leaves out what the parser says, which may quote a part of the password.
func notAnAddress(address, scheme, path string) error {
	return fmt.Errorf("BROKER_URL %q cannot be read: it must look like %s://user:password@host:%s, special characters of the password as %%XX", masked(address), scheme, path)
}

func openInProcess(Config) (*broker, error) {
	b := inproc.New(inproc.Config{Logger: watermill.NopLogger{}})
	return &broker{publisher: unheard{b}, subscriber: b, close: func() error { return nil }}, nil
}

// openRedis uses one client for all: each of publisher, reader and acks has a connection of
// its pool in turn.
func openRedis(options *redis.Options, cfg Config) (*broker, error) {
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1 // dispatcher and subscriber back off by themselves, and say so
	redis.SetLogger(redisLog{cfg.Logger})
	client := redis.NewClient(options)
	b := &broker{ping: func(ctx context.Context) error { return client.Ping(ctx).Err() }, close: sync.OnceValue(client.Close)}
	publisher, pubErr := redisbroker.NewPublisher(client, redisbroker.PublisherConfig{Logger: cfg.Logger})
	subscriber, subErr := redisbroker.NewSubscriber(client, redisbroker.SubscriberConfig{
		ClaimAfter: max(cfg.LeaseTTL, time.Second), CloseTimeout: cfg.ShutdownTimeout, Logger: cfg.Logger,
	})
	b.publisher, b.subscriber = newBounded(publisher, cfg, dropFromRedis(client)), subscriber
	if err := errors.Join(pubErr, subErr); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// redisLog takes what the client would write to standard error, whatever the format of
// the log. It is for who looks into the client: errors come back to who calls it.
type redisLog struct{ *slog.Logger }

// Printf implements the client's interface.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.DebugContext(ctx, "redis: "+fmt.Sprintf(format, args...))
}

// Connections to PostgreSQL as a broker, which are not those to the store: a subscriber
// keeps one, and nothing of the store is to wait for it.
const (
	brokerConns          = 8
	brokerConnectTimeout = 5 * time.Second
)

func openPostgres(config *pgx.ConnConfig, cfg Config) (*broker, error) {
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, brokerConnectTimeout)
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(brokerConns)
	db.SetMaxIdleConns(brokerConns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	b := &broker{ping: db.PingContext, close: sync.OnceValue(db.Close)}
	publisher, pubErr := sqlbroker.NewPublisher(db, sqlbroker.PublisherConfig{})
	subscriber, subErr := sqlbroker.NewSubscriber(db, sqlbroker.SubscriberConfig{
		TakeOverAfter: max(cfg.LeaseTTL, time.Second), CloseTimeout: cfg.ShutdownTimeout, Logger: cfg.Logger,
	})
	b.publisher, b.subscriber = newBounded(publisher, cfg, dropFromPostgres(db)), subscriber
	if err := errors.Join(pubErr, subErr); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}
