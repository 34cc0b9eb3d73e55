package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
)

// callers is how many goroutines publish one message at a time.
const callers = 64

var (
	groupPublish = group{name: "publish-batch", what: fmt.Sprintf("Publish to Redis, %d messages a call", batchSize)}
	groupCallers = group{name: "publish-single", what: fmt.Sprintf("Publish to Redis, 1 message a call, %d callers", callers)}
	groupConsume = group{name: "consume", what: "Consume from Redis, and do nothing"}
)

func brokerGroups() []group { return []group{groupPublish, groupCallers, groupConsume} }

// brokerContestant publishes or consumes messages; run returns how long the measured
// part took.
type brokerContestant struct {
	group, name string
	run         func(ctx context.Context, s *stage) (time.Duration, error)
}

// brokerContestants returns all of them; the first of a group is its baseline.
func brokerContestants() []brokerContestant {
	return []brokerContestant{
		{groupPublish.name, "watermill-redisstream", publishBatches(stockPublisher)},
		{groupPublish.name, "waybill", publishBatches(ownPublisher)},
		{groupCallers.name, "watermill-redisstream", publishSingly(stockPublisher)},
		{groupCallers.name, "waybill", publishSingly(ownPublisher)},
		{groupConsume.name, "watermill-redisstream", consume(stockSubscriber)},
		{groupConsume.name, "waybill", consume(ownSubscriber)},
		{groupConsume.name, "waybill, router", consumeByRouter},
	}
}

// stage is where one contestant runs once: a Redis without data.
type stage struct {
	redis *redis.Client
	msgs  []*message.Message
}

func runBrokers(ctx context.Context, args []string, out io.Writer, progress *log.Logger) error {
	flags, jsonFile := newFlags("brokers", progress)
	rounds := flags.Int("rounds", 5, "how often each contestant runs")
	n := flags.Int("messages", 60_000, "messages of each run")
	only := flags.String("only", "", "run only those with this `text` in the group (publish-batch, publish-single, consume) or the name")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := positive(flags, "rounds", "messages"); err != nil {
		return err
	}
	list := slices.DeleteFunc(brokerContestants(), func(c brokerContestant) bool { return !strings.Contains(c.group+", "+c.name, *only) })
	if len(list) == 0 {
		return fmt.Errorf("-only: %q is in no name", *only)
	}
	results, err := compareBrokers(ctx, list, *rounds, *n, progress)
	if err != nil {
		return err
	}
	groups := slices.DeleteFunc(brokerGroups(), func(g group) bool {
		return !slices.ContainsFunc(list, func(c brokerContestant) bool { return c.group == g.name })
	})
	return writeReport(out, *jsonFile, results, func(w io.Writer) error { return writeTable(w, groups, results) })
}

// compareBrokers interleaves the contestants as comparePeers does.
func compareBrokers(ctx context.Context, list []brokerContestant, rounds, n int, progress *log.Logger) (results []result, err error) {
	msgs, err := newMessages(n)
	if err != nil {
		return nil, err
	}
	// The log is not rewritten: that would take a processor from some of the runs.
	server, err := testserver.StartRedis(ctx, "", "appendonly yes", "appendfsync everysec", "auto-aof-rewrite-percentage 0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	var measured rates
	baselines := map[string]string{}
	for _, c := range list {
		measured.declare(c.group, c.name)
		if baselines[c.group] == "" {
			baselines[c.group] = c.name
		}
	}
	for round := range rounds {
		for _, i := range shuffled(len(list), func(i int) string { return list[i].group }) {
			c := list[i]
			took, err := onStage(ctx, server.URL(), msgs, c)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.group, c.name, err)
			}
			rate := measured.add(c.group, c.name, n, took)
			progress.Printf("round %d of %d: %s, %s: %.0f messages/s", round+1, rounds, c.group, c.name, rate)
		}
	}
	return measured.results(brokerGroups(), baselines), nil
}

// newMessages makes what a dispatcher publishes of the sample event.
func newMessages(n int) ([]*message.Message, error) {
	events, err := newEvents(n)
	if err != nil {
		return nil, err
	}
	msgs := make([]*message.Message, n)
	for i, e := range events {
		if msgs[i], err = (eventing.EnvelopeCodec{}).Marshal(e.Envelope); err != nil {
			return nil, fmt.Errorf("the sample event: %w", err)
		}
	}
	return msgs, nil
}

func onStage(ctx context.Context, redisURL string, msgs []*message.Message, c brokerContestant) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, errors.New("the run takes too long"))
	defer cancel()
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return 0, fmt.Errorf("redis: %w", err)
	}
	options.ContextTimeoutEnabled = true // redisbroker insists on it
	options.PoolSize = callers           // else the stock publisher's calls wait for connections
	s := &stage{redis: redis.NewClient(options), msgs: msgs}
	defer s.redis.Close() // Watermill's publisher may have closed it
	if err := s.redis.FlushAll(ctx).Err(); err != nil {
		return 0, fmt.Errorf("redis: %w", err)
	}
	return c.run(ctx, s)
}

type newPublisher func(*stage) (message.Publisher, error)

func publishBatches(connect newPublisher) func(context.Context, *stage) (time.Duration, error) {
	return func(ctx context.Context, s *stage) (time.Duration, error) {
		return s.publish(ctx, connect, 1, batchSize)
	}
}

func publishSingly(connect newPublisher) func(context.Context, *stage) (time.Duration, error) {
	return func(ctx context.Context, s *stage) (time.Duration, error) {
		return s.publish(ctx, connect, callers, 1)
	}
}

// publish has goroutines publish all messages, so many a call.
func (s *stage) publish(ctx context.Context, connect newPublisher, goroutines, each int) (time.Duration, error) {
	pub, err := connect(s)
	if err != nil {
		return 0, err
	}
	var calls sync.WaitGroup
	failed := make(chan error, goroutines)
	publish := func(msgs []*message.Message) {
		for part := range slices.Chunk(msgs, each) {
			if err := pub.Publish(topic, part...); err != nil {
				failed <- err
				return
			}
		}
	}
	for range goroutines { // open the connections
		calls.Go(func() { publish(s.msgs[:1]) })
	}
	calls.Wait()
	if err := s.redis.Del(ctx, topic).Err(); err != nil {
		return 0, err
	}
	runtime.GC()
	start := time.Now()
	for part := range slices.Chunk(s.msgs, (len(s.msgs)+goroutines-1)/goroutines) {
		calls.Go(func() { publish(part) })
	}
	calls.Wait()
	took := time.Since(start)
	close(failed)
	if err := <-failed; err != nil {
		return 0, err
	}
	n, err := s.redis.XLen(ctx, topic).Result()
	if err == nil && n != int64(len(s.msgs)) {
		err = fmt.Errorf("%d of %d messages are in the stream", n, len(s.msgs))
	}
	return took, errors.Join(err, pub.Close())
}
