package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
	"github.com/waybill-go/waybill/router"
)

const consumerGroup = "shipments"

func stockPublisher(s *stage) (message.Publisher, error) {
	return redisstream.NewPublisher(redisstream.PublisherConfig{Client: s.redis}, watermill.NopLogger{})
}

func ownPublisher(s *stage) (message.Publisher, error) {
	return redisbroker.NewPublisher(s.redis, redisbroker.PublisherConfig{})
}

func stockSubscriber(s *stage) (message.Subscriber, error) {
	return redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: s.redis, ConsumerGroup: consumerGroup}, watermill.NopLogger{})
}

func ownSubscriber(s *stage) (message.Subscriber, error) {
	return redisbroker.NewSubscriber(s.redis, redisbroker.SubscriberConfig{Group: consumerGroup, Logger: discard})
}

var discard = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))

// consume acks what comes.
func consume(connect func(*stage) (message.Subscriber, error)) func(context.Context, *stage) (time.Duration, error) {
	return func(ctx context.Context, s *stage) (took time.Duration, err error) {
		if err := s.fill(ctx); err != nil {
			return 0, err
		}
		sub, err := connect(s)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, sub.Close()) }()
		start := time.Now()
		received, err := sub.Subscribe(ctx, topic)
		if err != nil {
			return 0, err
		}
		for range s.msgs {
			select {
			case m := <-received:
				m.Ack()
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
		err = s.acked(ctx)
		return time.Since(start), err
	}
}

// consumeByRouter is a consumer as users have one: with an inbox, which is in memory, so
// that the broker is measured and no database, and with middleware that writes a line of
// log for each event.
func consumeByRouter(ctx context.Context, s *stage) (took time.Duration, err error) {
	if err := s.fill(ctx); err != nil {
		return 0, err
	}
	sub, err := ownSubscriber(s)
	if err != nil {
		return 0, err
	}
	r, err := router.New(router.Config{
		Store: memstore.New(), Subscriber: sub, Logger: discard,
		Middleware: []message.HandlerMiddleware{middleware.Recover, middleware.Correlation, middleware.Logging(discard)},
	})
	if err != nil {
		return 0, err
	}
	handled := make(chan struct{}, len(s.msgs))
	if err := r.AddConsumer(router.Consumer{Name: consumerGroup, Topic: topic}); err != nil {
		return 0, err
	}
	if err := router.Handle(r, consumerGroup, func(context.Context, eventing.Envelope) error {
		handled <- struct{}{}
		return nil
	}, router.On(eventType)); err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- r.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended, sub.Close())
	}()
	for range s.msgs {
		select {
		case <-handled:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	err = s.acked(ctx)
	return time.Since(start), err
}

// fill publishes all messages, of which a consumer group has read none.
func (s *stage) fill(ctx context.Context) error {
	pub, err := ownPublisher(s)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(s.msgs, batchSize) {
		if err := pub.Publish(topic, part...); err != nil {
			return err
		}
	}
	if err := s.redis.XGroupCreate(ctx, topic, consumerGroup, "0").Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	runtime.GC()
	return nil
}

// acked waits until Redis has all acks.
func (s *stage) acked(ctx context.Context) error {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		pending, err := s.redis.XPending(ctx, topic, consumerGroup).Result()
		if err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		if pending.Count == 0 {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
