package redisbroker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

func partitionOf(t *testing.T, s *redisbroker.Subscriber) (received <-chan *message.Message, stop func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	received, err := s.SubscribePartition(ctx, topic, group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return received, stop
}

// Somebody who had the lease before, and does not know that it is lost, goes on reading,
// and acks nothing.
func TestPartitionComesInOrder(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	r := testkit.Random(t)
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	if err := client.XGroupCreateMkStream(t.Context(), topic, group, "0").Err(); err != nil {
		t.Fatal(err)
	}
	const all = 3000
	published, stolen := 0, 0
	publish := func(n int) {
		if err := publisher.Publish(topic, numbered(published, published+n)...); err != nil {
			t.Fatal(err)
		}
		published += n
	}
	steal := func(n int64) {
		read, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{
			Group: group, Consumer: fmt.Sprint("former ", r.IntN(3)), Streams: []string{topic, ">"}, Count: n, Block: -1,
		}).Result()
		if err == nil {
			stolen += len(read[0].Messages)
		}
	}
	publish(20)
	steal(10)
	received, _ := partitionOf(t, newSubscriber(t, client, redisbroker.SubscriberConfig{ClaimAfter: time.Second, Batch: 8}))
	next := 0
	for next < all {
		for published < all && r.IntN(3) == 0 {
			publish(min(1+r.IntN(20), all-published))
			if r.IntN(2) == 0 {
				steal(int64(1 + r.IntN(5)))
			}
		}
		if next == published {
			publish(min(10, all-published))
		}
		if got := receive(t, received).UUID; got != fmt.Sprint(next) {
			t.Fatalf("message %s comes after %d", got, next-1)
		}
		next++
	}
	if stolen < 100 {
		t.Errorf("%d messages were in others' hands: this proves nothing", stolen)
	}
	allAcked(t, client)
}

// A lease comes back to a process whose former subscription has yet to end.
func TestPartitionIsTakenOver(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 100)...); err != nil {
		t.Fatal(err)
	}
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{CloseTimeout: time.Second})
	received, stop := partitionOf(t, s)
	got := ids(t, received, 10)
	late := <-received
	select {
	case m := <-received:
		t.Errorf("message %s comes before the one ahead of it is acked", m.UUID)
	case <-time.After(100 * time.Millisecond):
	}
	stop()
	again, _ := partitionOf(t, s)
	got = append(got, ids(t, again, 50)...)
	late.Ack() // does no harm
	got = append(got, ids(t, again, 40)...)
	if want := uuids(numbered(0, 100)); !slices.Equal(got, want) {
		t.Errorf("received %v", got)
	}
	allAcked(t, client)
}

func TestConsumersShareATopic(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, numbered(0, 100)...); err != nil {
		t.Fatal(err)
	}
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{})
	for _, consumer := range []string{"billing", "mail"} {
		received, err := s.SubscribeConsumer(context.Background(), topic, consumer, 10)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "each consumer gets all messages", ids(t, received, 100), uuids(numbered(0, 100)))
	}
}
