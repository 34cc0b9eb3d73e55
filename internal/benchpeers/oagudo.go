package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/oagudo/outbox"
	"github.com/redis/go-redis/v9"
)

// As its README has it.
const oagudoTable = `
CREATE TABLE outbox (
	id UUID PRIMARY KEY,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	scheduled_at TIMESTAMP WITH TIME ZONE NOT NULL,
	metadata BYTEA,
	payload BYTEA NOT NULL,
	times_attempted INTEGER NOT NULL
);
CREATE INDEX idx_outbox_created_at ON outbox (created_at);
CREATE INDEX idx_outbox_scheduled_at ON outbox (scheduled_at)`

// oagudoReader drains its outbox. It hands over one message at a time and deletes
// them in batches. It locks nothing, so a second reader would publish all twice.
func oagudoReader(ctx context.Context, a *arena) (took time.Duration, err error) {
	if _, err := a.pool.Exec(ctx, oagudoTable); err != nil {
		return 0, err
	}
	if err := a.fillOagudo(ctx); err != nil {
		return 0, err
	}
	if err := a.settle(ctx); err != nil {
		return 0, err
	}
	db := a.openSQL()
	defer db.Close()
	reader := outbox.NewReader(
		outbox.NewDBContext(db, outbox.SQLDialectPostgres), xadd{a.redis},
		outbox.WithInterval(time.Millisecond), // from batch to batch, also where there is more
		outbox.WithReadBatchSize(batchSize),
		outbox.WithDeleteBatchSize(batchSize),
	)
	published := a.published.expect(len(a.events))
	start := time.Now()
	reader.Start()
	err = a.waitDrained(ctx, published, `SELECT EXISTS (SELECT 1 FROM outbox)`)
	took = time.Since(start)
	return took, errors.Join(err, reader.Stop(context.WithoutCancel(ctx)))
}

func (a *arena) fillOagudo(ctx context.Context) error {
	now := time.Now()
	for batch := range slices.Chunk(a.events, batchSize) {
		_, err := a.pool.CopyFrom(
			ctx, pgx.Identifier{"outbox"},
			[]string{"id", "created_at", "scheduled_at", "payload", "times_attempted"},
			pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) {
				now = now.Add(time.Microsecond)
				id, err := uuid.Parse(batch[i].ID)
				return []any{[16]byte(id), now, now, batch[i].encoded, 0}, err
			}),
		)
		if err != nil {
			return fmt.Errorf("fill oagudo's table: %w", err)
		}
	}
	return nil
}

// xadd is its publisher: it gets one message a call.
type xadd struct{ client *redis.Client }

// Publish implements [outbox.MessagePublisher].
func (x xadd) Publish(ctx context.Context, m *outbox.Message) error {
	return x.client.XAdd(ctx, &redis.XAddArgs{Stream: topic, Values: []any{"payload", m.Payload}}).Err()
}

// oagudoWrite is its writer, without a publisher of its own.
func oagudoWrite(ctx context.Context, a *arena) (time.Duration, error) {
	if _, err := a.pool.Exec(ctx, oagudoTable); err != nil {
		return 0, err
	}
	db := a.openSQL()
	defer db.Close()
	writer := outbox.NewWriter(outbox.NewDBContext(db, outbox.SQLDialectPostgres))
	return a.each(ctx, "outbox", func(ctx context.Context, e event) error {
		return writer.Write(ctx, outbox.NewMessage(e.encoded), func(context.Context, outbox.TxQueryer) error { return nil })
	})
}
