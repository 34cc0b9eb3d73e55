package redisbroker_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testserver"
)

// TestStockSubscriberReads sends what the encoding of metadata distinguishes.
func TestStockSubscriberReads(t *testing.T) {
	t.Parallel()
	for name, marshaller := range map[string]redisbroker.Marshaller{
		"own": nil, "stock": redisstream.DefaultMarshallerUnmarshaller{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redisURL := testserver.RedisURL(t)
			client := newClient(t, redisURL)
			var sent []*message.Message
			for _, size := range []int{0, 1, 31, 32, 255, 256, 65535, 65536} {
				m := message.NewMessage(fmt.Sprint("size ", size), message.Payload(strings.Repeat("\x00é", size)))
				m.Metadata.Set(strings.Repeat("k", size), strings.Repeat("v", size))
				sent = append(sent, m)
			}
			for _, entries := range []int{0, 1, 15, 16, 1000, 65535} {
				m := message.NewMessage(fmt.Sprint("entries ", entries), nil)
				for i := range entries {
					m.Metadata.Set(fmt.Sprint(i), fmt.Sprint("value ", i))
				}
				sent = append(sent, m)
			}
			if err := newPublisher(t, client, redisbroker.PublisherConfig{Marshaller: marshaller}).Publish(topic, sent...); err != nil {
				t.Fatal(err)
			}
			received := subscribe(t, redisURL)
			for _, want := range sent {
				got := receive(t, received)
				if got.UUID != want.UUID || string(got.Payload) != string(want.Payload) || !maps.Equal(got.Metadata, want.Metadata) {
					t.Errorf("%s came as %s, with %d bytes and %d metadata entries", want.UUID, got.UUID, len(got.Payload), len(got.Metadata))
				}
			}
		})
	}
}

func subscribe(t *testing.T, redisURL string) <-chan *message.Message {
	t.Helper()
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:        redis.NewClient(options), // which it closes
		ConsumerGroup: "readers",

		DisableIndefiniteInitialBlock: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := subscriber.Close(); err != nil {
			t.Error(err)
		}
	})
	received, err := subscriber.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return received
}

func receive(t *testing.T, received <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m := <-received:
		m.Ack()
		return m
	case <-time.After(20 * time.Second):
		t.Fatal("no message came")
		return nil
	}
}
