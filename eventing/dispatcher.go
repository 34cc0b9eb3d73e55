package eventing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// CompletionPublisher is a publisher in the same process as its subscribers,
// such as the in-process broker. It tells when a message has been handled, and
// the dispatcher settles no earlier: a crash before leaves the row pending.
type CompletionPublisher interface {
	message.Publisher
	// PublishWithCompletion takes the messages without waiting for anybody. done is
	// called once for each: with nil after every subscriber has acked it, with an
	// error if that cannot happen any more. If it returns an error, it has taken
	// none, and done is not called.
	PublishWithCompletion(topic string, done func(m *message.Message, err error), msgs ...*message.Message) error
}

// BatchPublisher is a publisher that takes messages of several topics at once, such as
// in one pipeline: a batch is published in one go, not topic by topic.
type BatchPublisher interface {
	message.Publisher
	// PublishBatch publishes msgs[i] to topics[i], those of one topic in their order. Its
	// messages, and those of Publish, are not to be acked.
	// If it returns an error, it may have published some: then they are published
	// again, topic by topic.
	PublishBatch(ctx context.Context, topics []string, msgs []*message.Message) error
}

// DispatcherConfig configures a [Dispatcher]. The zero value is good.
type DispatcherConfig struct {
	// BatchSize is how many rows are claimed at a time, shared out among the partitions
	// as they need it, and with a [CompletionPublisher] how many are in flight, at most
	// an eighth of them of one partition, so that a slow key does not hold up the
	// others. Default: 1,000.
	BatchSize int
	// Concurrency is how many workers share the partitions out among them. While a worker
	// publishes a batch, the one before it is settled and the next one claimed, so that one
	// keeps two processors busy. A [CompletionPublisher] has one. Default: 1.
	Concurrency int
	// DeleteSent deletes rows instead of marking them as sent. It saves most of what the
	// database does to settle them, and gives up [Requeue]: what the broker loses is lost.
	DeleteSent bool
	// PollInterval is the longest time between two looks at the outbox. Where the store
	// tells of appends in other processes, it is the usual one too; elsewhere the next
	// look comes soon after one that found something. Default: 1 s.
	PollInterval time.Duration
	// LeaseTTL is after how long another dispatcher takes over from one that
	// died. Default: 4 s. At least 100 ms.
	LeaseTTL time.Duration
	// DeadLetterRetention is how long a dead letter that the dispatcher opens
	// is kept. Default: 90 days.
	DeadLetterRetention time.Duration
	// Observer is told what the dispatcher does. Default: nobody.
	Observer *Observer
	// Tracer makes the spans of dispatch and publish. Default: none.
	Tracer Tracer
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Holder names this dispatcher in the leases. Default: an ID of the process.
	// Two dispatchers of one process that are to exclude each other need two.
	Holder string
}

func (c DispatcherConfig) withDefaults() (DispatcherConfig, error) {
	if c.BatchSize == 0 {
		c.BatchSize = 1000
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	if c.PollInterval == 0 {
		c.PollInterval = time.Second
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = defaultLeaseTTL
	}
	if c.DeadLetterRetention == 0 {
		c.DeadLetterRetention = 90 * 24 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Holder = or(c.Holder, processHolder())
	switch {
	case c.BatchSize < 1 || c.BatchSize > 10_000:
		return c, fmt.Errorf("dispatcher: BatchSize is %d; it must be from 1 to 10,000", c.BatchSize)
	case c.Concurrency < 1 || c.Concurrency > Partitions:
		return c, fmt.Errorf("dispatcher: Concurrency is %d; it must be from 1 to %d, the number of partitions", c.Concurrency, Partitions)
	case c.PollInterval < 0:
		return c, fmt.Errorf("dispatcher: PollInterval is %v; it must be positive", c.PollInterval)
	case c.LeaseTTL < 100*time.Millisecond:
		return c, fmt.Errorf("dispatcher: LeaseTTL is %v; it must be at least 100ms", c.LeaseTTL)
	case c.DeadLetterRetention < 0:
		return c, fmt.Errorf("dispatcher: DeadLetterRetention is %v; it must be positive", c.DeadLetterRetention)
	}
	return c, nil
}

// Dispatcher takes rows from the outbox to the broker: claim, route, publish,
// settle. If it dies, what was published and not settled is published again by
// the next one: delivery is at least once.
//
// Any number of dispatchers, in any number of processes, share the work: each has
// its share of the partitions, and takes over those of one that stops or dies.
type Dispatcher struct {
	store    DispatchStore
	pub      message.Publisher
	routes   Routes
	cfg      DispatcherConfig
	observer Observer
	leases   *leaseholder
	workers  []*worker
	inFlight *flights // nil unless pub settles by completion
	// listening: the store tells of appends in other processes.
	listening atomic.Bool
}

// NewDispatcher returns a dispatcher from store to pub. Events of a type that
// routes does not know become dead letters: no event is dropped silently.
func NewDispatcher(store DispatchStore, pub message.Publisher, routes Routes, cfg DispatcherConfig) (*Dispatcher, error) {
	if store == nil || pub == nil || routes == nil {
		return nil, errors.New("dispatcher: a store, a publisher and routes are needed")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{
		store: store, pub: pub, routes: routes, cfg: cfg, observer: cfg.Observer.complete(),
		leases: &leaseholder{store: store, scope: DispatchScope, holder: cfg.Holder, ttl: cfg.LeaseTTL, now: cfg.Now},
	}
	d.leases.observed = d.observer.Lease
	d.leases.gained = d.nudge
	workers := cfg.Concurrency
	if _, ok := pub.(CompletionPublisher); ok {
		d.inFlight = newFlights(d.leases.use)
		workers = 1
	}
	for n := range workers {
		d.workers = append(d.workers, newWorker(d, n, workers))
	}
	return d, nil
}

// Run dispatches until ctx ends, and then settles what has been handed over
// and gives its leases back. Errors of the store or the broker are logged, and
// tried again with growing waits; Run returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	var work sync.WaitGroup
	work.Go(func() {
		d.leases.keep(ctx, func(err error) { d.cfg.Logger.Warn("dispatcher: renewing the leases failed", "error", err) })
	})
	work.Go(func() { d.keepSchedule(ctx) })
	if l, ok := d.store.(Listener); ok {
		work.Go(func() { d.listen(ctx, l) })
	}
	for _, w := range d.workers {
		work.Go(func() { w.run(ctx) })
	}
	work.Wait()
	d.finish(context.WithoutCancel(ctx))
	return nil
}

// finish settles what completed meanwhile and lets the leases go.
func (d *Dispatcher) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := d.settleCompleted(ctx); err != nil {
		d.cfg.Logger.Warn("dispatcher: settling at the end failed; what it was will be published again", "error", err)
	}
	if err := d.leases.release(ctx); err != nil {
		d.cfg.Logger.Warn("dispatcher: giving the leases back failed; they expire", "error", err)
	}
}

// nudge has the workers look now.
func (d *Dispatcher) nudge() {
	for _, w := range d.workers {
		select {
		case w.nudged <- struct{}{}:
		default: // it has not yet seen the last one
		}
	}
}

// DispatchOnce makes one pass over each partition: settle what has completed, adopt
// hand-written rows, then claim, publish and settle a batch; then it replays what is
// scheduled until now, which the next call dispatches. It returns how many rows it dealt
// with. For tests, and for those who have a scheduler of their own.
func (d *Dispatcher) DispatchOnce(ctx context.Context) (int, error) {
	total := 0
	for _, w := range d.workers {
		n, err := w.once(ctx)
		total += n
		if err != nil {
			return total, err
		}
	}
	n, err := d.replayScheduled(ctx)
	return total + n, err
}
