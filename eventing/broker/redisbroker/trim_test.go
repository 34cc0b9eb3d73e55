package redisbroker_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// read has a group read n messages, and ack all but the first unacked of them.
func read(t *testing.T, client *redis.Client, group string, n, unacked int) {
	t.Helper()
	if n == 0 {
		return
	}
	streams, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{
		Group: group, Consumer: "somebody", Streams: []string{topic, ">"}, Count: int64(n),
	}).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range streams[0].Messages[unacked:] {
		if err := client.XAck(t.Context(), topic, group, e.ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// What somebody needs is not dropped, and of the rest so much is kept as is to be.
func TestTrim(t *testing.T) {
	t.Parallel()
	const messages, kept = 1000, 200
	for name, c := range map[string]struct {
		cfg         redisbroker.PublisherConfig
		groups      map[string][2]int // each has read so many, and not acked the last of them
		least, most int               // are left
	}{
		"nobody reads":             {least: messages, most: messages},
		"a group has read nothing": {groups: map[string][2]int{"a": {0, 0}}, least: messages, most: messages},
		"all is acked":             {groups: map[string][2]int{"a": {messages, 0}}, least: kept, most: kept + 150},
		"one group is behind":      {groups: map[string][2]int{"a": {messages, 0}, "b": {300, 0}}, least: messages - 300, most: messages - 150},
		"nothing is acked":         {groups: map[string][2]int{"a": {messages, messages}}, least: messages, most: messages},
		"none are to be dropped":   {cfg: redisbroker.PublisherConfig{MaxLen: -1}, groups: map[string][2]int{"a": {messages, 0}}, least: messages, most: messages},
		"unread, too":              {cfg: redisbroker.PublisherConfig{TrimUnread: true}, least: kept, most: kept + 150},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, testserver.RedisURL(t))
			c.cfg.MaxLen += kept
			if c.cfg.MaxLen < kept {
				c.cfg.MaxLen = -1
			}
			publisher := newPublisher(t, client, c.cfg)
			if err := publisher.Publish(topic, numbered(0, messages)...); err != nil {
				t.Fatal(err)
			}
			for group, has := range c.groups {
				if err := client.XGroupCreate(t.Context(), topic, group, "0").Err(); err != nil {
					t.Fatal(err)
				}
				read(t, client, group, has[0], has[1])
			}
			// A tenth of the limit more, and it is trimmed. These nobody has read.
			if err := publisher.Publish(topic, numbered(0, kept/10)...); err != nil {
				t.Fatal(err)
			}
			if n := len(added(t, client)); n < c.least || n > c.most+kept/10 {
				t.Errorf("%d messages are left, want %d to %d", n, c.least, c.most+kept/10)
			}
		})
	}
}

// The oldest message that is not acked keeps all that come after it.
func TestTrimKeepsThePending(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{MaxLen: 10})
	if err := publisher.Publish(topic, numbered(0, 1000)...); err != nil {
		t.Fatal(err)
	}
	if err := client.XGroupCreate(t.Context(), topic, "a", "0").Err(); err != nil {
		t.Fatal(err)
	}
	read(t, client, "a", 500, 0)
	read(t, client, "a", 500, 1)
	if err := publisher.Publish(topic, numbered(1000, 1001)...); err != nil {
		t.Fatal(err)
	}
	if got := added(t, client); len(got) > 600 || got[len(got)-501] != "500" {
		t.Errorf("%d messages are left, from %s on", len(got), got[0])
	}
}

// A stream that cannot be trimmed is one that is published to.
func TestTrimFails(t *testing.T) {
	t.Parallel()
	server := testserver.PrivateRedis(t)
	admin := newClient(t, server.URL())
	if err := admin.Do(t.Context(), "acl", "setuser", "publisher", "on", ">secret", "+@all", "-@scripting", "~*").Err(); err != nil {
		t.Fatal(err)
	}
	options := *admin.Options()
	options.Username, options.Password = "publisher", "secret"
	client := redis.NewClient(&options)
	defer client.Close()
	var warnings strings.Builder // Publish logs before it returns
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{MaxLen: 1, Logger: slog.New(slog.NewTextHandler(&warnings, nil))})
	for range 3 {
		if err := publisher.Publish(topic, numbered(0, 10)...); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(added(t, admin)); got != 30 || strings.Count(warnings.String(), "were not dropped") != 1 {
		t.Errorf("%d messages, want 30; it warned: %s", got, &warnings)
	}
}

// A server that is full of what all have acked makes room by itself.
func TestFullOfWhatIsAcked(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.PrivateRedis(t, "maxmemory 8mb", "maxmemory-policy noeviction").URL())
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	large := func() []*message.Message {
		msgs := numbered(0, 20)
		for _, m := range msgs {
			m.Payload = make([]byte, 5000)
		}
		return msgs
	}
	var err error
	for n := 0; err == nil && n < 200; n++ {
		err = publisher.Publish(topic, large()...)
	}
	var state interface{ Temporary() bool }
	if !redis.IsOOMError(err) || !errors.As(err, &state) || !state.Temporary() {
		t.Fatalf("the server is full: %v", err)
	}
	if err := client.XGroupCreate(t.Context(), topic, "a", "0").Err(); err == nil {
		t.Fatal("the server is not full")
	}
	for _, setting := range []string{"1gb", "8mb"} { // there was a group before
		if err := client.ConfigSet(t.Context(), "maxmemory", setting).Err(); err != nil {
			t.Fatal(err)
		}
		if setting == "1gb" {
			if err := client.XGroupCreate(t.Context(), topic, "a", "$").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	testkit.Eventually(t, time.Minute, func() error { return publisher.Publish(topic, large()...) })
}
