package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// ErrClosed is returned by calls on a closed publisher.
var ErrClosed = errors.New("redisbroker: the publisher is closed: make a new one and publish again")

// Bounds of a transaction, during which Redis serves nobody else: some 2 ms for a
// thousand messages of a kilobyte.
const (
	defaultTransactionMessages = 1_000
	maxTransactionMessages     = 100_000
	defaultTransactionBytes    = 4 << 20
	maxTransactionBytes        = 256 << 20 // Redis drops clients that send 1 GiB without an end
)

// PublisherConfig configures a [Publisher]. The zero value is good.
type PublisherConfig struct {
	// TransactionMessages is how many messages a transaction has at most. Default:
	// 1,000. At most 100,000.
	TransactionMessages int
	// TransactionBytes is how large the payloads and metadata of a transaction are at
	// most, in bytes; a message that is larger goes alone. Default: 4 MiB. At most 256 MiB.
	TransactionBytes int
	// MaxLen is how many messages a stream keeps, more or less, that every consumer group
	// has acked: the publisher has Redis drop older ones now and then. What a group has
	// yet to read, or to ack, stays whatever there is of it, and so does a stream without
	// groups. If the server has no memory left, all that is acked is dropped. Default: 10,000.
	// Negative: none are dropped.
	MaxLen int64
	// TrimUnread has Redis drop all but the newest MaxLen messages, whether anybody has
	// read them or not.
	TrimUnread bool
	// Marshaller makes the fields of a stream's entry. Default: those that
	// watermill-redisstream's DefaultMarshallerUnmarshaller reads, made faster.
	Marshaller Marshaller
	// Logger. Default: slog.Default().
	Logger *slog.Logger
}

// Marshaller makes the fields of a stream's entry from a message: strings, bytes, or
// what go-redis takes besides. Those of watermill-redisstream are ones. It is called
// from several goroutines, and more than once for a message that does not fit into the
// transaction under way.
type Marshaller interface {
	Marshal(topic string, msg *message.Message) (map[string]any, error)
}

func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	if c.TransactionMessages == 0 {
		c.TransactionMessages = defaultTransactionMessages
	}
	if c.TransactionBytes == 0 {
		c.TransactionBytes = defaultTransactionBytes
	}
	if c.MaxLen == 0 {
		c.MaxLen = defaultMaxLen
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.TransactionMessages < 0 || c.TransactionMessages > maxTransactionMessages:
		return c, fmt.Errorf("redisbroker: TransactionMessages is %d: set 1 to %d", c.TransactionMessages, maxTransactionMessages)
	case c.TransactionBytes < 0 || c.TransactionBytes > maxTransactionBytes:
		return c, fmt.Errorf("redisbroker: TransactionBytes is %d: set 1 to %d", c.TransactionBytes, maxTransactionBytes)
	case c.MaxLen < 0 && c.TrimUnread:
		return c, fmt.Errorf("redisbroker: MaxLen is %d with TrimUnread: set how many messages to keep", c.MaxLen)
	}
	return c, nil
}

// Publisher publishes to Redis streams. Its methods may be called from several
// goroutines.
type Publisher struct {
	client       redis.UniversalClient
	cfg          PublisherConfig
	closed       atomic.Bool
	transactions sync.Pool // *transaction
	calls        sync.Pool // *call
	gatherer     gatherer
	trimmer      trimmer
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher that uses the client, which stays the caller's to
// close. It does not connect. It refuses a client whose ContextTimeoutEnabled is off.
func NewPublisher(client redis.UniversalClient, cfg PublisherConfig) (*Publisher, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{client: client, cfg: cfg}, nil
}

func checkClient(client redis.UniversalClient) error {
	switch {
	case client == nil:
		return errors.New("redisbroker: the client is nil: give one")
	case !heedsDeadlines(client):
		return errors.New("redisbroker: the client would ignore deadlines: set ContextTimeoutEnabled in its options")
	}
	return nil
}

// heedsDeadlines is true of clients of others' making.
func heedsDeadlines(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return c.Options().ContextTimeoutEnabled
	}
	return true
}

// momentary is an answer of the server that is not about the messages: it has no memory
// left, say, or is a replica by now.
type momentary struct{ error }

func (m momentary) Unwrap() error { return m.error }

// Temporary tells callers that no message is at fault.
func (momentary) Temporary() bool { return true }

func marked(err error) error {
	for _, prefix := range []string{
		"OOM", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "UNKILLABLE", "max number of clients",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return momentary{err}
		}
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return momentary{err}
	}
	return err
}

// Publish adds the messages to the topic's stream, in order, and returns nil once
// Redis has acknowledged all of them. Else the error says how many it has, which are the
// first ones, and wraps the cause; more may have been added if the connection broke
// (see the package's documentation). A message that cannot be encoded fails the call
// before its transaction is sent. An error of the server's state, such as that it is full,
// has a method Temporary, which returns true.
//
// The first message's context is that of the call: its deadline ends a wait for the
// server, its cancellation keeps what is not yet sent from being sent. After Close,
// Publish returns [ErrClosed].
//
// Calls of one message that come while others are under way share a transaction with
// each other.
func (p *Publisher) Publish(topic string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		if p.closed.Load() {
			return ErrClosed
		}
		return nil
	}
	if msgs[0] == nil {
		return fmt.Errorf("redisbroker: the first of %d messages is nil: publish without it", len(msgs))
	}
	if added, err := p.publish(msgs[0].Context(), []string{topic}, msgs); err != nil {
		return fmt.Errorf("redisbroker: stream %q has taken %d of %d messages: %w", topic, added, len(msgs), marked(err))
	}
	return nil
}

// PublishBatch adds msgs[i] to the stream of topics[i], as Publish does, all in the same
// transactions. If a topic's key is no stream, that topic takes nothing and the others of the
// transaction do: the error counts the messages before the first that was not taken. With a cluster, whose transactions are of one slot each, it does nothing
// but return [errors.ErrUnsupported].
func (p *Publisher) PublishBatch(ctx context.Context, topics []string, msgs []*message.Message) error {
	if _, single := p.client.(*redis.Client); !single {
		return fmt.Errorf("redisbroker: a transaction over several streams of a %T: %w", p.client, errors.ErrUnsupported)
	}
	if len(topics) != len(msgs) {
		return fmt.Errorf("redisbroker: %d topics for %d messages: give each message its topic", len(topics), len(msgs))
	}
	if len(msgs) == 0 {
		return nil
	}
	if added, err := p.publish(ctx, topics, msgs); err != nil {
		return fmt.Errorf("redisbroker: of a batch of %d messages, %d are taken: %w", len(msgs), added, marked(err))
	}
	return nil
}

// publish adds the messages to their topics' streams and returns how many Redis has
// acknowledged.
func (p *Publisher) publish(ctx context.Context, topics []string, msgs []*message.Message) (added int, err error) {
	if p.closed.Load() {
		return 0, ErrClosed
	}
	for i, m := range msgs {
		if m == nil {
			return 0, fmt.Errorf("message %d of %d is nil: publish without it", i+1, len(msgs))
		}
	}
	defer func() { p.trim(ctx, topics, added, err) }()
	if _, single := p.client.(*redis.Client); single && len(msgs) == 1 {
		if err := p.publishOne(ctx, topics[0], msgs[0]); err != nil {
			return 0, err
		}
		return 1, nil
	}
	tx, ok := p.transactions.Get().(*transaction)
	if !ok {
		tx = new(transaction)
	}
	defer p.transactions.Put(tx)
	for rest := topics; added < len(msgs); {
		n, err := p.add(ctx, tx, rest, msgs[added:])
		added += n
		if err != nil {
			return added, err
		}
		rest = rest[min(n, len(rest)-1):] // one is that of all messages
	}
	return added, nil
}

// add sends the first messages, as many as a transaction may have, and returns how many
// were added. One topic is that of all messages.
func (p *Publisher) add(ctx context.Context, tx *transaction, topics []string, msgs []*message.Message) (int, error) {
	defer tx.reset()
	if err := tx.encode(p.cfg, topics, msgs[:min(len(msgs), p.cfg.TransactionMessages)]); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return tx.outcome(p.exec(ctx, tx.commands))
}

// exec sends commands as a transaction.
func (p *Publisher) exec(ctx context.Context, commands []redis.Cmder) error {
	pipeline := p.client.TxPipeline()
	if err := pipeline.BatchProcess(ctx, commands...); err != nil {
		return err
	}
	_, err := pipeline.Exec(ctx)
	return err
}

// Close has Publish return [ErrClosed] from now on; calls under way end by themselves.
// It leaves the client open.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}
