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

// large returns messages of so many bytes.
func large(from, to, size int) []*message.Message {
	msgs := numbered(from, to)
	for _, m := range msgs {
		m.Payload = []byte(strings.Repeat("x", size))
	}
	return msgs
}

// newClientThrough returns a client that retries commands, as clients do by default.
func newClientThrough(t *testing.T, proxy *testkit.Proxy, readTimeout time.Duration) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	options.ReadTimeout = readTimeout
	client := redis.NewClient(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// What Redis has sent, and a connection that broke has lost, comes as what a dead
// subscriber had does, even while this one keeps something in hand.
func TestConnectionBreaksWithMessages(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]bool{"the client retries": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.RedisURL(t)
			publisher := newPublisher(t, newClient(t, server), redisbroker.PublisherConfig{})
			proxy := testkit.StartProxy(t, server)
			client := newClient(t, proxy.URL())
			if retries {
				client = newClientThrough(t, proxy, 0)
			}
			received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{ClaimAfter: time.Second}))
			if err := publisher.Publish(topic, numbered(0, 1)...); err != nil {
				t.Fatal(err)
			}
			held := <-received
			for i := range 3 {
				proxy.CutAfter(20_000)
				msgs := large(100*i+1, 100*i+101, 1000)
				if err := publisher.Publish(topic, msgs...); err != nil {
					t.Fatal(err)
				}
				wantSame(t, "what was on its way comes", ids(t, received, len(msgs)), uuids(msgs))
			}
			held.Ack()
			allAcked(t, client)
		})
	}
}

// A partition's messages that were lost on their way come before those that follow.
func TestConnectionBreaksWithAPartition(t *testing.T) {
	t.Parallel()
	server := testserver.RedisURL(t)
	publisher := newPublisher(t, newClient(t, server), redisbroker.PublisherConfig{})
	proxy := testkit.StartProxy(t, server)
	received, _ := partitionOf(t, newSubscriber(t, newClientThrough(t, proxy, 0), redisbroker.SubscriberConfig{Batch: 20}))
	const all = 1000
	for next := 0; next < all; next += 50 {
		proxy.CutAfter(3_000 + 97*next)
		if err := publisher.Publish(topic, large(next, next+50, 1000)...); err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if got := receive(t, received).UUID; got != fmt.Sprint(next+i) {
				t.Fatalf("message %s comes instead of %d", got, next+i)
			}
		}
	}
}

// A link that is too slow for a whole batch in time gets smaller ones.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	server := testserver.RedisURL(t)
	direct := newClient(t, server)
	msgs := large(0, 300, 10_000)
	if err := newPublisher(t, direct, redisbroker.PublisherConfig{}).Publish(topic, msgs...); err != nil {
		t.Fatal(err)
	}
	proxy := testkit.StartProxy(t, server)
	proxy.Slow(1 << 20) // a batch takes 2.5 s
	received := subscribeTo(t, newSubscriber(t, newClientThrough(t, proxy, 500*time.Millisecond), redisbroker.SubscriberConfig{ClaimAfter: time.Second}))
	var got []string
	for len(got) < len(msgs) {
		if id := receive(t, received).UUID; !slices.Contains(got, id) {
			got = append(got, id)
		}
	}
	wantSame(t, "all messages come", got, uuids(msgs))
	proxy.Slow(0)
	allAcked(t, direct)
}

// A server that hangs holds up no end of a subscription, nor Close, for longer than they
// may take, however many acks wait. It loses nothing by that.
func TestCloseWhileServerHangs(t *testing.T) {
	t.Parallel()
	const closeTimeout, readTimeout, grace = 200 * time.Millisecond, time.Second, 5 * time.Second
	server := testserver.RedisURL(t)
	direct := newClient(t, server)
	publisher := newPublisher(t, direct, redisbroker.PublisherConfig{})
	const all = 5000
	if err := publisher.Publish(topic, numbered(0, all)...); err != nil {
		t.Fatal(err)
	}
	proxy := testkit.StartProxy(t, server)
	client := newClientThrough(t, proxy, readTimeout)
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{Window: all, Batch: all, CloseTimeout: closeTimeout, ClaimAfter: time.Second})
	ctx, stop := context.WithCancel(t.Context())
	received, err := s.Subscribe(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	inHand := make([]*message.Message, all)
	for i := range inHand {
		inHand[i] = <-received
	}
	thaw := proxy.Freeze()
	defer thaw()
	for _, m := range inHand[:all-10] { // more than wait to be sent
		m.Ack()
	}
	began := time.Now()
	stop()
	for range received {
	}
	if took := time.Since(began); took > closeTimeout+readTimeout+grace {
		t.Errorf("the subscription ended after %v", took)
	}
	began = time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > closeTimeout+readTimeout+grace {
		t.Errorf("closing took %v", took)
	}
	thaw()
	next := subscribeTo(t, newSubscriber(t, direct, redisbroker.SubscriberConfig{ClaimAfter: time.Second}))
	var rest []string
	for pendingOf(t, direct) > 0 || len(rest) == 0 {
		select {
		case m := <-next:
			rest = append(rest, m.UUID)
			m.Ack()
		case <-time.After(100 * time.Millisecond):
		}
	}
	for _, m := range inHand[all-10:] {
		if !slices.Contains(rest, m.UUID) {
			t.Errorf("message %s, which was not acked, is lost", m.UUID)
		}
	}
}
