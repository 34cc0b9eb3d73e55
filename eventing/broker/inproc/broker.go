package inproc

import (
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

var (
	// ErrClosed is returned by calls on a closed broker, and reported for messages
	// that had not been acked when it closed. Publish them to a new broker.
	ErrClosed = errors.New("inproc: the broker is closed: open a new one and publish again")

	// ErrAbandoned is reported for a message that a nameless subscription did not ack
	// before it ended, while others have. Publish it again for whoever is subscribed now;
	// those who have acked it will see it twice. Named consumers abandon nothing.
	ErrAbandoned = errors.New("inproc: a nameless subscription ended before it acked the message: publish it again")
)

// Config configures a [Broker]. The zero value is good.
type Config struct {
	// Window is how many messages of one subscription may be delivered and not yet
	// acked, for subscriptions made with [Broker.Subscribe]. Default: 1, strict order. At most 65,536.
	Window int
	// RedeliveryDelay is the wait before a message is delivered again after its first
	// nack. It doubles with every further one. Default: 100 ms.
	RedeliveryDelay time.Duration
	// RedeliveryMax is the longest such wait. Default: 30 s. Raised to
	// RedeliveryDelay if it is less.
	RedeliveryMax time.Duration
	// Logger gets nacks (debug), ends of subscriptions and the close (info).
	// Default: none.
	Logger watermill.LoggerAdapter
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 1
	}
	if c.RedeliveryDelay <= 0 {
		c.RedeliveryDelay = 100 * time.Millisecond
	}
	if c.RedeliveryMax <= 0 {
		c.RedeliveryMax = 30 * time.Second
	}
	c.RedeliveryMax = max(c.RedeliveryMax, c.RedeliveryDelay)
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
	return c
}

// Broker is an in-process publisher and subscriber. Its methods may be called from
// several goroutines. A topic exists from its first use until Close, and so do its
// named consumers.
type Broker struct {
	cfg Config
	// goroutines counts watchers and ends of subscriptions. It grows only under the
	// lock of a topic that is not closed, hence never once close waits for it.
	goroutines sync.WaitGroup
	closing    sync.Once

	mu     sync.RWMutex
	closed bool
	topics map[string]*topic
}

var (
	_ message.Publisher  = (*Broker)(nil)
	_ message.Subscriber = (*Broker)(nil)
)

// New returns a broker without topics. It uses no goroutine until it delivers.
func New(cfg Config) *Broker {
	return &Broker{cfg: cfg.withDefaults(), topics: map[string]*topic{}}
}

// topic returns the topic, made if need be, or nil if the broker is closed.
func (b *Broker) topic(name string) *topic {
	b.mu.RLock()
	t, closed := b.topics[name], b.closed
	b.mu.RUnlock()
	if t != nil || closed {
		return t
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics[name] == nil && !b.closed {
		b.topics[name] = newTopic(b, name)
	}
	return b.topics[name]
}
