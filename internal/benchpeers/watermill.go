package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

const forwarderTopic = "outbox"

// The best settings found. The subscriber commits after each batch: 1,000 give nearly
// twice what its default of 100 does, and more than 1,000 nothing. Neither the payload's
// type nor the deadline of acks matters; pgx is faster than database/sql. More
// subscribers would wait for each other: the offset's row is locked.
var watermillSchema = wsql.DefaultPostgreSQLSchema{
	SubscribeBatchSize:  batchSize,
	GeneratePayloadType: func(string) string { return "BYTEA" },
}

var watermillOffsets = wsql.DefaultPostgreSQLOffsetsAdapter{}

const forwarderPending = `SELECT offset_acked < (SELECT max("offset") FROM "watermill_` + forwarderTopic + `") FROM "watermill_offsets_` + forwarderTopic + `"`

// watermillForwarder drains Watermill's outbox: its SQL subscriber, on pgx, into its
// Redis publisher.
func watermillForwarder(ctx context.Context, a *arena) (took time.Duration, err error) {
	db := wsql.BeginnerFromPgx(a.pool)
	sub, err := wsql.NewSubscriber(db, wsql.SubscriberConfig{
		PollInterval:     time.Millisecond, // the last batch is found at once
		SchemaAdapter:    watermillSchema,
		OffsetsAdapter:   watermillOffsets,
		InitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return 0, err
	}
	if err := sub.SubscribeInitialize(forwarderTopic); err != nil {
		return 0, err
	}
	if err := a.fillForwarder(db); err != nil {
		return 0, err
	}
	if err := a.settle(ctx); err != nil {
		return 0, err
	}
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: a.redis}, watermill.NopLogger{})
	if err != nil {
		return 0, err
	}
	f, err := forwarder.NewForwarder(sub, pub, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic})
	if err != nil {
		return 0, err
	}
	published := a.published.expect(len(a.events))
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- f.Run(ctx) }()
	err = a.waitDrained(ctx, published, forwarderPending)
	took = time.Since(start)
	return took, errors.Join(err, f.Close(), <-ended)
}

// fillForwarder appends as Watermill says: a publisher that wraps each message in
// an envelope that names its topic.
func (a *arena) fillForwarder(db wsql.ContextExecutor) error {
	raw, err := wsql.NewPublisher(db, wsql.PublisherConfig{SchemaAdapter: watermillSchema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	pub := forwarder.NewPublisher(raw, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})
	for batch := range slices.Chunk(a.events, batchSize) {
		msgs := make([]*message.Message, len(batch))
		for i, e := range batch {
			msgs[i] = message.NewMessage(e.ID, e.encoded)
		}
		if err := pub.Publish(topic, msgs...); err != nil {
			return fmt.Errorf("fill the forwarder's table: %w", err)
		}
	}
	return pub.Close()
}

// watermillPublish is its SQL publisher in a transaction each, without the
// forwarder's envelope.
func watermillPublish(ctx context.Context, a *arena) (time.Duration, error) {
	setup, err := wsql.NewSubscriber(wsql.BeginnerFromPgx(a.pool), wsql.SubscriberConfig{
		SchemaAdapter: watermillSchema, OffsetsAdapter: watermillOffsets,
	}, watermill.NopLogger{})
	if err != nil {
		return 0, err
	}
	if err := setup.SubscribeInitialize(forwarderTopic); err != nil {
		return 0, err
	}
	return a.each(ctx, "watermill_"+forwarderTopic, func(ctx context.Context, e event) error {
		return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
			pub, err := wsql.NewPublisher(wsql.TxFromPgx(tx), wsql.PublisherConfig{SchemaAdapter: watermillSchema}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			m := message.NewMessage(e.ID, e.encoded)
			m.SetContext(ctx)
			return pub.Publish(forwarderTopic, m)
		})
	})
}
