package inproc

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

var (
	// ErrClosed is returned by calls on a closed broker, and reported for messages
	// that had not been acked when it closed. Publish them to a new broker.
	ErrClosed = errors.New("inproc: the broker is closed: open a new one and publish again")

	// ErrAbandoned is reported for a message that one subscription did not ack before it
	// ended, while others have. Publish it again for whoever is subscribed now;
	// those who have acked it will see it twice.
	ErrAbandoned = errors.New("inproc: a subscription ended before it acked the message: publish it again")
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
// several goroutines. A topic exists from its first use until Close.
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
		b.topics[name] = &topic{name: name, broker: b}
	}
	return b.topics[name]
}

// topic is where a published message meets the subscriptions.
type topic struct {
	name   string
	broker *Broker

	mu       sync.Mutex
	closed   bool
	seq      uint64          // of the last message published
	subs     []*subscription // the oldest first
	retained []*entry        // in order of seq; empty while there are subs
	// last is the subscription that left its deliveries in retained; their
	// acks count until the next subscription gets them.
	last *subscription
}

// Close ends all subscriptions and closes their channels, waits for the
// broker's goroutines, and reports every message that is not acked with [ErrClosed].
// It does not wait for handlers: an ack that comes before that report counts, one that comes after it
// is lost, and the message has to be published again. It always returns nil; further calls do
// nothing, but wait for the first. Do not call it from a done function.
//
// Watermill's router closes the subscribers it was given before its handlers are through: to let
// them finish, end the subscriptions by their context, and close the broker after the router.
func (b *Broker) Close() error {
	b.closing.Do(b.close)
	return nil
}

func (b *Broker) close() {
	b.mu.Lock()
	b.closed = true
	topics := b.topics
	b.mu.Unlock()

	holders := make(map[*topic][]*subscription, len(topics))
	for _, t := range topics {
		holders[t] = t.close()
	}
	b.goroutines.Wait()

	unacked := 0
	for _, t := range topics {
		unacked += t.conclude(holders[t])
	}
	b.cfg.Logger.Info("Broker closed", watermill.LogFields{"unacked": unacked})
}

// close refuses what is new and stops what runs. It returns the subscriptions that still
// hold messages of the topic.
func (t *topic) close() []*subscription {
	t.mu.Lock()
	t.closed = true
	subs := slices.Clone(t.subs)
	holders := subs
	if t.last != nil {
		close(t.last.gone)
		holders = append(holders, t.last)
	}
	t.mu.Unlock()
	for _, s := range subs {
		s.cancel()
	}
	return holders
}

// conclude reports what is left when nothing runs any more, and returns how
// many messages were not acked. It takes no lock: done may call the broker.
func (t *topic) conclude(holders []*subscription) (unacked int) {
	for _, s := range holders {
		for _, d := range s.inFlight {
			if isAcked(d.msg) && d.entry.ack() {
				d.entry.report(d.entry.outcome())
			}
		}
	}
	fail := func(e *entry) {
		if e.msg == nil { // reported, perhaps for another holder
			return
		}
		unacked++
		e.report(ErrClosed)
	}
	for _, e := range t.retained {
		fail(e)
	}
	for _, s := range holders {
		for _, d := range s.inFlight {
			fail(d.entry)
		}
		for _, e := range s.queue.rest() {
			fail(e)
		}
	}
	return unacked
}
