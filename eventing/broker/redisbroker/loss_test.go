package redisbroker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// What a subscriber had in hand when it died goes to another, after a while.
func TestClaimsFromTheDead(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 1000)...); err != nil {
		t.Fatal(err)
	}
	if err := client.XGroupCreate(t.Context(), topic, group, "0").Err(); err != nil {
		t.Fatal(err)
	}
	read, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "dead", Streams: []string{topic, ">"}, Count: 700}).Result()
	if err != nil || len(read[0].Messages) != 700 {
		t.Fatal(read, err)
	}
	received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{ClaimAfter: time.Second}))
	wantSame(t, "all messages come", ids(t, received, 1000), uuids(numbered(0, 1000)))
	allAcked(t, client)
}

// What is in hand for long is not taken away.
func TestKeepsWhatIsInHand(t *testing.T) {
	t.Parallel()
	const claimAfter = 3 * time.Second // a busy machine has time to say that it is in hand
	client := newClient(t, testserver.RedisURL(t))
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 50)...); err != nil {
		t.Fatal(err)
	}
	first := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{ClaimAfter: claimAfter, Window: 5}))
	held := <-first
	testkit.Eventually(t, time.Minute, func() error { // it reads fewer at first
		pending, err := client.XPending(t.Context(), topic, group).Result()
		if err == nil && pending.Count < 50 {
			err = fmt.Errorf("the first subscriber has %d messages in hand", pending.Count)
		}
		return err
	})
	second := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{ClaimAfter: claimAfter}))
	select {
	case m := <-second:
		t.Errorf("message %s was taken from who has it in hand", m.UUID)
	case <-time.After(3 * claimAfter):
	}
	held.Ack()
	wantSame(t, "the first subscriber has the rest", append(ids(t, first, 49), held.UUID), uuids(numbered(0, 50)))
}

// A subscriber that is closed gives back what it has in hand, at once, and as not yet
// delivered.
func TestCloseGivesBack(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 300)...); err != nil {
		t.Fatal(err)
	}
	closing := newSubscriber(t, client, redisbroker.SubscriberConfig{Consumer: "closing", CloseTimeout: 100 * time.Millisecond})
	received := subscribeTo(t, closing)
	done := ids(t, received, 10)
	for range 20 {
		<-received // neither acked nor nacked
	}
	began := time.Now()
	if err := closing.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("closing took %v", took)
	}
	if _, more := <-received; more {
		t.Error("nothing is delivered after the end")
	}
	consumers, err := client.XInfoConsumers(t.Context(), topic, group).Result()
	if err != nil || slices.ContainsFunc(consumers, func(c redis.XInfoConsumer) bool { return c.Name == "closing" }) {
		t.Errorf("a consumer that has nothing leaves its group: %v, %v", consumers, err)
	}
	next := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{}))
	wantSame(t, "the next one gets all that was not acked, at once", append(done, ids(t, next, 290)...), uuids(numbered(0, 300)))
	if _, err := closing.Subscribe(t.Context(), topic); err == nil {
		t.Error("a closed subscriber takes no subscription")
	}
}

// Redis forgets the stream, or everything, and the subscriber goes on.
func TestGoesOnAfterALoss(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redis.Client) error{
		"stream deleted": func(c *redis.Client) error { return c.Del(context.Background(), topic).Err() },
		"group deleted":  func(c *redis.Client) error { return c.XGroupDestroy(context.Background(), topic, group).Err() },
		"all deleted":    func(c *redis.Client) error { return c.FlushDB(context.Background()).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, testserver.RedisURL(t))
			publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
			received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{}))
			if err := publisher.Publish(topic, numbered(0, 10)...); err != nil {
				t.Fatal(err)
			}
			ids(t, received, 10)
			allAcked(t, client)
			if err := lose(client); err != nil {
				t.Fatal(err)
			}
			if err := publisher.Publish(topic, numbered(10, 20)...); err != nil {
				t.Fatal(err)
			}
			n := 10
			if name == "group deleted" {
				n = 20 // it begins anew
			}
			wantSame(t, "what is published afterwards comes", ids(t, received, n), uuids(numbered(20-n, 20)))
		})
	}
}

// The server is away when the subscription begins, and killed later, with what it had.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]string{"nothing kept": "appendonly no", "all kept": "appendonly yes\nappendfsync always"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.PrivateRedis(t, strings.Split(setting, "\n")...)
			if err := server.Stop(); err != nil {
				t.Fatal(err)
			}
			client := newClient(t, server.URL())
			publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
			received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{ClaimAfter: time.Second}))
			restart := func() {
				if err := server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			restart()
			for i := range 3 {
				msgs := numbered(10*i, 10*i+10)
				if err := publisher.Publish(topic, msgs...); err != nil {
					t.Fatal(err)
				}
				// Acks that the server has lost with a kill come again.
				want := uuids(msgs)
				for len(want) > 0 {
					got := receive(t, received).UUID
					want = slices.DeleteFunc(want, func(id string) bool { return id == got })
				}
				allAcked(t, client)
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
				restart()
			}
		})
	}
}

// A subscriber that is closed under load does so in time, and what it had goes on.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	const all = 5000
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, all)...); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	work := func(received <-chan *message.Message) {
		for m := range received {
			mu.Lock()
			seen[m.UUID]++
			mu.Unlock()
			m.Ack()
		}
	}
	var workers sync.WaitGroup
	for range 20 {
		s := newSubscriber(t, client, redisbroker.SubscriberConfig{})
		received := subscribeTo(t, s)
		workers.Go(func() { work(received) })
		<-time.After(20 * time.Millisecond)
		began := time.Now()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("closing took %v", took)
		}
	}
	last := newSubscriber(t, client, redisbroker.SubscriberConfig{})
	received := subscribeTo(t, last)
	workers.Go(func() { work(received) })
	testkit.Eventually(t, 20*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(seen) < all {
			return fmt.Errorf("%d of %d messages came", len(seen), all)
		}
		return nil
	})
	allAcked(t, client)
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	workers.Wait()
	for id, n := range seen {
		if n > 1 {
			t.Errorf("message %s was acked, and came %d times", id, n)
		}
	}
	info, err := client.XInfoConsumers(t.Context(), topic, group).Result()
	if err != nil || len(info) > 1 {
		t.Errorf("of the consumers, only that for what was given back is left: %v, %v", info, err)
	}
}
