package eventing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// HandlerFunc handles one event. ctx ends with the policy's timeout; it carries
// the event's correlation ID, and, for a transactional consumer, the
// transaction: see [TxFromContext]. The error steers what happens next: see
// [Permanent] and [RetryAfter]; any other error is tried again.
type HandlerFunc func(ctx context.Context, e Envelope) error

// Conclusion is how a run ended, as it is about to be committed.
type Conclusion struct {
	Consumer string
	Envelope Envelope
	State    State // StateNone: processed; StateRetrying, StateDead
	Attempts int   // the handler's runs so far, this one included unless snoozed
	Snoozed  bool  // by [RetryAfter]: it was no attempt
	// RoutingVersion is that of the table that sent the event; empty: it had none.
	RoutingVersion string
	Reason         ReasonCode
	// Err is the handler's; nil if it succeeded. The event may be processed all the same: see
	// [Policy.OnExhausted].
	Err error
}

// Message returns the error's text, as bounded as it is in the store; "" without one.
func (c Conclusion) Message() string {
	if c.Err == nil {
		return ""
	}
	return truncate(c.Err.Error())
}

// ConsumerConfig configures a [Consumer].
type ConsumerConfig struct {
	// Name identifies the consumer in the store, for ever. Needed; at most 255 bytes.
	Name   string
	Policy Policy
	// Transactional: the handler runs in the transaction that records the event as
	// processed, so its effect happens exactly once. Otherwise it runs before that
	// transaction, at least once.
	Transactional bool
	// Prepare runs at each attempt before the handler and before its transaction begins, so that
	// waiting for others, such as a lookup over the network, holds up no lock of the store and no transaction.
	// The handler gets the result from [Prepared]. Both share the policy's Timeout: what Prepare takes is
	// missing to the handler. Its errors and panics count as the handler's. A crash costs nothing but
	// the run: what was prepared is gone, and prepared anew. Not for batches. Default: none.
	Prepare PrepareFunc
	// Batch is for [NewBatchConsumer].
	Batch BatchPolicy
	// Codec of the messages. Default: [EnvelopeCodec].
	Codec Codec
	// OnConclude runs in the transaction that concludes a run, after all else. An error
	// rolls it back, and it is tried again. Default: none.
	OnConclude func(ctx context.Context, tx any, c Conclusion) error
	// Actions are the consumer's own, by the names that Policy.OnExhausted has for them.
	Actions map[string]Action
	// Observer is told what the consumer does. Default: nobody.
	Observer *Observer
	// Tracer makes the spans of attempts. Default: none.
	Tracer Tracer
	// LeaseScope of an ordered consumer's partitions. Default: its name. An in-process
	// broker's consumers have [DispatchScope]: whatever the dispatcher of their process
	// holds they hold, so that a partition is consumed where it is dispatched.
	LeaseScope string
	// LeaseTTL as in [DispatcherConfig]. Default: 4 s.
	LeaseTTL time.Duration
	// ShutdownGrace is how long a running handler may go on after its context's parent
	// has ended. What has not been concluded by then is delivered again; it counts
	// as no attempt. Default: 10 s.
	ShutdownGrace time.Duration
	// PollInterval is the longest time between two looks for deliveries that are
	// due. Default: 500 ms.
	PollInterval time.Duration
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Random feeds the jitter, in [0, 1). Default: math/rand/v2.
	Random func() float64
	// Holder as in [DispatcherConfig].
	Holder string
}

// Consumer takes events through a handler into the consumer's store: arrive,
// run, conclude; and again from the store, while a delivery is in trouble. It
// is safe for concurrent use.
type Consumer struct {
	store   ConsumerStore
	cfg     ConsumerConfig
	handle  HandlerFunc
	leases  *leaseholder // nil unless ordered
	batches *batcher     // nil if events are handled one by one

	breaker  *Breaker
	observer Observer

	slots   chan struct{} // runs at a time
	nudged  chan struct{}
	mu      sync.Mutex
	running map[string]struct{} // event IDs being redelivered
	due     time.Time           // the earliest retry that was recorded here
}

// CheckConsumerName reports whether a consumer can have this name: 1 to 255 bytes of
// UTF-8, without commas, which separate names in messages, and control characters.
func CheckConsumerName(name string) error {
	bad := func(r rune) bool { return r == ',' || unicode.IsControl(r) }
	if name == "" || len(name) > maxNameBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("consumer %q: a name has 1 to %d bytes of UTF-8, no commas and no control characters", name, maxNameBytes)
	}
	return nil
}

// NewConsumer returns a consumer of store.
func NewConsumer(store ConsumerStore, handle HandlerFunc, cfg ConsumerConfig) (*Consumer, error) {
	if store == nil || handle == nil {
		return nil, errors.New("consumer: a store and a handler are needed")
	}
	if err := CheckConsumerName(cfg.Name); err != nil {
		return nil, err
	}
	if err := cfg.Policy.Validate(); err != nil {
		return nil, fmt.Errorf("consumer %s: %w", cfg.Name, err)
	}
	if cfg.Batch != (BatchPolicy{}) {
		return nil, fmt.Errorf("consumer %s: Batch is for handlers of batches (NewBatchConsumer, router.HandleBatchTx); this consumer handles events one by one", cfg.Name)
	}
	cfg.Policy = cfg.Policy.WithDefaults()
	if err := cfg.checkActions(); err != nil {
		return nil, fmt.Errorf("consumer %s: %w", cfg.Name, err)
	}
	if cfg.Policy.Guarantee == ExactlyOnce && !cfg.Transactional {
		return nil, fmt.Errorf("consumer %s: %s needs a handler that runs in the transaction of the inbox; this one does not", cfg.Name, ExactlyOnce)
	}
	if cfg.Codec == nil {
		cfg.Codec = EnvelopeCodec{}
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = defaultLeaseTTL
	}
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 500 * time.Millisecond
	}
	if cfg.ShutdownGrace == 0 {
		cfg.ShutdownGrace = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Logger = cfg.Logger.With("consumer", cfg.Name)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	c := &Consumer{
		store: store, cfg: cfg, handle: handle,
		slots: make(chan struct{}, cfg.Policy.Concurrency), nudged: make(chan struct{}, 1),
		running: map[string]struct{}{}, observer: cfg.Observer.complete(),
	}
	c.breaker = NewBreaker(cfg.Policy.Breaker, cfg.Now, func(s BreakerState) {
		level := slog.LevelInfo
		if s == BreakerOpen {
			level = slog.LevelWarn
		}
		c.cfg.Logger.Log(context.Background(), level, "consumer: the circuit breaker changed its state", "state", s)
		c.observer.Breaker(cfg.Name, s)
	})
	if cfg.Policy.Ordered {
		c.leases = &leaseholder{
			store: store, scope: or(cfg.LeaseScope, "consumer/"+cfg.Name), holder: or(cfg.Holder, processHolder()),
			ttl: cfg.LeaseTTL, now: cfg.Now, follows: cfg.LeaseScope == DispatchScope, gained: c.nudge, observed: c.observer.Lease,
		}
	}
	return c, nil
}

// Name returns the consumer's name.
func (c *Consumer) Name() string { return c.cfg.Name }

// Policy returns the consumer's policy, its defaults filled in.
func (c *Consumer) Policy() Policy { return c.cfg.Policy }

// Codec returns the codec of the consumer's messages.
func (c *Consumer) Codec() Codec { return c.cfg.Codec }

// Ordered reports whether the consumer is an ordered one, which subscribes to
// the partitions that it has leased; see Leases.
func (c *Consumer) Ordered() bool { return c.leases != nil }

// Leases acquires and renews the partitions of an ordered consumer, if it is time
// to, and returns those that it holds now.
func (c *Consumer) Leases(ctx context.Context) ([]Lease, error) {
	if c.leases == nil {
		return nil, nil
	}
	err := c.leases.refresh(ctx)
	return c.leases.live(), err
}

// Receive takes a message from the broker to its conclusion. If it returns nil,
// ack the message: the event is processed, or the store has it (to be retried,
// parked or dead). Handlers' failures are never an error here. While the store
// cannot record a conclusion, Receive waits and tries again; it returns an
// error only once ctx has ended. Then neither is recorded, and the broker will
// deliver the message again.
func (c *Consumer) Receive(ctx context.Context, m *message.Message) error {
	if !AddressedTo(m.Metadata, c.cfg.Name) {
		return nil
	}
	from, err := originOf(m.Metadata)
	var e Envelope
	if err == nil {
		e, err = c.cfg.Codec.Unmarshal(m)
	}
	key := e.OrderKey()
	if id := m.Metadata.Get("event_id"); err == nil && isSynthetic(id) {
		e.ID, key = id, "" // the replay of a dead letter that is known by this ID: its place in the order is lost
	}
	if err != nil {
		return c.quarantine(ctx, m.Payload, from.generation, from.outboxSeq, err)
	}
	payload, err := c.encode(e)
	if err != nil {
		return c.quarantine(ctx, m.Payload, from.generation, from.outboxSeq, err)
	}
	d := Delivery{
		Consumer: c.cfg.Name, EventID: e.ID, EventType: e.Type, Generation: from.generation, Force: from.force, OutboxSeq: from.outboxSeq,
		Payload: payload, Partition: PartitionOf(key, e.ID), RoutingVersion: RoutingVersion(m.Metadata),
	}
	if c.cfg.Policy.Ordered {
		d.OrderingKey = or(key, e.ID)
	}
	ctx = tracedAs(ctx, m.Metadata, e)
	receive := c.receive
	if c.batches != nil {
		receive = c.batches.receiver()
	}
	return c.insist(ctx, "receive "+e.ID, func(ctx context.Context) error { return receive(ctx, d, e) })
}

// encode encodes what the codec has made of a message.
func (c *Consumer) encode(e Envelope) ([]byte, error) {
	if _, ours := c.cfg.Codec.(EnvelopeCodec); ours && !isSynthetic(e.ID) { // that ID is the metadata's
		return encodeDecoded(e)
	}
	return EncodeEnvelope(e)
}

// receive makes one try at a delivery. An error means that nothing is concluded.
func (c *Consumer) receive(ctx context.Context, d Delivery, e Envelope) error {
	lease, done, err := c.leaseFor(ctx, d.Partition)
	if err != nil {
		return err
	}
	defer done()
	run, undecided, err := c.arrive(ctx, d, e, lease)
	if err != nil || !undecided {
		return err
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.slots }()
	return c.attempt(ctx, run, e)
}

// arrive asks the store what to do about a delivery, and does all that is not for the
// handler.
func (c *Consumer) arrive(ctx context.Context, d Delivery, e Envelope, lease *Lease) (run Run, undecided bool, err error) {
	decision, run, err := c.store.Arrive(ctx, d, lease, c.cfg.Now())
	if err != nil {
		if errors.Is(err, ErrLeaseLost) {
			c.leases.doubt()
		}
		return run, false, err
	}
	if err := Fault(ctx, FaultArrived); err != nil {
		return run, false, err
	}
	switch decision {
	case DecideAck:
		c.observer.Duplicate(c.cfg.Name, e.Type)
		return run, false, nil
	case DecidePark:
		c.observer.Parked(c.cfg.Name, e.Type)
		c.nudge()
		return run, false, nil
	}
	run.Lease = lease
	return run, true, nil
}

// errBreakerOpen: the handler is not to be called; whoever waits for the breaker may try
// again.
var errBreakerOpen = errors.New("the circuit breaker is open")

// attempt runs the handler on a delivery, in a slot, if the breaker lets it.
func (c *Consumer) attempt(ctx context.Context, run Run, e Envelope) error {
	leave := c.breaker.TryEnter()
	if leave == nil {
		return errBreakerOpen
	}
	defer leave(ErrNoAttempt)
	return c.run(ctx, run, e, leave)
}

var errNoLease = errors.New("the partition is leased to another worker")

// leaseFor returns the lease that an ordered consumer's writes need. Until done is called it
// is not given back.
func (c *Consumer) leaseFor(ctx context.Context, partition int) (lease *Lease, done func(), err error) {
	if c.leases == nil {
		return nil, func() {}, nil // unordered consumers need none
	}
	for range 2 {
		if err := c.leases.refresh(ctx); err != nil {
			return nil, nil, err
		}
		if lease, ok := c.leases.take(partition); ok {
			return &lease, func() { c.leases.use(partition, -1) }, nil
		}
		c.leases.doubt() // it may be a new one
	}
	return nil, nil, errNoLease
}

// nudge has the redelivery look now.
func (c *Consumer) nudge() {
	select {
	case c.nudged <- struct{}{}:
	default:
	}
}
