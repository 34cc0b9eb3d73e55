package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// StorelessConfig configures [ConsumeStoreless].
type StorelessConfig struct {
	// Name identifies the consumer. Needed; as in [eventing.ConsumerConfig].
	Name string
	// Policy of the consumer. What needs a store is refused; its retentions mean nothing.
	Policy eventing.Policy
	// Prepare runs at each attempt before the handler, as in [eventing.ConsumerConfig], innermost of all
	// parts. Default: none.
	Prepare eventing.PrepareFunc
	// Publisher and PoisonTopic: where events go that failed for good. Needed.
	Publisher   message.Publisher
	PoisonTopic string
	// MaxWait as in [RetryConfig].
	MaxWait time.Duration
	// Codec of the messages. Default: [eventing.EnvelopeCodec].
	Codec eventing.Codec
	// ShutdownGrace is how long a running handler may go on after its message's context has
	// ended. What has not succeeded by then is delivered again. Default: 10 s.
	ShutdownGrace time.Duration
	// Observer is told of attempts (Concluded) and of the breaker. Default: nobody.
	Observer *eventing.Observer
	// Tracer makes a span of each attempt, a child of the message's trace context, which is told of
	// the attempts that failed since this delivery of the broker's. Messages that the handler
	// produces carry it on, unless they have another. Default: none.
	Tracer eventing.Tracer
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Random as in [RetryConfig].
	Random func() float64
}

// ConsumeStoreless is [Consume] for a consumer without a store: at least once, with bounded
// retries in the process, and a poison topic in the place of dead letters. Like Consume it goes
// first; what is added after it runs at each attempt. It is these parts, in the only
// order in which they lose nothing:
//
//   - [DeadLetter], outermost: it must see what [Retry] has given up, and what does not decode.
//     Inside Retry, it would not see the last attempt's error for what it is, and the event that fails for
//     good would come again without end.
//   - Decoding, once, which puts the event and its IDs into the context, as Consume does: see [eventing.EnvelopeFromContext].
//   - [Retry], around the breaker: a breaker around it would see all attempts as one, and let
//     them be burnt while nothing can succeed.
//   - [CircuitBreaker], around the timeout: inside, the time of an attempt would run out while the
//     breaker is open, and burn it.
//   - The Tracer's span, around all that belongs to one attempt.
//   - [Timeout], for each attempt: further out, it would end all attempts when the first one hangs.
//   - [Recover], around the handler: further out, a panic would skip the attempts that are left,
//     the breaker, or the dead letter. Timeout and Recover commute; here they are one part.
//   - Prepare, which is part of the attempt as the handler is, and shares its time.
//
// When the message's context ends, nothing is an attempt or a dead letter: the broker delivers again.
// A crash at any point does the same, and begins a new budget of attempts.
//
// ConsumeStoreless fails on a policy that needs a store: Ordered, ExactlyOnce, actions other than
// the dead letter, or waits longer than MaxWait.
func ConsumeStoreless(cfg StorelessConfig) (message.HandlerMiddleware, error) {
	if err := eventing.CheckConsumerName(cfg.Name); err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("consumer %s: %w", cfg.Name, err)
	}
	parts, err := cfg.parts()
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", cfg.Name, err)
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		for _, part := range slices.Backward(parts) {
			h = part(h)
		}
		return func(m *message.Message) ([]*message.Message, error) {
			if !eventing.AddressedTo(m.Metadata, cfg.Name) {
				return nil, nil // of a topic that consumers share
			}
			return h(m)
		}
	}, nil
}

// check refuses what only a store can do.
func (cfg StorelessConfig) check() error {
	p := cfg.Policy
	var errs []error
	refuse := func(bad bool, asked, why string) {
		if bad {
			errs = append(errs, fmt.Errorf("%s needs a store: %s; give the consumer a store, or leave it out", asked, why))
		}
	}
	refuse(p.Ordered, "Ordered", "events behind one that fails have to be parked")
	refuse(p.Guarantee == eventing.ExactlyOnce, "the guarantee exactly_once", "effect and inbox row are one transaction")
	refuse(slices.ContainsFunc(p.OnExhausted, func(action string) bool { return action != eventing.ActionDeadLetter }),
		"OnExhausted other than dead_letter", "actions run in the transaction that concludes the event")
	if cfg.ShutdownGrace < 0 {
		errs = append(errs, fmt.Errorf("ShutdownGrace is %v; it must not be negative", cfg.ShutdownGrace))
	}
	return errors.Join(append(errs, p.Validate())...)
}

// parts returns the middleware, the outermost first.
func (cfg StorelessConfig) parts() ([]message.HandlerMiddleware, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Codec == nil {
		cfg.Codec = eventing.EnvelopeCodec{}
	}
	cfg.Logger = cfg.Logger.With("consumer", cfg.Name)
	letter, err := DeadLetter(DeadLetterConfig{Publisher: cfg.Publisher, Topic: cfg.PoisonTopic, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	again, err := newRetry(RetryConfig{Policy: cfg.Policy.Retry, MaxWait: cfg.MaxWait, Logger: cfg.Logger, Random: cfg.Random})
	if err != nil {
		return nil, err
	}
	var changed func(eventing.BreakerState)
	if o := cfg.Observer; o != nil && o.Breaker != nil {
		changed = func(s eventing.BreakerState) { o.Breaker(cfg.Name, s) }
	}
	again.concluded = func(ctx context.Context, a attempt) {
		historyOf(ctx).add(a)
		if o := cfg.Observer; o != nil && o.Concluded != nil {
			o.Concluded(cfg.conclusion(ctx, a), a.took)
		}
	}
	policy := cfg.Policy.WithDefaults()
	return []message.HandlerMiddleware{
		letter, cfg.decode, limit(make(chan struct{}, policy.Concurrency)), again.middleware,
		breaker(eventing.NewBreaker(policy.Breaker, nil, changed)), cfg.trace,
		grace(cmp.Or(cfg.ShutdownGrace, 10*time.Second)), Timeout(policy.Timeout), Recover, cfg.begin,
	}, nil
}

func (cfg StorelessConfig) conclusion(ctx context.Context, a attempt) eventing.Conclusion {
	e, _ := eventing.EnvelopeFromContext(ctx)
	c := eventing.Conclusion{Consumer: cfg.Name, Envelope: e, State: a.state, Attempts: a.counted, RoutingVersion: historyOf(ctx).version, Err: a.err}
	if a.err != nil {
		c.Reason = eventing.ReasonOf(a.err)
	}
	return c
}

// decode puts the event into the context. One that does not decode will never do so.
func (cfg StorelessConfig) decode(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		e, err := cfg.Codec.Unmarshal(m)
		if err != nil {
			return nil, eventing.PermanentWithReason(eventing.ReasonEnvelopeMalformed, err)
		}
		ctx := context.WithValue(eventing.WithEnvelope(m.Context(), e), historyKey{}, &history{version: eventing.RoutingVersion(m.Metadata)})
		if parent := m.Metadata.Get("traceparent"); parent != "" {
			ctx = eventing.WithTraceContext(ctx, parent, m.Metadata.Get("tracestate"))
		}
		m.SetContext(ctx)
		return h(m)
	}
}

// history is what this process knows of the attempts at one message. They come one after the other.
type history struct {
	version  string // of the routing table that sent it
	attempts int
	failed   []string // traceparents
	last     string   // that of the attempt that is under way, or was the last
}

type historyKey struct{}

func historyOf(ctx context.Context) *history {
	h, _ := ctx.Value(historyKey{}).(*history) // always there: decode has put it in
	return h
}

// add takes note of an attempt's end. A snooze is none.
func (h *history) add(a attempt) {
	if a.counted > h.attempts && h.last != "" {
		h.failed = append(h.failed, h.last)
	}
	h.attempts = a.counted
}

// trace makes the span of an attempt. The wait for the breaker is not part of it.
func (cfg StorelessConfig) trace(h message.HandlerFunc) message.HandlerFunc {
	if cfg.Tracer == nil {
		return h
	}
	return func(m *message.Message) ([]*message.Message, error) {
		parent := m.Context()
		e, _ := eventing.EnvelopeFromContext(parent)
		before, received := historyOf(parent), m.Metadata.Get("traceparent")
		ctx, end := cfg.Tracer.Attempt(parent, eventing.TracedAttempt{
			Consumer: cfg.Name, Envelope: e, Attempt: before.attempts + 1, Failed: slices.Clone(before.failed),
			TraceParent: received, TraceState: m.Metadata.Get("tracestate"),
		})
		w := new(headers)
		w.parent, w.state = eventing.TraceContext(ctx)
		before.last = w.parent
		m.SetContext(ctx)
		defer m.SetContext(parent)
		produced, err := h(m)
		if err != nil && parent.Err() != nil {
			end(fmt.Errorf("%w: %w", eventing.ErrNoAttempt, err)) // we are stopping
			return produced, err
		}
		end(err)
		passOn(produced, received, w)
		return produced, err
	}
}

// begin puts the attempt into the context, and what is prepared for it.
func (cfg StorelessConfig) begin(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		parent := m.Context()
		defer m.SetContext(parent)
		before := historyOf(parent)
		ctx := eventing.WithAttempt(parent, eventing.CurrentAttempt{Consumer: cfg.Name, Number: before.attempts + 1, RoutingVersion: before.version})
		if cfg.Prepare != nil {
			e, _ := eventing.EnvelopeFromContext(ctx)
			prepared, err := cfg.Prepare(ctx, e)
			if err == nil {
				err = ctx.Err() // it has overrun the time without noticing
			}
			if err != nil {
				return nil, err
			}
			ctx = eventing.WithPrepared(ctx, prepared)
		}
		m.SetContext(ctx)
		return h(m)
	}
}

// limit lets only so many messages in at a time, whatever the broker hands out.
func limit(slots chan struct{}) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			select {
			case slots <- struct{}{}:
			case <-m.Context().Done():
				return nil, m.Context().Err()
			}
			defer func() { <-slots }()
			return h(m)
		}
	}
}

// grace has the message's context end a while after that of its broker.
func grace(d time.Duration) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			parent := m.Context()
			ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
			defer cancel()
			stop := context.AfterFunc(parent, func() {
				if sleep(ctx, d) == nil {
					cancel()
				}
			})
			defer stop()
			m.SetContext(ctx)
			defer m.SetContext(parent)
			return h(m)
		}
	}
}
