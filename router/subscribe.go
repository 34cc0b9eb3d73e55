package router

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/waybill-go/waybill/eventing"
)

// consumerSubscriber is a subscriber of a broker that keeps for each consumer what it has
// not acked yet, such as ours in the process and that to Redis streams.
type consumerSubscriber interface {
	SubscribeConsumer(ctx context.Context, topic, consumer string, window int) (<-chan *message.Message, error)
	// SubscribePartition delivers in order, first what a former holder of the lease had.
	SubscribePartition(ctx context.Context, topic, consumer string) (<-chan *message.Message, error)
}

// subscriber returns what a consumer's Watermill handler subscribes with.
func (r *Router) subscriber(c *eventing.Consumer, declared *consumer) message.Subscriber {
	if c.Ordered() {
		ttl := r.cfg.LeaseTTL
		if ttl == 0 {
			ttl = 4 * time.Second
		}
		return &partitions{sub: r.cfg.Subscriber, consumer: declared.Name, leases: c.Leases, every: ttl / 6, logger: r.cfg.Logger.With("consumer", declared.Name)}
	}
	return r.unordered(declared.Name, c.Window())
}

func (r *Router) unordered(consumer string, window int) message.Subscriber {
	return lasting{sub: r.cfg.Subscriber, consumer: consumer, window: window, logger: r.cfg.Logger.With("consumer", consumer)}
}

// lasting subscribes for an unordered consumer, and again whenever the broker ends the
// subscription before its context. Its Close does nothing: whoever made the subscriber
// closes it.
type lasting struct {
	sub      message.Subscriber
	consumer string
	window   int
	logger   *slog.Logger
}

func (lasting) Close() error { return nil }

// String is what Watermill calls the subscriber, also in a poison message: as it would the broker's own.
func (l lasting) String() string { return nameOf(l.sub) }

func (l lasting) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := l.once(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for in != nil {
			forward(ctx, in, out)
			in = l.again(ctx, topic)
		}
	}()
	return out, nil
}

func (l lasting) once(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if sub, ok := l.sub.(consumerSubscriber); ok {
		return sub.SubscribeConsumer(ctx, topic, l.consumer, l.window)
	}
	return l.sub.Subscribe(ctx, topic)
}

// again subscribes until it succeeds; it returns nil when the context has ended.
func (l lasting) again(ctx context.Context, topic string) <-chan *message.Message {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		pause := wait.NextBackOff()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		in, err := l.once(ctx, topic)
		if err == nil {
			return in
		}
		l.logger.Warn("router: the subscription ended, and subscribing again failed; will try again", "topic", topic, "error", err, "after", pause)
	}
}

func nameOf(sub message.Subscriber) string {
	if s, ok := sub.(fmt.Stringer); ok {
		return s.String()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", sub), "*")
}

// partitions subscribes for an ordered consumer: to those partitions of the topic
// whose lease it holds, each one message at a time.
type partitions struct {
	sub      message.Subscriber
	consumer string
	leases   func(context.Context) ([]eventing.Lease, error)
	every    time.Duration
	logger   *slog.Logger
}

func (*partitions) Close() error { return nil }

func (p *partitions) String() string { return nameOf(p.sub) }

func (p *partitions) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		var forwarding sync.WaitGroup
		defer forwarding.Wait()
		held := map[int]subscription{}
		tick := time.NewTicker(max(p.every, time.Millisecond))
		defer tick.Stop()
		for {
			p.follow(ctx, topic, held, out, &forwarding)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return out, nil
}

// subscription is that of one partition, under one lease.
type subscription struct {
	token int64
	stop  context.CancelFunc
	ended chan struct{}
}

// follow ends the subscriptions of partitions that were lost and begins those of
// partitions that were won.
func (p *partitions) follow(ctx context.Context, topic string, held map[int]subscription, out chan<- *message.Message, forwarding *sync.WaitGroup) {
	leases, err := p.leases(ctx)
	if err != nil && ctx.Err() == nil {
		p.logger.Warn("router: renewing the leases failed", "error", err)
	}
	now := make(map[int]int64, len(leases))
	for _, l := range leases {
		now[l.Partition] = l.Token
	}
	for partition, s := range held {
		if token, ok := now[partition]; !ok || token != s.token || s.over() {
			s.stop()
			delete(held, partition)
		}
	}
	for partition, token := range now {
		if _, ok := held[partition]; ok || ctx.Err() != nil {
			continue
		}
		subCtx, stop := context.WithCancel(ctx)
		in, err := p.subscribe(subCtx, eventing.PartitionTopic(topic, partition))
		if err != nil {
			stop()
			p.logger.Warn("router: subscribing failed; will try again", "topic", topic, "partition", partition, "error", err)
			continue
		}
		s := subscription{token: token, stop: stop, ended: make(chan struct{})}
		held[partition] = s
		forwarding.Go(func() {
			defer close(s.ended)
			defer stop()
			forward(subCtx, in, out)
		})
	}
}

func (p *partitions) subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if sub, ok := p.sub.(consumerSubscriber); ok {
		return sub.SubscribePartition(ctx, topic, p.consumer)
	}
	return p.sub.Subscribe(ctx, topic)
}

func (s subscription) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func forward(ctx context.Context, in <-chan *message.Message, out chan<- *message.Message) {
	for m := range in {
		if ctx.Err() == nil {
			select {
			case out <- m:
				continue
			case <-ctx.Done():
			}
		}
		m.Nack() // the broker waits for what it has handed out, and delivers it again
	}
}
