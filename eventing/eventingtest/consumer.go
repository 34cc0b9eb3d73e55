package eventingtest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// orderPlaced is the payload of the suite's events.
type orderPlaced struct {
	Number string `json:"number"`
}

func (orderPlaced) EventType() string { return "order.placed" }

// order is an event of an ordering key; the key may be empty.
func order(id, key string) eventing.Event[orderPlaced] {
	e := eventing.New("", "", orderPlaced{Number: id})
	e.ID, e.OrderingKey = id, key
	return e
}

// orders are events of one ordering key.
func orders(key string, ids ...string) []eventing.Appendable {
	var out []eventing.Appendable
	for _, id := range ids {
		out = append(out, order(id, key))
	}
	return out
}

var (
	errBusy     = errors.New("downstream is busy")
	errHopeless = eventing.Permanent(errors.New("no such customer"))
)

// consumer is a consumer of the world. Its handler leaves an effect for each run
// and then fails as it is told to; if it is transactional, a failed run's effect
// must be gone.
type consumer[Tx any] struct {
	w      *world[Tx]
	name   string
	cfg    eventing.ConsumerConfig
	codec  eventing.Codec // of the route; nil: that of cfg
	engine *eventing.Consumer

	handleAll eventing.BatchHandlerFunc // of a consumer of batches

	mu          sync.Mutex
	runs        []string // event IDs
	envelopes   []eventing.Envelope
	attempts    []eventing.CurrentAttempt // as the contexts of runs said
	conclusions []eventing.Conclusion
	failing     map[string]error
	handle      func(ctx context.Context, e eventing.Envelope) error // instead of failing
}

// policy is the suite's: one event at a time, so that the order of what happens is
// always the same.
func policy() eventing.Policy {
	return eventing.Policy{Concurrency: 1, Retry: eventing.RetryPolicy{MaxAttempts: 3, Base: time.Hour}}
}

// consumer adds a transactional consumer; configure may be nil.
func (w *world[Tx]) consumer(name string, configure func(*eventing.ConsumerConfig)) *consumer[Tx] {
	w.Helper()
	c := &consumer[Tx]{w: w, name: name, failing: map[string]error{}, cfg: eventing.ConsumerConfig{
		Name: name, Policy: policy(), Transactional: true, LeaseTTL: leaseTTL,
		Now: w.clock.Now, Random: func() float64 { return 0.5 }, Logger: slog.New(slog.DiscardHandler),
	}}
	c.cfg.OnConclude = func(_ context.Context, _ any, conclusion eventing.Conclusion) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conclusions = append(c.conclusions, conclusion)
		return nil
	}
	if configure != nil {
		configure(&c.cfg)
	}
	w.consumers = append(w.consumers, c)
	c.start()
	return c
}

// ordered makes a consumer ordered.
func ordered(cfg *eventing.ConsumerConfig) { cfg.Policy.Ordered = true }

// start makes the consumer's engine, as at the start of a process.
func (c *consumer[Tx]) start() {
	c.w.Helper()
	c.engine = c.newEngine(c.w.holder())
}

func (c *consumer[Tx]) newEngine(holder string) *eventing.Consumer {
	c.w.Helper()
	cfg := c.cfg
	cfg.Holder = holder
	var engine *eventing.Consumer
	var err error
	if c.handleAll != nil {
		engine, err = eventing.NewBatchConsumer(c.w.db, c.handleAll, cfg)
	} else {
		engine, err = eventing.NewConsumer(c.w.db, c.run, cfg)
	}
	c.w.must(err)
	return engine
}

func (c *consumer[Tx]) run(ctx context.Context, e eventing.Envelope) error {
	c.mu.Lock()
	c.runs = append(c.runs, e.ID)
	c.envelopes = append(c.envelopes, e)
	if a, ok := eventing.AttemptFromContext(ctx); ok {
		c.attempts = append(c.attempts, a)
	}
	err, handle := c.failing[e.ID], c.handle
	c.mu.Unlock()
	effect := func(tx Tx) error { return c.w.db.Effect(ctx, tx, c.name, e.ID) }
	if tx, ok := eventing.TxFromContext[Tx](ctx); ok {
		if err := effect(tx); err != nil {
			return err
		}
	} else if err := c.w.db.InTx(ctx, effect); err != nil {
		return err
	}
	if handle != nil {
		return handle(ctx, e)
	}
	return err
}

// fail has the handler fail at these events until heal.
func (c *consumer[Tx]) fail(err error, ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.failing[id] = err
	}
}

func (c *consumer[Tx]) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.failing)
	c.handle = nil
}

func (c *consumer[Tx]) handleWith(f func(ctx context.Context, e eventing.Envelope) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handle = f
}

// ran returns the events that the handler was run on.
func (c *consumer[Tx]) ran() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return list(c.runs...)
}

// tried checks which attempts the handler has made.
func (c *consumer[Tx]) tried(guarantee string, want ...eventing.CurrentAttempt) {
	c.w.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range want {
		want[i].Consumer = c.name
	}
	c.w.equal(guarantee, c.attempts, want)
}

// lastEnvelope returns what the handler got last.
func (c *consumer[Tx]) lastEnvelope() eventing.Envelope {
	c.w.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.envelopes) == 0 {
		c.w.Fatalf("%s has not run at all", c.name)
	}
	return c.envelopes[len(c.envelopes)-1]
}

// lastConclusion returns how the last run ended.
func (c *consumer[Tx]) lastConclusion() eventing.Conclusion {
	c.w.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conclusions) == 0 {
		c.w.Fatalf("%s has not concluded anything", c.name)
	}
	return c.conclusions[len(c.conclusions)-1]
}

// effects returns the events of which the database has an effect of the consumer, in order.
func (c *consumer[Tx]) effects() []string {
	c.w.Helper()
	all, err := c.w.db.Effects(c.w.ctx)
	c.w.must(err)
	ids := list()
	for _, e := range all {
		if e.Consumer == c.name {
			ids = append(ids, e.EventID)
		}
	}
	return ids
}

func (c *consumer[Tx]) route() eventing.Route {
	codec := c.codec
	if codec == nil {
		codec = c.cfg.Codec
	}
	return eventing.Route{Consumer: c.name, Topic: c.name, Ordered: c.cfg.Policy.Ordered, Codec: codec}
}

func (c *consumer[Tx]) topics() []string {
	if !c.cfg.Policy.Ordered {
		return []string{c.name}
	}
	topics := make([]string, eventing.Partitions)
	for i := range topics {
		topics[i] = eventing.PartitionTopic(c.name, i)
	}
	return topics
}

func (c *consumer[Tx]) subscribes(topic string) bool { return slices.Contains(c.topics(), topic) }
