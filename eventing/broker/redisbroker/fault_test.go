package redisbroker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// commandsOf returns how many commands a server has had. INFO alone adds two.
func commandsOf(t *testing.T, client *redis.Client) (n int) {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(stats["Stats"]["total_commands_processed"], &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// noBusyLoop fails the test if the server gets more than 40 commands in a second.
func noBusyLoop(t *testing.T, client *redis.Client) {
	t.Helper()
	const seconds = 3
	before := commandsOf(t, client)
	<-time.After(seconds * time.Second)
	if n := commandsOf(t, client) - before; n > 40*seconds {
		t.Errorf("the server got %d commands in %d s", n, seconds)
	}
}

// leftBehind publishes messages that a subscriber that died had in hand.
func leftBehind(t *testing.T, client *redis.Client, publisher *redisbroker.Publisher, msgs []*message.Message) {
	t.Helper()
	if err := client.XGroupCreateMkStream(t.Context(), topic, group, "$").Err(); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish(topic, msgs...); err != nil {
		t.Fatal(err)
	}
	read, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "dead", Streams: []string{topic, ">"}}).Result()
	if err != nil || len(read[0].Messages) != len(msgs) {
		t.Fatal(read, err)
	}
}

// A server whose memory is full takes no message, but lets those be read that it has,
// also by a subscriber that is new, and taken from the dead, and acked. What is malformed
// waits for room in quarantine.
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	server := testserver.PrivateRedis(t, "maxmemory-policy noeviction")
	client := newClient(t, server.URL())
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	leftBehind(t, client, publisher, numbered(0, 50))
	if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: topic, Values: []any{"garbage", ""}}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish(topic, numbered(50, 100)...); err != nil {
		t.Fatal(err)
	}
	memory := func(limit string) {
		if err := client.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	memory("1")
	if err := publisher.Publish(topic, numbered(100, 101)...); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("publish to a full server: %v", err)
	}
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{ClaimAfter: time.Second})
	received := subscribeTo(t, s)
	if _, err := s.Subscribe(t.Context(), "no stream yet"); err != nil { // nor can there be
		t.Fatal(err)
	}
	wantSame(t, "what the server has comes", ids(t, received, 100), uuids(numbered(0, 100)))
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := pendingOf(t, client); n != 1 {
			return fmt.Errorf("%d entries are pending: want the malformed one", n)
		}
		return nil
	})
	noBusyLoop(t, client)
	memory("0")
	if err := publisher.Publish(topic, numbered(100, 101)...); err != nil {
		t.Fatal(err)
	}
	wantSame(t, "what is published comes", ids(t, received, 1), []string{"100"})
	testkit.Eventually(t, 30*time.Second, func() error {
		if n, err := client.XLen(t.Context(), topic+redisbroker.QuarantineSuffix).Result(); n != 1 || err != nil {
			return fmt.Errorf("%d entries are in quarantine: %w", n, err)
		}
		return nil
	})
	allAcked(t, client)
}

// A topic whose key is something else holds up no other, and is read once it is a stream.
func TestTopicThatIsNoStream(t *testing.T) {
	t.Parallel()
	server := testserver.PrivateRedis(t)
	client := newClient(t, server.URL())
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{})
	received := subscribeTo(t, s)
	other, err := s.Subscribe(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish("other", numbered(0, 1)...); err != nil {
		t.Fatal(err)
	}
	unacked := <-other
	if err := client.Set(t.Context(), "other", "a string", 0).Err(); err != nil {
		t.Fatal(err)
	}
	unacked.Ack()
	for i := range 20 {
		if err := publisher.Publish(topic, numbered(i, i+1)...); err != nil {
			t.Fatal(err)
		}
		ids(t, received, 1)
	}
	allAcked(t, client)
	if err := client.Del(t.Context(), "other").Err(); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish("other", numbered(20, 30)...); err != nil {
		t.Fatal(err)
	}
	wantSame(t, "the stream is read", ids(t, other, 10), uuids(numbered(20, 30)))
}

// Entries whose IDs are smaller than what was read, as the server's clock was stepped
// back and its data are gone, are read; those it numbers on by itself, too.
func TestClockIsSteppedBack(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{}))
	for i := range 3 {
		future := time.Now().AddDate(100, 0, i).UnixMilli()
		if err := client.XAdd(t.Context(), &redis.XAddArgs{
			Stream: topic, ID: fmt.Sprintf("%d-0", future), Values: []any{"_watermill_message_uuid", "future"},
		}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := publisher.Publish(topic, numbered(0, 10)...); err != nil {
			t.Fatal(err)
		}
		wantSame(t, "what follows on the future comes", ids(t, received, 11), append(uuids(numbered(0, 10)), "future"))
		allAcked(t, client)
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if err := publisher.Publish(topic, numbered(10, 20)...); err != nil {
			t.Fatal(err)
		}
		wantSame(t, "what comes before the future comes", ids(t, received, 10), uuids(numbered(10, 20)))
		allAcked(t, client)
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that has lost an entry may give its ID to another, which is delivered, and
// not acked with the lost one.
func TestIDComesAgain(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	add := func(uuid string) {
		if err := client.XAdd(t.Context(), &redis.XAddArgs{
			Stream: topic, ID: "7-7", Values: []any{"_watermill_message_uuid", uuid},
		}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	add("first")
	received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{}))
	first := <-received
	if err := client.Del(t.Context(), topic).Err(); err != nil {
		t.Fatal(err)
	}
	add("second")
	var second *message.Message
	select {
	case second = <-received:
	case <-time.After(20 * time.Second):
		t.Fatal("the second entry does not come")
	}
	first.Ack()
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 10)...); err != nil {
		t.Fatal(err)
	}
	ids(t, received, 10)
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := pendingOf(t, client); n != 1 {
			return fmt.Errorf("%d are pending: want the second", n)
		}
		return nil
	})
	second.Ack()
	allAcked(t, client)
}

// readLate reads for a consumer that is just about to be removed, as a server does that
// hung, when it comes to a command of which nobody awaits the answer any more.
type readLate struct {
	client    *redis.Client
	publisher *redisbroker.Publisher
	published bool
	read      int
}

func (*readLate) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*readLate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (l *readLate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && slices.Contains(cmd.Args(), any("leaving")) {
			if !l.published {
				l.published = true
				if err := l.publisher.Publish(topic, numbered(10, 20)...); err != nil {
					return err
				}
			}
			read, err := l.client.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: group, Consumer: "leaving", Streams: []string{topic, ">"}, Block: -1,
			}).Result()
			if err == nil {
				l.read += len(read[0].Messages)
			}
		}
		return next(ctx, cmd)
	}
}

// A consumer that leaves its group takes nothing along.
func TestLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	server := testserver.RedisURL(t)
	direct := newClient(t, server)
	client := newClient(t, server)
	publisher := newPublisher(t, direct, redisbroker.PublisherConfig{})
	late := &readLate{client: direct, publisher: publisher}
	client.AddHook(late)
	ctx, stop := context.WithCancel(t.Context())
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{Consumer: "leaving"})
	received, err := s.Subscribe(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish(topic, numbered(0, 10)...); err != nil {
		t.Fatal(err)
	}
	ids(t, received, 10)
	stop()
	for range received {
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next := subscribeTo(t, newSubscriber(t, direct, redisbroker.SubscriberConfig{ClaimAfter: time.Second}))
	wantSame(t, "what was read late comes", ids(t, next, 10), uuids(numbered(10, 20)))
	if late.read != 10 {
		t.Errorf("%d messages were read late: this proves nothing", late.read)
	}
}

// Consumers of processes that were killed go, but for what they had in hand.
func TestTheDeadLeaveTheirGroup(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 1)...); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]any{
		{"xgroup", "create", topic, group, "0"},
		{"xreadgroup", "group", group, "busy", "count", 1, "streams", topic, ">"},
		{"xgroup", "createconsumer", topic, group, "leaving"},
		{"xgroup", "createconsumer", topic, group, "silent"},
	} {
		if err := client.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		silent time.Duration
		left   []string
	}{{time.Hour, []string{"busy", "silent"}}, {-time.Millisecond, []string{"busy"}}} {
		if err := redisbroker.RemoveConsumers(t.Context(), client, topic, group, "leaving", c.silent); err != nil {
			t.Fatal(err)
		}
		all, err := client.XInfoConsumers(t.Context(), topic, group).Result()
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, consumer := range all {
			left = append(left, consumer.Name)
		}
		if !slices.Equal(left, c.left) {
			t.Errorf("when those are gone that were silent for %v, the group has %q, want %q", c.silent, left, c.left)
		}
	}
}

// Of large messages, few are in memory: Redis counts messages only.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.PrivateRedis(t).URL())
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	msgs := numbered(0, 60)
	for _, m := range msgs {
		m.Payload = make([]byte, 1<<20)
	}
	if err := publisher.Publish(topic, msgs...); err != nil {
		t.Fatal(err)
	}
	received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{Window: 1}))
	for i := range msgs {
		m := <-received
		if n := pendingOf(t, client); n > 24 {
			t.Fatalf("when message %d is out, %d have been read", i, n)
		}
		m.Ack()
	}
	allAcked(t, client)
}
