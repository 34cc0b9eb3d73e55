package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

// Config configures a [Router].
type Config struct {
	// Store keeps what the consumers have processed, and their deliveries in
	// trouble. Needed, unless there is a Poison topic instead.
	Store eventing.ConsumerStore
	// Poison makes the consumers storeless: see [Poison]. Default: they have the Store.
	Poison Poison
	// Subscriber of the broker. Needed to run, not to route. Whoever made it
	// closes it, after Run has returned.
	Subscriber message.Subscriber
	// Middleware runs around the handlers at every attempt, the first outermost.
	Middleware []message.HandlerMiddleware
	// CloseTimeout is how long Run waits at its end for handlers that are still
	// running. Default: 15 s.
	CloseTimeout time.Duration
	// LeaseTTL as in [eventing.DispatcherConfig].
	LeaseTTL time.Duration
	// Holder as in [eventing.DispatcherConfig]; with an in-process broker the same as
	// the dispatcher's.
	Holder string
	// PollInterval as in [eventing.ConsumerConfig].
	PollInterval time.Duration
	// Observer is told what the consumers do. Default: nobody.
	Observer *eventing.Observer
	// Tracer makes the spans of attempts. Default: none.
	Tracer eventing.Tracer
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Random feeds the jitter of retries, in [0, 1). Default: math/rand/v2.
	Random func() float64
}

// Consumer declares a consumer. A consumer without a declaration has the
// defaults.
type Consumer struct {
	// Name identifies the consumer for ever: it is the key of what it has
	// processed.
	Name   string
	Policy eventing.Policy
	// Batch is how a consumer with handlers of [HandleBatchTx] gathers its events.
	Batch eventing.BatchPolicy
	// Topic of the broker. Default: the name. Consumers may share a topic; an
	// in-process broker, which keeps nothing for who has not yet subscribed, then has
	// one for each of them all the same.
	Topic string
	// Codec of the topic's messages. Default: [eventing.EnvelopeCodec].
	Codec eventing.Codec
	// Prepare as in [eventing.ConsumerConfig]. A consumer without a store has it, too.
	Prepare eventing.PrepareFunc
	// OnConclude as in [eventing.ConsumerConfig].
	OnConclude func(ctx context.Context, tx any, c eventing.Conclusion) error
	// Actions as in [eventing.ConsumerConfig].
	Actions map[string]eventing.Action
}

// Router holds consumers and their handlers. Register everything before Run; as a
// routing table it is safe for concurrent use.
type Router struct {
	cfg Config

	mu        sync.RWMutex
	consumers map[string]*consumer
	order     []string // of registration
	ignored   map[string]bool
	running   bool
}

// consumer is a declared consumer with its handlers.
type consumer struct {
	Consumer
	declared      bool
	transactional bool
	handlers      map[string]eventing.HandlerFunc // by event type
	any           eventing.HandlerFunc            // for all other types
	batches       map[string]*batchHandler        // the same, and "*" for any; nil unless they are for batches
}

// New returns a router without consumers.
func New(cfg Config) (*Router, error) {
	if err := cfg.checkStore(); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	if cfg.CloseTimeout == 0 {
		cfg.CloseTimeout = 15 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Router{cfg: cfg, consumers: map[string]*consumer{}, ignored: map[string]bool{}}, nil
}

// AddConsumer declares a consumer. It fails on a policy that cannot hold.
func (r *Router) AddConsumer(c Consumer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.Policy.Validate(); err != nil {
		return fmt.Errorf("router: consumer %s: %w", c.Name, err)
	}
	known, err := r.consumer(c.Name)
	if err != nil {
		return err
	}
	if known.declared {
		return fmt.Errorf("router: consumer %s is declared twice", c.Name)
	}
	if c.Topic == "" {
		c.Topic = c.Name
	}
	if r.storeless() {
		if _, err := r.consumeStoreless(c); err != nil {
			return err
		}
	}
	known.Consumer, known.declared = c, true
	return nil
}

// Ignore declares that nobody needs events of these types: they are settled
// without going anywhere. An event of a type that is neither handled nor ignored
// becomes a dead letter.
func (r *Router) Ignore(eventTypes ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range eventTypes {
		r.ignored[t] = true
	}
}

// consumer returns the consumer of a name, made with the defaults if need be.
func (r *Router) consumer(name string) (*consumer, error) {
	if r.running {
		return nil, fmt.Errorf("router: consumer %s: register before Run", name)
	}
	if err := eventing.CheckConsumerName(name); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	c, ok := r.consumers[name]
	if !ok {
		c = &consumer{Consumer: Consumer{Name: name, Topic: name}, handlers: map[string]eventing.HandlerFunc{}}
		r.consumers[name] = c
		r.order = append(r.order, name)
	}
	return c, nil
}

var _ eventing.Routes = (*Router)(nil)

// Route implements [eventing.Routes].
func (r *Router) Route(eventType string) (routes []eventing.Route, routed bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, name := range r.order {
		if c := r.consumers[name]; c.handlers[eventType] != nil || c.any != nil {
			routes = append(routes, r.route(c))
		}
	}
	return routes, len(routes) > 0 || r.ignored[eventType]
}

// Consumer implements [eventing.Routes].
func (r *Router) Consumer(name string) (eventing.Route, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, ok := r.consumers[name]
	if !ok {
		return eventing.Route{}, false
	}
	return r.route(c), true
}

func (r *Router) route(c *consumer) eventing.Route {
	return eventing.Route{Consumer: c.Name, Topic: r.topic(c), Ordered: c.Policy.Ordered, Codec: c.Codec}
}

func (r *Router) inProcess() bool {
	_, ok := r.cfg.Subscriber.(eventing.CompletionPublisher)
	return ok
}

// topic is where the consumer subscribes. What an in-process broker has for a topic
// goes to who subscribes first, and counts as handled then.
func (r *Router) topic(c *consumer) string {
	if !r.inProcess() {
		return c.Topic
	}
	for _, other := range r.consumers {
		if other != c && other.Topic == c.Topic {
			return c.Topic + "/" + c.Name
		}
	}
	return c.Topic
}

// handle calls the handler for the event's type.
func (c *consumer) handle(ctx context.Context, e eventing.Envelope) error {
	h := c.handlers[e.Type]
	if h == nil {
		h = c.any
	}
	if h == nil {
		return c.noHandler(e)
	}
	return h(ctx, e)
}

func (c *consumer) noHandler(e eventing.Envelope) error {
	return eventing.PermanentWithReason(eventing.ReasonNoHandler, fmt.Errorf("consumer %s has no handler for events of type %s", c.Name, e.Type))
}

// Run runs all consumers until ctx ends; handlers that are running then may
// finish within their grace. It returns an error if a consumer cannot start.
func (r *Router) Run(ctx context.Context) error {
	if r.cfg.Subscriber == nil {
		return errors.New("router: Config.Subscriber is needed to run")
	}
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return errors.New("router: it is running already")
	}
	r.running = true
	r.mu.Unlock()

	wm, err := message.NewRouter(message.RouterConfig{CloseTimeout: r.cfg.CloseTimeout}, watermill.NewSlogLoggerWithLevelMapping(r.cfg.Logger, quiet))
	if err != nil {
		return fmt.Errorf("router: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var redelivery sync.WaitGroup
	defer redelivery.Wait()
	defer cancel()
	for _, name := range r.order {
		c := r.consumers[name]
		if r.storeless() {
			composite, err := r.consumeStoreless(c.Consumer)
			if err != nil {
				return err
			}
			wm.AddConsumerHandler(name, r.topic(c), r.unordered(name, c.Policy.WithDefaults().Concurrency), r.attempt(c)).AddMiddleware(composite)
			continue
		}
		if c.batches != nil {
			engine, err := r.consumeBatches(c)
			if err != nil {
				return err
			}
			wm.AddConsumerHandler(name, r.topic(c), r.subscriber(engine, c), func(m *message.Message) error { return engine.Receive(m.Context(), m) })
			redelivery.Go(func() { _ = engine.Run(ctx) }) // it has no error of its own
			continue
		}
		consumption, err := r.consume(c)
		if err != nil {
			return err
		}
		subscriber := r.subscriber(consumption.Consumer, c)
		wm.AddConsumerHandler(name, r.topic(c), subscriber, r.attempt(c)).AddMiddleware(consumption.Middleware)
		redelivery.Go(func() { _ = consumption.Run(ctx) }) // it has no error of its own
	}
	if len(r.order) == 0 {
		<-ctx.Done()
		return nil
	}
	if err := wm.Run(ctx); err != nil {
		return fmt.Errorf("router: %w", err)
	}
	return nil
}

// Watermill tells at info level what is only of interest when it is looked for.
var quiet = map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug, slog.LevelDebug: slog.LevelDebug - 4}

func (r *Router) consumerConfig(c *consumer) eventing.ConsumerConfig {
	cfg := eventing.ConsumerConfig{
		Name: c.Name, Policy: c.Policy, Transactional: c.transactional, Prepare: c.Prepare, Batch: c.Batch, Codec: c.Codec,
		OnConclude: c.OnConclude, Actions: c.Actions,
		LeaseTTL: r.cfg.LeaseTTL, Holder: r.cfg.Holder, PollInterval: r.cfg.PollInterval,
		Observer: r.cfg.Observer, Tracer: r.cfg.Tracer, Logger: r.cfg.Logger, Now: r.cfg.Now, Random: r.cfg.Random,
	}
	if r.inProcess() {
		cfg.LeaseScope = eventing.DispatchScope
	}
	return cfg
}

func (r *Router) consume(c *consumer) (*middleware.Consumption, error) {
	consumption, err := middleware.Consume(r.consumerConfig(c), r.cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return consumption, nil
}

// attempt is the innermost part: the user's middleware around the typed handler.
func (r *Router) attempt(c *consumer) message.NoPublishHandlerFunc {
	h := func(m *message.Message) ([]*message.Message, error) {
		e, _ := eventing.EnvelopeFromContext(m.Context()) // always there: a composite calls us
		return nil, c.handle(m.Context(), e)
	}
	for _, mw := range slices.Backward(r.cfg.Middleware) {
		h = mw(h)
	}
	return func(m *message.Message) error {
		_, err := h(m)
		return err
	}
}
