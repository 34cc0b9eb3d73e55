package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// SubscriberConfig configures a [Subscriber].
type SubscriberConfig struct {
	// Group is the consumer group: each message goes to one subscriber of it. Subscribe
	// needs one; a router names its consumers instead. A group that does not exist begins
	// with the first message of the stream.
	Group string
	// Consumer names this subscriber in the group; no two may have the same name at a
	// time. Default: one that nobody else has.
	Consumer string
	// Window is how many messages of a topic are out before the first of them is acked.
	// With 1, they come in their order, also if one is nacked. Default: 64. At most 10,000.
	Window int
	// Batch is how many messages of a topic are read at a time at most: fewer at first, and
	// if they are large or the link is slow, as some 8 MiB are in memory. Default: 256. At
	// most 10,000.
	Batch int
	// ClaimAfter is how long messages of a subscriber that died wait before another takes
	// them. While they are in hand, a live one tells Redis so three times in that time.
	// Default: 1 minute. At least 1 s.
	ClaimAfter time.Duration
	// NackDelay is how long after a nack the message is delivered again: so long at
	// first, twice as long each time, and 100 times as long at most. Default: 100 ms.
	NackDelay time.Duration
	// CloseTimeout is how long a subscription that ends waits for its messages to be
	// acked. What is not goes to another subscriber. Default: 10 s.
	CloseTimeout time.Duration
	// Unmarshaller makes a message of a stream's entry. Default: watermill-redisstream's
	// wire format, made faster.
	Unmarshaller Unmarshaller
	// Logger. Default: slog.Default().
	Logger *slog.Logger
}

// Unmarshaller makes a message from the fields of a stream's entry. Those of
// watermill-redisstream are ones. It is called from several goroutines.
type Unmarshaller interface {
	Unmarshal(values map[string]any) (*message.Message, error)
}

const (
	defaultWindow       = 64
	defaultBatch        = 256
	maxWindow           = 10_000
	defaultClaimAfter   = time.Minute
	defaultNackDelay    = 100 * time.Millisecond
	defaultCloseTimeout = 10 * time.Second
	defaultPatience     = 5 * time.Second
)

func (c SubscriberConfig) withDefaults() (SubscriberConfig, error) {
	if c.Consumer == "" {
		c.Consumer = watermill.NewUUID()
	}
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	if c.Batch == 0 {
		c.Batch = defaultBatch
	}
	if c.ClaimAfter == 0 {
		c.ClaimAfter = defaultClaimAfter
	}
	if c.NackDelay == 0 {
		c.NackDelay = defaultNackDelay
	}
	if c.CloseTimeout == 0 {
		c.CloseTimeout = defaultCloseTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Consumer == returned:
		return c, fmt.Errorf("redisbroker: %q is the broker's own name: take another", returned)
	case c.Window < 1 || c.Window > maxWindow:
		return c, fmt.Errorf("redisbroker: Window is %d: set 1 to %d", c.Window, maxWindow)
	case c.Batch < 1 || c.Batch > maxWindow:
		return c, fmt.Errorf("redisbroker: Batch is %d: set 1 to %d", c.Batch, maxWindow)
	case c.ClaimAfter < time.Second:
		return c, fmt.Errorf("redisbroker: ClaimAfter is %v: set 1s or more", c.ClaimAfter)
	case c.NackDelay < 0 || c.CloseTimeout < 0:
		return c, errors.New("redisbroker: NackDelay and CloseTimeout must not be negative")
	}
	return c, nil
}

// Subscriber subscribes to Redis streams. Its methods may be called from several
// goroutines.
type Subscriber struct {
	client redis.UniversalClient
	cfg    SubscriberConfig
	// apart: a command is for one topic only, as it may be on another node than others.
	apart bool
	// patience is how long a command may take, with go-redis' retries.
	patience time.Duration

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	mu      sync.Mutex
	readers []*reader
	started int
	work    sync.WaitGroup
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber returns a subscriber that uses the client, which stays the caller's to
// close, after the subscriber. It does not connect. It refuses a client whose
// ContextTimeoutEnabled is off.
func NewSubscriber(client redis.UniversalClient, cfg SubscriberConfig) (*Subscriber, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	_, single := client.(*redis.Client)
	ctx, cancel := context.WithCancel(context.Background())
	return &Subscriber{client: client, cfg: cfg, apart: !single, patience: readTimeout(client), ctx: ctx, cancel: cancel}, nil
}

// readTimeout is how long the client's owner would have Redis hang.
func readTimeout(client redis.UniversalClient) time.Duration {
	var d time.Duration
	switch c := client.(type) {
	case *redis.Client:
		d = c.Options().ReadTimeout
	case *redis.ClusterClient:
		d = c.Options().ReadTimeout
	case *redis.Ring:
		d = c.Options().ReadTimeout
	}
	if d <= 0 {
		d = defaultPatience
	}
	return d
}

// Subscribe delivers the topic's messages until ctx ends or the subscriber is closed;
// then the channel is closed, once those that are out have been acked, or CloseTimeout
// is over; up to 2 seconds later if Redis does not answer. It does not wait for Redis:
// while that is down, or has lost the stream, it tries on and delivers nothing.
//
// A message that is acked is not delivered again, unless Redis loses the ack. One that is
// nacked is, after NackDelay, to the same subscription. One that is neither until the
// subscription ends, or its process dies, goes to another subscriber of the group.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return s.subscribe(ctx, topic, s.cfg.Group, s.cfg.Window, false)
}

// SubscribeConsumer subscribes as Subscribe does, in a group of the consumer's name, with
// so many messages out before the first is acked. Consumers that share a topic get each
// message once each.
func (s *Subscriber) SubscribeConsumer(ctx context.Context, topic, consumer string, window int) (<-chan *message.Message, error) {
	return s.subscribe(ctx, topic, consumer, min(max(window, 1), maxWindow), false)
}

// SubscribePartition subscribes for a consumer that has leased the topic, which nobody
// else of its group is to read: one message at a time, in the order of the stream, those
// first that a former holder of the lease had in hand, whether it lives or not. Who has
// lost the lease ends the context; its acks do no harm.
func (s *Subscriber) SubscribePartition(ctx context.Context, topic, consumer string) (<-chan *message.Message, error) {
	return s.subscribe(ctx, topic, consumer, 1, true)
}

// SubscribeInitialize makes the topic's stream and the consumer group, within the client's
// ReadTimeout.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if s.cfg.Group == "" {
		return errNoGroup
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.patience)
	defer cancel()
	return createGroup(ctx, s.client, topic, s.cfg.Group)
}

var errNoGroup = errors.New("redisbroker: the consumer group has no name: set SubscriberConfig.Group")

// createGroup does nothing if there is one. It begins with the first entry: what is new
// may have smaller IDs than what a lost one has had.
func createGroup(ctx context.Context, client redis.UniversalClient, topic, group string) error {
	err := client.XGroupCreateMkStream(ctx, topic, group, "0").Err()
	switch {
	case err == nil || redis.HasErrorPrefix(err, "BUSYGROUP"):
		return nil
	case refused(err) && client.XPending(ctx, topic, group).Err() == nil:
		return nil // a server without memory refuses that even where there is one
	}
	return fmt.Errorf("redisbroker: create the consumer group %q of stream %q: %w", group, topic, err)
}

func (s *Subscriber) subscribe(ctx context.Context, topic, group string, window int, ordered bool) (<-chan *message.Message, error) {
	if group == "" {
		return nil, errNoGroup
	}
	if topic == "" || strings.ContainsRune(topic, 0) {
		return nil, fmt.Errorf("redisbroker: %q is no topic", topic)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, ErrSubscriberClosed
	}
	r, joined := s.join(group, topic, ordered)
	ctx, cancel := context.WithCancel(ctx)
	t := &subscription{
		stream: joined, s: s, r: r, ctx: ctx, cancel: cancel,
		out: make(chan *message.Message), window: make(chan struct{}, window), gone: make(chan struct{}),
	}
	s.work.Go(t.run)
	return t.out, nil
}

// join returns the reader of a topic, which may be a new one.
func (s *Subscriber) join(group, topic string, ordered bool) (*reader, *stream) {
	for _, r := range s.readers {
		if r.group == group {
			if joined := r.join(topic, ordered); joined != nil {
				return r, joined
			}
		}
	}
	r := newReader(s, group, s.started)
	s.started++
	s.readers = append(s.readers, r)
	joined := r.join(topic, ordered)
	s.work.Go(r.run)
	return r, joined
}

// ErrSubscriberClosed is returned by calls on a closed subscriber.
var ErrSubscriberClosed = errors.New("redisbroker: the subscriber is closed: make a new one and subscribe again")

// Close ends all subscriptions, waits as Subscribe says, and leaves the client open. If
// Redis does not answer it returns all the same, after CloseTimeout, the client's
// ReadTimeout and 5 seconds at most: what it could not tell, others find after ClaimAfter.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.work.Wait()
	return nil
}
