package gateway

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// queueRoutes adds the queues that others read to a routing table.
type queueRoutes struct{ eventing.Routes }

// Consumer implements [eventing.Routes].
func (r queueRoutes) Consumer(name string) (eventing.Route, bool) {
	if name == deadLetterQueue || name == worker.StateQueue {
		return eventing.Route{Consumer: name, Topic: name, Codec: eventing.PayloadCodec{}}, true
	}
	return r.Routes.Consumer(name)
}

// unheard is an in-process broker in which nobody reads these queues: what is left for them, from
// when there was another broker, is settled.
type unheard struct{ eventing.CompletionPublisher }

// PublishWithCompletion implements [eventing.CompletionPublisher].
func (p unheard) PublishWithCompletion(topic string, done func(*message.Message, error), msgs ...*message.Message) error {
	if topic != deadLetterQueue && topic != worker.StateQueue {
		return p.CompletionPublisher.PublishWithCompletion(topic, done, msgs...)
	}
	for _, m := range msgs {
		done(m, nil)
	}
	return nil
}

// batchPublisher is what both brokers with a server have.
type batchPublisher interface {
	message.Publisher
	eventing.BatchPublisher
}

// bounded keeps the queue of state changes from growing without an end, as nobody may read it: it
// drops the oldest messages every so many.
type bounded struct {
	batchPublisher
	maxLen int64
	drop   func(ctx context.Context, keep int64) error
	logger *slog.Logger

	mu    sync.Mutex
	added int64 // since the last time
}

func newBounded(p batchPublisher, cfg Config, drop func(context.Context, int64) error) batchPublisher {
	if cfg.ShipmentEventsMaxLen == 0 {
		return p
	}
	b := &bounded{batchPublisher: p, maxLen: cfg.ShipmentEventsMaxLen, drop: drop, logger: cfg.Logger}
	b.added = b.every() - 1 // the first looks what there is
	return b
}

// every is after how many messages it looks.
func (b *bounded) every() int64 { return max(1, min(b.maxLen/10, dropBatch)) }

// dropBatch is how many messages are dropped at a time at most, on Postgres: twice as many as come meanwhile.
const dropBatch = 10_000

// Publish implements [message.Publisher].
func (b *bounded) Publish(topic string, msgs ...*message.Message) error {
	err := b.batchPublisher.Publish(topic, msgs...)
	if err == nil && topic == worker.StateQueue && len(msgs) > 0 {
		b.count(msgs[0].Context(), len(msgs))
	}
	return err
}

// PublishBatch implements [eventing.BatchPublisher].
func (b *bounded) PublishBatch(ctx context.Context, topics []string, msgs []*message.Message) error {
	err := b.batchPublisher.PublishBatch(ctx, topics, msgs)
	n := 0
	for _, topic := range topics {
		if topic == worker.StateQueue {
			n++
		}
	}
	if err == nil && n > 0 {
		b.count(ctx, n)
	}
	return err
}

func (b *bounded) count(ctx context.Context, n int) {
	b.mu.Lock()
	b.added += int64(n)
	due := b.added >= b.every()
	if due {
		b.added = 0
	}
	b.mu.Unlock()
	if !due {
		return
	}
	if err := b.drop(ctx, b.maxLen); err != nil && ctx.Err() == nil {
		b.logger.Warn("gateway: old messages were not dropped; will try again", "queue", worker.StateQueue, "keep", b.maxLen, "error", err)
	}
}

func dropFromRedis(client *redis.Client) func(context.Context, int64) error {
	return func(ctx context.Context, keep int64) error {
		return client.XTrimMaxLenApprox(ctx, worker.StateQueue, keep, 0).Err()
	}
}

// The table is watermill-sql's. Its key is in the order of publishing, near enough.
const dropOldest = `
WITH last AS (SELECT "offset" FROM "watermill_shipment-events" ORDER BY transaction_id DESC, "offset" DESC LIMIT 1),
oldest AS (SELECT transaction_id, "offset" FROM "watermill_shipment-events" ORDER BY transaction_id, "offset" LIMIT $2)
DELETE FROM "watermill_shipment-events" WHERE (transaction_id, "offset") IN
	(SELECT o.transaction_id, o."offset" FROM oldest o, last WHERE o."offset" <= last."offset" - $1)`

func dropFromPostgres(db *sql.DB) func(context.Context, int64) error {
	return func(ctx context.Context, keep int64) error {
		_, err := db.ExecContext(ctx, dropOldest, keep, 2*dropBatch)
		return err
	}
}
