package redisbroker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// newCluster starts a cluster of one node, which answers as one of many does: commands
// over several slots are refused.
func newCluster(t *testing.T) *redis.ClusterClient {
	t.Helper()
	server := testserver.PrivateRedis(t, "cluster-enabled yes", fmt.Sprint("cluster-port ", testserver.FreePort(t)))
	node := newClient(t, server.URL())
	if err := node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		if info, err := node.ClusterInfo(t.Context()).Result(); err != nil || !strings.Contains(info, "cluster_state:ok") {
			return fmt.Errorf("the cluster is not ready: %s: %w", info, err)
		}
		return nil
	})
	options := node.Options()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{options.Addr}, Username: options.Username, Password: options.Password, ContextTimeoutEnabled: true,
		PoolSize: 20, // more than topics
	})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// On a cluster, each topic is on a node of its own.
func TestCluster(t *testing.T) {
	t.Parallel()
	client := newCluster(t)
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{MaxLen: 10})
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range 5 {
		topic := fmt.Sprint("topic-", i)
		if err := publisher.Publish(topic, numbered(0, 300)...); err != nil {
			t.Fatal(err)
		}
		if err := publisher.Publish(topic, numbered(300, 301)...); err != nil {
			t.Fatal(err)
		}
		received, err := s.Subscribe(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, topic, ids(t, received, 301), uuids(numbered(0, 301)))
		ordered, err := s.SubscribePartition(ctx, topic, "ledger")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := ids(t, ordered, 301), uuids(numbered(0, 301)); !slices.Equal(got, want) {
			t.Errorf("the partition of %s came as %v", topic, got)
		}
	}
	testkit.Eventually(t, time.Minute, func() error {
		for _, name := range []string{group, "ledger"} {
			if pending, err := client.XPending(t.Context(), "topic-0", name).Result(); err != nil || pending.Count > 0 {
				return fmt.Errorf("of the group %s, %d messages are not acked: %w", name, pending.Count, err)
			}
		}
		return nil
	})
	if err := publisher.Publish("topic-0", numbered(301, 302)...); err != nil {
		t.Fatal(err)
	}
	if n, err := client.XLen(t.Context(), "topic-0").Result(); err != nil || n == 302 {
		t.Errorf("the stream has %d messages: none has been dropped: %v", n, err)
	}
}
