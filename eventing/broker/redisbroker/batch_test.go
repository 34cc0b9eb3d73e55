package redisbroker_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testserver"
)

// A batch over several streams keeps each one's order, also over several transactions.
func TestBatchOverTopics(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{TransactionMessages: 7, MaxLen: 1000, TrimUnread: true})
	msgs := numbered(0, 50)
	topics := make([]string, len(msgs))
	want := map[string][]string{}
	for i := range topics {
		topics[i] = fmt.Sprintf("batch.%02d", i%3)
		want[topics[i]] = append(want[topics[i]], msgs[i].UUID)
	}
	if err := publisher.PublishBatch(t.Context(), topics, msgs); err != nil {
		t.Fatal(err)
	}
	for topic, ids := range want {
		entries, err := client.XRange(t.Context(), topic, "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Values["_watermill_message_uuid"].(string))
		}
		if !slices.Equal(got, ids) {
			t.Errorf("stream %s has %v, want %v", topic, got, ids)
		}
	}
	if err := publisher.PublishBatch(t.Context(), topics[1:], msgs); err == nil {
		t.Error("49 topics were enough for 50 messages")
	}
}

func TestBatchOnAClusterIsUnsupported(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true})
	defer client.Close()
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	if err := publisher.PublishBatch(t.Context(), []string{"a", "b"}, numbered(0, 2)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}
