package redisbroker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

const topic = "orders"

func newClient(tb testing.TB, redisURL string) *redis.Client {
	tb.Helper()
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		tb.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1
	client := redis.NewClient(options)
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return client
}

func newPublisher(tb testing.TB, client redis.UniversalClient, cfg redisbroker.PublisherConfig) *redisbroker.Publisher {
	tb.Helper()
	publisher, err := redisbroker.NewPublisher(client, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return publisher
}

func numbered(from, to int) []*message.Message {
	var msgs []*message.Message
	for i := from; i < to; i++ {
		msgs = append(msgs, message.NewMessage(fmt.Sprint(i), message.Payload("payload")))
	}
	return msgs
}

// added returns the UUIDs of a stream's messages.
func added(t *testing.T, client *redis.Client) []string {
	t.Helper()
	entries, err := client.XRange(t.Context(), topic, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		m, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(e.Values)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.UUID)
	}
	return ids
}

func uuids(msgs []*message.Message) []string {
	var ids []string
	for _, m := range msgs {
		ids = append(ids, m.UUID)
	}
	return ids
}

func TestOrderOverTransactions(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]redisbroker.PublisherConfig{
		"by default":  {},
		"by messages": {TransactionMessages: 7},
		"one by one":  {TransactionMessages: 1},
		"by bytes":    {TransactionBytes: 20},
		"too large":   {TransactionBytes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, testserver.RedisURL(t))
			counter := new(transactionCounter)
			client.AddHook(counter)
			publisher := newPublisher(t, client, cfg)
			msgs := numbered(0, 2500)
			want := map[string]int{"by default": 3, "by messages": 358, "one by one": 2500, "by bytes": 1250, "too large": 2500}[name]
			for range 2 { // also in memory that was used before
				if err := publisher.Publish(topic, msgs...); err != nil {
					t.Fatal(err)
				}
				if got := added(t, client); !slices.Equal(got, uuids(msgs)) {
					t.Fatalf("%d messages in the stream, or in another order", len(got))
				}
				if counter.n != want {
					t.Errorf("%d transactions, want %d", counter.n, want)
				}
				counter.n = 0
				client.Del(t.Context(), topic)
			}
		})
	}
}

// transactionCounter counts what one goroutine sends.
type transactionCounter struct{ n int }

func (*transactionCounter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*transactionCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c *transactionCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "multi" { // not the connection's greeting
			c.n++
		}
		return next(ctx, cmds)
	}
}

func TestConcurrentCallsStayTogether(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	failed := make(chan error, 4)
	for i := range cap(failed) {
		go func() { failed <- publisher.Publish(topic, numbered(1000*i, 1000*i+1000)...) }()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	for ids := added(t, client); len(ids) > 0; ids = ids[1000:] {
		var first int
		if _, err := fmt.Sscan(ids[0], &first); err != nil || len(ids) < 1000 {
			t.Fatal(err, len(ids))
		}
		if !slices.Equal(ids[:1000], uuids(numbered(first, first+1000))) {
			t.Errorf("the transaction that begins with %d is torn apart", first)
		}
	}
}

// failing has the topic's key made a string before the transaction of that number.
type failing struct {
	transactionCounter
	client *redis.Client
	before int
}

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return f.transactionCounter.ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error {
		if f.n == f.before {
			if err := f.client.Set(ctx, topic, "not a stream", 0).Err(); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	})
}

func TestWrongTypeInTheMiddle(t *testing.T) {
	t.Parallel()
	redisURL := testserver.RedisURL(t)
	client, other := newClient(t, redisURL), newClient(t, redisURL)
	hook := &failing{client: other, before: 3}
	client.AddHook(hook)
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{TransactionMessages: 10})
	err := publisher.Publish(topic, numbered(0, 100)...)
	if err == nil || !redis.HasErrorPrefix(err, "WRONGTYPE") || !strings.Contains(err.Error(), `stream "orders" has taken 20 of 100 messages`) {
		t.Errorf("error: %v", err)
	}
	if hook.n != 3 {
		t.Errorf("%d transactions were sent, want none after the third, which failed", hook.n)
	}
	if err := publisher.Publish("other", numbered(0, 1)...); err != nil {
		t.Errorf("another topic: %v", err)
	}
}

func TestFullServerTakesNothing(t *testing.T) {
	t.Parallel()
	server := testserver.PrivateRedis(t)
	client := newClient(t, server.URL())
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	err := publisher.Publish(topic, numbered(0, 10)...)
	if !redis.IsOOMError(err) || !strings.Contains(err.Error(), "0 of 10") {
		t.Errorf("error: %v", err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish(topic, numbered(0, 10)...); err != nil {
		t.Error(err)
	}
	if got := added(t, client); !slices.Equal(got, uuids(numbered(0, 10))) {
		t.Errorf("added: %v", got)
	}
}

func TestServerGoesAndComes(t *testing.T) {
	t.Parallel()
	server := testserver.PrivateRedis(t)
	client := newClient(t, server.URL())
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	for name, stop := range map[string]func() error{"stop": server.Stop, "kill": server.Kill} {
		if err := errors.Join(publisher.Publish(topic, numbered(0, 10)...), stop()); err != nil {
			t.Fatal(err)
		}
		var broken *net.OpError
		if err := publisher.Publish(topic, numbered(0, 10)...); !errors.As(err, &broken) || !strings.Contains(err.Error(), "0 of 10") {
			t.Errorf("after %s: %v", name, err)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := publisher.Publish(topic, numbered(10, 20)...); err != nil {
			t.Errorf("after %s and start: %v", name, err)
		}
		if got := added(t, client); !slices.Equal(got, uuids(numbered(0, 20))) {
			t.Errorf("after %s and start: %v", name, got)
		}
		client.Del(t.Context(), topic)
	}
}

func TestDeadlineOnServerThatHangs(t *testing.T) {
	t.Parallel()
	proxy := testkit.StartProxy(t, testserver.PrivateRedis(t).URL())
	client := newClient(t, proxy.URL())
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{TransactionMessages: 5})
	if err := publisher.Publish(topic, numbered(0, 10)...); err != nil {
		t.Fatal(err)
	}
	thaw := proxy.Freeze()
	defer thaw()
	for range 2 { // over the connection that there is, and over a new one
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		msgs := numbered(10, 20)
		msgs[0].SetContext(ctx)
		started := time.Now()
		var timeout net.Error
		err := publisher.Publish(topic, msgs...)
		if !errors.As(err, &timeout) || !timeout.Timeout() || !strings.Contains(err.Error(), "0 of 10") {
			t.Errorf("error: %v", err)
		}
		if took := time.Since(started); took > 2*time.Second {
			t.Errorf("the deadline of 200 ms was heeded after %v", took)
		}
	}
	thaw()
	if err := publisher.Publish(topic, numbered(10, 20)...); err != nil {
		t.Error(err)
	}
}

func TestContextThatIsDone(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	msgs := numbered(0, 2)
	msgs[0].SetContext(ctx)
	if err := newPublisher(t, client, redisbroker.PublisherConfig{}).Publish(topic, msgs...); !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	if got := added(t, client); len(got) != 0 {
		t.Errorf("added: %v", got)
	}
}

func TestBadMessageSendsNothing(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	reserved := message.NewMessage("reserved", nil)
	reserved.Metadata.Set(redisstream.UUIDHeaderKey, "mine")
	crowded := message.NewMessage("crowded", nil)
	for i := range 1 << 16 {
		crowded.Metadata.Set(fmt.Sprint(i), "")
	}
	for want, bad := range map[string]*message.Message{"nil": nil, "reserved": reserved, "crowded": crowded} {
		for _, marshaller := range []redisbroker.Marshaller{nil, redisstream.DefaultMarshallerUnmarshaller{}} {
			if bad == crowded && marshaller != nil {
				continue // it writes a map that says that it is longer
			}
			publisher := newPublisher(t, client, redisbroker.PublisherConfig{Marshaller: marshaller})
			err := publisher.Publish(topic, append(numbered(0, 3), bad)...)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
	}
	if got := added(t, client); len(got) != 0 {
		t.Errorf("added: %v", got)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	if err := errors.Join(publisher.Publish(topic), publisher.Close(), publisher.Close()); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish(topic, numbered(0, 1)...); !errors.Is(err, redisbroker.ErrClosed) {
		t.Errorf("Publish after Close: %v", err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client was closed too: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer client.Close()
	for field, cfg := range map[string]redisbroker.PublisherConfig{
		"TransactionMessages": {TransactionMessages: 100_001},
		"TransactionBytes":    {TransactionBytes: -1},
		"MaxLen":              {MaxLen: -1, TrimUnread: true},
	} {
		if _, err := redisbroker.NewPublisher(client, cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := redisbroker.NewPublisher(nil, redisbroker.PublisherConfig{}); err == nil {
		t.Error("a nil client was taken")
	}
	careless, cluster := redis.NewClient(&redis.Options{}), redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer careless.Close()
	defer cluster.Close()
	for _, c := range []redis.UniversalClient{careless, cluster} {
		if _, err := redisbroker.NewPublisher(c, redisbroker.PublisherConfig{}); err == nil || !strings.Contains(err.Error(), "ContextTimeoutEnabled") {
			t.Errorf("%T that ignores deadlines: %v", c, err)
		}
	}
}
