package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// IdempotencyConfig configures [Idempotency].
type IdempotencyConfig struct {
	// Store keeps the inbox. Needed.
	Store eventing.ConsumerStore
	// Consumer is the name that the inbox rows are under, for ever. Needed; none that
	// [Consume] has in the same store.
	Consumer string
	// Retention is how long a processed event is remembered: within it, a duplicate is
	// recognised. Default: 30 days.
	Retention time.Duration
}

// Idempotency goes inside [DeadLetter], since what is outside of it would remember a dead letter as
// processed and drop its replay; and outside of [Retry], so that a store that is down
// burns no attempt. It drops a message whose event the consumer has
// processed, and remembers the event once the handler has succeeded. An event is known by its
// metadata "event_id", or else by the message's ID.
//
// Effect and memory are two steps. A crash between them, or a duplicate that runs at the
// same time, runs the handler again: this is at least once, with far fewer duplicates. If the effect is in
// the same database, [Consume] makes it exactly once; it also keeps retries, dead letters
// and order, of which this middleware has nothing: a failure leaves no trace in the
// store, and its error goes to what is outside. While the store cannot be read, its error does;
// while it cannot record a success, Idempotency tries again until the message's context ends.
//
// The handler must not produce messages: Watermill publishes them after the event is
// remembered, and a crash in between would lose them. That is a permanent error.
func Idempotency(cfg IdempotencyConfig) (message.HandlerMiddleware, error) {
	if cfg.Store == nil {
		return nil, errors.New("idempotency: a store is needed")
	}
	if err := eventing.CheckConsumerName(cfg.Consumer); err != nil {
		return nil, fmt.Errorf("idempotency: %w", err)
	}
	if cfg.Retention < 0 {
		return nil, fmt.Errorf("idempotency: Retention is %v; it must not be negative", cfg.Retention)
	}
	if cfg.Retention == 0 {
		cfg.Retention = 30 * 24 * time.Hour
	}
	return cfg.middleware, nil
}

func (cfg IdempotencyConfig) middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		ctx := m.Context()
		d, err := cfg.delivery(m)
		if err != nil {
			return nil, eventing.PermanentWithReason(eventing.ReasonEnvelopeMalformed, err)
		}
		decision, run, err := cfg.Store.Arrive(ctx, d, nil, time.Now())
		if err != nil {
			return nil, fmt.Errorf("idempotency: look %s up: %w", d.EventID, err)
		}
		if decision != eventing.DecideRun {
			return nil, nil // nothing is ever parked: it has no ordering key
		}
		produced, err := h(m)
		switch {
		case err != nil:
			return nil, err
		case len(produced) > 0:
			return nil, eventing.Permanent(errProduced)
		}
		return nil, cfg.remember(ctx, run)
	}
}

func (cfg IdempotencyConfig) delivery(m *message.Message) (eventing.Delivery, error) {
	id, eventType := eventID(m), m.Metadata.Get("event_type")
	if id == "" || len(id) > maxIDBytes || !utf8.ValidString(id) {
		return eventing.Delivery{}, fmt.Errorf("idempotency: the event's ID has %d bytes; it must have 1 to %d of UTF-8", len(id), maxIDBytes)
	}
	return eventing.Delivery{
		Consumer: cfg.Consumer, EventID: id, EventType: eventType, Partition: eventing.PartitionOf("", id), Payload: m.Payload,
	}, nil
}

// Waits of remember, and how long one of its tries may take, also after the end of the context: the
// effect is there, and a duplicate would be the price.
const (
	rememberFirst, rememberMost = 20 * time.Millisecond, 5 * time.Second
	rememberTry                 = 5 * time.Second
)

// remember records a success. The store's trouble must not become the handler's, which
// would run again.
func (cfg IdempotencyConfig) remember(ctx context.Context, run eventing.Run) error {
	for wait := rememberFirst; ; wait = min(2*wait, rememberMost) {
		err := cfg.record(ctx, run)
		if err == nil || errors.Is(err, eventing.ErrConflict) { // a duplicate was faster, and is remembered
			return nil
		}
		if sleep(ctx, wait) != nil {
			return fmt.Errorf("idempotency: remember %s, which may run again: %w", run.EventID, err)
		}
	}
}

func (cfg IdempotencyConfig) record(ctx context.Context, run eventing.Run) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberTry)
	defer cancel()
	now := time.Now()
	return cfg.Store.Succeed(ctx, eventing.Success{Run: run, Now: now, InboxUntil: now.Add(cfg.Retention), DeadLetterUntil: now.Add(cfg.Retention)})
}
