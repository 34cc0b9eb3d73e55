package eventing

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// BatchHandlerFunc handles several events at once, at most one of each ordering key if
// the consumer is ordered, in the order of their arrival. It runs in the transaction that
// records all of them as processed: see [TxFromContext]. ctx ends with the policy's timeout.
// It belongs to none of the events; what is appended for one of them is linked to it by [WithEnvelope].
//
// If it fails, nothing has happened, and it is called again with the first event alone, and with each half of the others.
// The failure of a call with a single event is an attempt at that event, which the error steers as that
// of a [HandlerFunc]; others count for nothing, and are no errors in a trace. So of n events with one that fails, n−1 are
// processed, after some 3·log2(n) calls more; if all fail, there are up to 2n.
type BatchHandlerFunc func(ctx context.Context, events []Envelope) error

// BatchPolicy is how a consumer made by [NewBatchConsumer] gathers its events.
type BatchPolicy struct {
	// Size is how many events one call of the handler gets at most. Default: 100; at
	// most 1,000. The messages that have to be in hand for that are [Consumer.Window].
	Size int
	// Linger is how long the first event of a batch waits for others, unless the batch is
	// full before. Default: 5 ms; if negative, it takes what is there.
	Linger time.Duration
}

const (
	maxBatchSize = 1000
	// maxWindow is what brokers have out for one subscription at most.
	maxWindow = 10_000
)

func (p BatchPolicy) withDefaults() (BatchPolicy, error) {
	if p.Size == 0 {
		p.Size = 100
	}
	if p.Linger == 0 {
		p.Linger = 5 * time.Millisecond
	}
	if p.Size < 1 || p.Size > maxBatchSize {
		return p, fmt.Errorf("Batch.Size is %d; it must be from 1 to %d", p.Size, maxBatchSize)
	}
	return p, nil
}

// NewBatchConsumer returns a transactional consumer of store that handles the events of
// concurrent calls of Receive together, as many as cfg.Batch says. The handler's writes and the inbox rows
// of a batch are one transaction: each event is processed exactly once, with all others of its batch or
// without them. After a crash, all of a batch is done or nothing. The policy's Concurrency is how many batches
// one process handles at a time.
//
// Only events of which the store knows nothing share a call; what was delivered before, is
// being retried or replayed, is handled alone.
func NewBatchConsumer(store ConsumerStore, handle BatchHandlerFunc, cfg ConsumerConfig) (*Consumer, error) {
	if handle == nil {
		return nil, errors.New("consumer: a store and a handler are needed")
	}
	if cfg.Prepare != nil {
		return nil, fmt.Errorf("consumer %s: Prepare is for handlers of one event at a time; do it in the batch handler, or handle the events one by one", cfg.Name)
	}
	policy, err := cfg.Batch.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", cfg.Name, err)
	}
	cfg.Batch, cfg.Transactional = BatchPolicy{}, true
	one := func(ctx context.Context, e Envelope) error { return handle(ctx, []Envelope{e}) }
	c, err := NewConsumer(store, one, cfg)
	if err != nil {
		return nil, err
	}
	c.batches = &batcher{c: c, handle: handle, policy: policy}
	return c, nil
}

// Window returns how many messages the consumer makes use of at a time: enough for all that
// runs concurrently and, if it handles batches, for one that fills meanwhile; at most 10,000.
func (c *Consumer) Window() int {
	if c.batches == nil {
		return c.cfg.Policy.Concurrency
	}
	return min(c.cfg.Policy.Concurrency+1, maxWindow/c.batches.policy.Size) * c.batches.policy.Size
}

// BatchStore is the part of a [ConsumerStore] that concludes several deliveries at once.
type BatchStore interface {
	// Untouched reports, for each of some deliveries to one consumer, whether it knows
	// nothing of it: no inbox row, no delivery row, no dead letter, nor a delivery row of its
	// ordering key. Arrive would then have it run and not have found anything.
	Untouched(ctx context.Context, ds []Delivery) ([]bool, error)
	// SucceedAll concludes a successful run on several deliveries, of which it knew nothing, in one
	// transaction: Effect; the leases; an inbox row for each; Finish. It returns [ErrConflict],
	// everything rolled back, if one of them has an inbox row or a delivery row; [ErrLeaseLost]
	// if one of the leases is another's; and [ErrBrokenTx] as Succeed does.
	SucceedAll(ctx context.Context, s BatchSuccess) error
}

// BatchSuccess is a run on several events whose handler is about to succeed.
type BatchSuccess struct {
	Consumer string
	EventIDs []string // at least one; each once
	// Leases of the partitions of an ordered consumer's events, each once.
	Leases []Lease
	Now    time.Time
	// InboxUntil is when the inbox rows expire.
	InboxUntil time.Time
	// ClaimUntil as in [Success].
	ClaimUntil time.Time
	// Effect runs first in the transaction: the handler. Finish runs last; it may be nil. An error
	// rolls back and is returned as it is.
	Effect, Finish func(ctx context.Context, tx any) error
}

// WithEnvelope returns the context for what a batch handler does for one of its events: events that are
// appended in it have the event's correlation ID, name it as their cause, and belong to its trace.
func WithEnvelope(ctx context.Context, e Envelope) context.Context {
	if spans, ok := ctx.Value(spansKey).(map[string]traceContext); ok {
		ctx = context.WithValue(ctx, traceKey, spans[e.ID])
	}
	return handlerContext(ctx, e)
}

// succeed runs the handler on events of which the store knows nothing, and commits its
// success.
func (b *batcher) succeed(ctx context.Context, batch []*arrival) (err error) {
	c, began, now := b.c, time.Now(), b.c.cfg.Now()
	ctx, end := b.trace(ctx, batch)
	defer func() { end(err) }()
	s := BatchSuccess{Consumer: c.cfg.Name, Now: now, InboxUntil: now.Add(c.cfg.Policy.InboxRetention), ClaimUntil: now.Add(c.cfg.Policy.Timeout + claimGrace)}
	events := make([]Envelope, len(batch))
	conclusions := make([]Conclusion, len(batch))
	leased := map[int]bool{}
	for i, a := range batch {
		events[i] = a.e
		conclusions[i] = Conclusion{Consumer: c.cfg.Name, Envelope: a.e, State: StateNone, Attempts: 1, RoutingVersion: a.d.RoutingVersion}
		s.EventIDs = append(s.EventIDs, a.d.EventID)
		if a.lease != nil && !leased[a.lease.Partition] {
			leased[a.lease.Partition] = true
			s.Leases = append(s.Leases, *a.lease)
		}
	}
	s.Effect = func(ctx context.Context, tx any) error {
		handle := func(ctx context.Context) error { return b.handle(ctx, events) }
		return c.guard(contextWithTx(ctx, tx, c.store), c.cfg.Policy.Timeout, handle, "events", s.EventIDs)
	}
	s.Finish = c.finishAll(conclusions)
	if err := c.store.SucceedAll(ctx, s); err != nil {
		return err
	}
	took := time.Since(began)
	for _, conclusion := range conclusions {
		c.observer.Concluded(conclusion, took)
	}
	return Fault(ctx, FaultConcluded)
}

// finishAll is the finisher of several. Its failure is as the handler's: it is that of one
// of the events, which has to be found.
func (c *Consumer) finishAll(conclusions []Conclusion) func(context.Context, any) error {
	if c.cfg.OnConclude == nil {
		return nil
	}
	return func(ctx context.Context, tx any) error {
		for _, conclusion := range conclusions {
			err := c.finisher(conclusion)(ctx, tx)
			var crash *crashError
			if err != nil && !errors.As(err, &crash) {
				err = &handlerError{err}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// trace begins the spans of the attempts at a batch's events. The context that it returns
// belongs to none of them.
func (b *batcher) trace(ctx context.Context, batch []*arrival) (context.Context, EndSpan) {
	ctx = WithTraceContext(ctx, "", "")
	if b.c.cfg.Tracer == nil {
		return ctx, func(error) {}
	}
	spans := make(map[string]traceContext, len(batch))
	ends := make([]EndSpan, len(batch))
	for i, a := range batch {
		spanned, end := b.c.trace(a.ctx, Run{}, a.e)
		parent, state := TraceContext(spanned)
		spans[a.e.ID], ends[i] = traceContext{parent, state}, end
	}
	return context.WithValue(ctx, spansKey, spans), func(err error) {
		if err != nil {
			err = fmt.Errorf("a batch was tried in vain: %w: %w", ErrNoAttempt, err)
		}
		for _, end := range ends {
			end(err)
		}
	}
}
