package redisbroker_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

const group = "readers"

// newSubscriber returns a subscriber that the test closes, if it has not done so.
func newSubscriber(tb testing.TB, client redis.UniversalClient, cfg redisbroker.SubscriberConfig) *redisbroker.Subscriber {
	tb.Helper()
	if cfg.Group == "" {
		cfg.Group = group
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := redisbroker.NewSubscriber(client, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func subscribeTo(tb testing.TB, s *redisbroker.Subscriber) <-chan *message.Message {
	tb.Helper()
	received, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		tb.Fatal(err)
	}
	return received
}

// ids receives and acks n messages.
func ids(t *testing.T, received <-chan *message.Message, n int) []string {
	t.Helper()
	var got []string
	for range n {
		got = append(got, receive(t, received).UUID)
	}
	return got
}

func wantSame(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %d messages, want %d: %.200v", what, len(got), len(want), got)
	}
}

// pendingOf returns how many messages nobody has acked.
func pendingOf(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	p, err := client.XPending(t.Context(), topic, group).Result()
	if err != nil {
		t.Fatal(err)
	}
	return p.Count
}

func allAcked(t *testing.T, client *redis.Client) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := pendingOf(t, client); n > 0 {
			return fmt.Errorf("%d messages are pending", n)
		}
		return nil
	})
}

func TestReadsWhatStockPublishes(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	stock, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sent []*message.Message
	for _, size := range []int{0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536} {
		m := message.NewMessage(fmt.Sprint("size ", size), message.Payload(strings.Repeat("\x00é", size)))
		m.Metadata.Set(strings.Repeat("k", size), strings.Repeat("v", size))
		many := message.NewMessage(fmt.Sprint("entries ", size), nil)
		for i := range size {
			many.Metadata.Set(fmt.Sprint(i), fmt.Sprint("value ", i))
		}
		sent = append(sent, m, many)
	}
	if err := stock.Publish(topic, sent...); err != nil {
		t.Fatal(err)
	}
	received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{Window: 1}))
	for _, want := range sent {
		got := receive(t, received)
		if got.UUID != want.UUID || string(got.Payload) != string(want.Payload) || !maps.Equal(got.Metadata, want.Metadata) {
			t.Errorf("%s came as %s, with %d bytes and %d metadata entries", want.UUID, got.UUID, len(got.Payload), len(got.Metadata))
		}
	}
}

// A malformed entry goes into quarantine, whole, and the good ones around it come.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	if err := publisher.Publish(topic, numbered(0, 3)...); err != nil {
		t.Fatal(err)
	}
	id, err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: topic, Values: []any{"garbage", "\xff"}}).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: topic, Values: []any{"_watermill_message_uuid", "x", "metadata", "\xde\xff\xff"}}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish(topic, numbered(3, 6)...); err != nil {
		t.Fatal(err)
	}
	received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{Window: 1}))
	if got, want := ids(t, received, 6), uuids(numbered(0, 6)); !slices.Equal(got, want) {
		t.Errorf("received %v", got)
	}
	allAcked(t, client)
	entries, err := client.XRange(t.Context(), topic+redisbroker.QuarantineSuffix, "-", "+").Result()
	if err != nil || len(entries) != 2 {
		t.Fatalf("quarantine: %v, %v", entries, err)
	}
	if v := entries[0].Values; v["garbage"] != "\xff" || v["waybill_entry_id"] != id || v["waybill_error"] == "" {
		t.Errorf("the entry in quarantine is %v", v)
	}
}

// A message that is always nacked comes again ever more rarely, and holds up no other.
func TestNackedMessagesWait(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 101)...); err != nil {
		t.Fatal(err)
	}
	received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{NackDelay: 50 * time.Millisecond}))
	good, nacked := 0, 0
	for end := time.After(2 * time.Second); ; {
		select {
		case m := <-received:
			if m.UUID == "0" {
				nacked++
				m.Nack()
			} else {
				good++
				m.Ack()
			}
			continue
		case <-end:
		}
		break
	}
	if good != 100 || nacked < 3 || nacked > 8 {
		t.Errorf("in 2 s, %d good messages came, and one that was nacked came %d times", good, nacked)
	}
}

// Two subscriptions of one topic share its messages, and what one leaves goes to the other.
func TestSubscriptionsShare(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{CloseTimeout: 100 * time.Millisecond})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	first, err := s.Subscribe(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 200)...); err != nil {
		t.Fatal(err)
	}
	done := ids(t, first, 5)
	second := subscribeTo(t, s)
	<-first
	stop()
	wantSame(t, "all messages come", append(done, ids(t, second, 195)...), uuids(numbered(0, 200)))
}

func TestSubscriberConfig(t *testing.T) {
	t.Parallel()
	client := newClient(t, "redis://localhost:1")
	for name, cfg := range map[string]redisbroker.SubscriberConfig{
		"its own name":     {Group: group, Consumer: "waybill-returned"},
		"negative window":  {Group: group, Window: -1},
		"negative batch":   {Group: group, Batch: -1},
		"too short a wait": {Group: group, ClaimAfter: time.Millisecond},
		"negative delay":   {Group: group, NackDelay: -1},
	} {
		if _, err := redisbroker.NewSubscriber(client, cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s, err := redisbroker.NewSubscriber(client, redisbroker.SubscriberConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Subscribe(t.Context(), topic); err == nil {
		t.Error("no group: no error")
	}
	if _, err := redisbroker.NewSubscriber(nil, redisbroker.SubscriberConfig{Group: group}); err == nil {
		t.Error("no client: no error")
	}
	heedless := redis.NewClient(&redis.Options{})
	defer heedless.Close()
	if _, err := redisbroker.NewSubscriber(heedless, redisbroker.SubscriberConfig{Group: group}); err == nil {
		t.Error("a client that ignores deadlines: no error")
	}
}
