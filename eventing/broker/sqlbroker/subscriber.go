package sqlbroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// SubscriberConfig configures a [Subscriber].
type SubscriberConfig struct {
	// Group is the consumer group: each message goes to one subscriber of it. Subscribe
	// needs one; a router names its consumers instead. A group that does not exist begins
	// with the first message that there is.
	Group string
	// Window is how many messages of a topic are out before the first of them is acked.
	// With 1, they come in their order, also if one is nacked. Default: 64. At most 10,000.
	Window int
	// Batch is how many messages of a topic are read at a time at most (fewer at first, and
	// if they are more than some 8 MiB), and how far the subscriber
	// gets ahead of one that is not acked, unless Window is more: so many are in memory,
	// and so many may be delivered again after a crash although they were acked.
	// Default: 100. At most 10,000.
	Batch int
	// PollInterval is how often the subscriber looks for new messages, in all topics at
	// once. It looks less often if that takes the server more than a tenth of the time.
	// Default: 100 ms. At least 1 ms.
	PollInterval time.Duration
	// TakeOverAfter is how long the messages of a process that hangs, or is cut off from the
	// server, wait before another's subscriber takes them; those of one that ended come
	// at once. Needs Postgres 14: an older one waits for TCP to notice. Default: 30 s. At
	// least 1 s.
	TakeOverAfter time.Duration
	// NackDelay is how long after a nack the message is delivered again: so long at
	// first, twice as long each time, and 100 times as long at most. Default: 100 ms.
	NackDelay time.Duration
	// CloseTimeout is how long a subscription that ends waits for its messages to be
	// acked. What is not goes to another subscriber. Default: 10 s.
	CloseTimeout time.Duration
	// CleanInterval is how often messages that every group of their topic has acked are
	// deleted, of the topics that are subscribed to. Default: 1 minute. Negative: never.
	CleanInterval time.Duration
	// Logger. Default: slog.Default().
	Logger *slog.Logger
}

const (
	defaultWindow        = 64
	defaultBatch         = 100
	maxWindow            = 10_000
	defaultPollInterval  = 100 * time.Millisecond
	defaultTakeOverAfter = 30 * time.Second
	defaultNackDelay     = 100 * time.Millisecond
	maxNackFactor        = 100
	defaultCloseTimeout  = 10 * time.Second
	defaultCleanInterval = time.Minute
)

func (c SubscriberConfig) withDefaults() (SubscriberConfig, error) {
	for value, byDefault := range map[*int]int{&c.Window: defaultWindow, &c.Batch: defaultBatch} {
		if *value == 0 {
			*value = byDefault
		}
	}
	for value, byDefault := range map[*time.Duration]time.Duration{
		&c.PollInterval: defaultPollInterval, &c.TakeOverAfter: defaultTakeOverAfter, &c.NackDelay: defaultNackDelay,
		&c.CloseTimeout: defaultCloseTimeout, &c.CleanInterval: defaultCleanInterval,
	} {
		if *value == 0 {
			*value = byDefault
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Window < 1 || c.Window > maxWindow:
		return c, fmt.Errorf("sqlbroker: Window is %d: set 1 to %d", c.Window, maxWindow)
	case c.Batch < 1 || c.Batch > maxWindow:
		return c, fmt.Errorf("sqlbroker: Batch is %d: set 1 to %d", c.Batch, maxWindow)
	case c.PollInterval < time.Millisecond:
		return c, fmt.Errorf("sqlbroker: PollInterval is %v: set 1ms or more", c.PollInterval)
	case c.TakeOverAfter < time.Second || c.TakeOverAfter < 5*c.PollInterval:
		return c, fmt.Errorf("sqlbroker: TakeOverAfter is %v: set 1s or more, and five times PollInterval", c.TakeOverAfter)
	case c.NackDelay < 0 || c.CloseTimeout < 0:
		return c, errors.New("sqlbroker: NackDelay and CloseTimeout must not be negative")
	}
	return c, nil
}

// Subscriber subscribes to tables. Its methods may be called from several goroutines.
type Subscriber struct {
	db  *sql.DB
	cfg SubscriberConfig

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	life    context.Context // ends when the connection is given up
	endLife context.CancelFunc
	subs    sync.WaitGroup // subscriptions
	work    sync.WaitGroup // what serves them
	nudged  chan struct{}  // somebody needs the connection's attention
	session session

	preparing chan struct{} // held by the subscription that looks for its tables

	mu      sync.Mutex
	started bool
	all     map[*subscription]struct{}
	holders map[int64]*subscription // by the advisory locks that the session holds
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber returns a subscriber that keeps one of the database's connections to
// itself while it has subscriptions, and briefly uses another to make tables. The
// database stays the caller's to close, after the subscriber. NewSubscriber does not
// connect. It refuses a database of another driver than pgx's, and one with a single
// connection: nobody else could use that any more.
func NewSubscriber(db *sql.DB, cfg SubscriberConfig) (*Subscriber, error) {
	if err := checkDB(db); err != nil {
		return nil, err
	}
	if db.Stats().MaxOpenConnections == 1 {
		return nil, errors.New("sqlbroker: a subscriber keeps one of the database's connections, and there is only one: set MaxOpenConns to 2 or more, one more for each subscriber")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Subscriber{
		db: db, cfg: cfg, nudged: make(chan struct{}, 1), session: session{turn: make(chan struct{}, 1)},
		preparing: make(chan struct{}, 1),
		all:       map[*subscription]struct{}{}, holders: map[int64]*subscription{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.life, s.endLife = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe delivers the topic's messages until ctx ends or the subscriber is closed;
// then the channel is closed, once those that are out have been acked, or CloseTimeout
// is over. It does not wait for the server: while that is down, it tries on and
// delivers nothing. It makes the topic's tables if there are none.
//
// Of a group's subscribers, one at a time has a topic's messages; the others wait until
// it ends. A message that is acked is not delivered again, but for a crash of the server or
// of the process within some 50 ms, or while an older one is not acked yet (see
// SubscriberConfig.Batch). One that is nacked is, after NackDelay, to the same
// subscription. One that is neither until the subscription ends, or its process dies,
// goes to another subscriber of the group.
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
// else of its group is to read: one message at a time, in order, those first that a
// former holder of the lease had in hand, whether it lives or not. Who has lost the lease
// ends the context; its acks do no harm.
func (s *Subscriber) SubscribePartition(ctx context.Context, topic, consumer string) (<-chan *message.Message, error) {
	return s.subscribe(ctx, topic, consumer, 1, true)
}

// SubscribeInitialize makes the topic's tables and the consumer group.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if err := errors.Join(checkTopic(topic), checkGroup(s.cfg.Group)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	if _, err := tablesOf(ctx, s.db, topic); err != nil {
		return err
	}
	if _, err := s.db.ExecContext(ctx, joinSQL(topic), s.cfg.Group); err != nil {
		return fmt.Errorf("sqlbroker: make the consumer group %q of topic %q: %w", s.cfg.Group, topic, err)
	}
	return nil
}

func (s *Subscriber) subscribe(ctx context.Context, topic, group string, window int, leased bool) (<-chan *message.Message, error) {
	if err := errors.Join(checkTopic(topic), checkGroup(group)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, ErrSubscriberClosed
	}
	if !s.started {
		s.started = true
		s.work.Go(s.attend)
		s.work.Go(s.cleanUp)
	}
	t := newSubscription(ctx, s, topic, group, window, leased)
	s.all[t] = struct{}{}
	s.subs.Go(t.run)
	return t.out, nil
}

// ErrSubscriberClosed is returned by calls on a closed subscriber.
var ErrSubscriberClosed = errors.New("sqlbroker: the subscriber is closed: make a new one and subscribe again")

// Close ends all subscriptions, waits as Subscribe says, and 2 seconds longer for a
// server that hangs. It leaves the database open.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	impatient := time.AfterFunc(s.cfg.CloseTimeout+2*time.Second, s.endLife)
	defer impatient.Stop()
	s.subs.Wait()
	s.endLife()
	s.work.Wait()
	return nil
}
