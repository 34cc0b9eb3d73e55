package redisbroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// holding counts transactions, and holds them up while it is held.
type holding struct {
	transactionCounter
	sync.RWMutex
	transactions, messages atomic.Int64
}

func (h *holding) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "multi" {
			h.transactions.Add(1)
			h.messages.Add(int64(len(cmds) - 2))
			h.RLock()
			defer h.RUnlock()
		}
		return next(ctx, cmds)
	}
}

// gathered publishes a message to each of the topics at once, the first two while the
// others wait, and returns the errors.
func gathered(t *testing.T, publisher *redisbroker.Publisher, h *holding, topics []string, msgs []*message.Message) []error {
	t.Helper()
	errs := make([]error, len(topics))
	var calls sync.WaitGroup
	h.Lock()
	for i, topic := range topics {
		calls.Go(func() { errs[i] = publisher.Publish(topic, msgs[i]) })
		if i == 1 {
			testkit.Eventually(t, time.Minute, func() error {
				if n := h.transactions.Load(); n != 2 {
					return fmt.Errorf("%d transactions are under way, want 2", n)
				}
				return nil
			})
		}
	}
	testkit.Eventually(t, time.Minute, func() error {
		if n := redisbroker.Waiting(publisher); n != len(topics)-2 {
			return fmt.Errorf("%d calls wait, want %d", n, len(topics)-2)
		}
		return nil
	})
	h.Unlock()
	calls.Wait()
	return errs
}

// Calls of one message share transactions, and each goroutine's keep their order.
func TestCallsAreSentTogether(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	h := &holding{}
	client.AddHook(h)
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{TransactionMessages: 10})
	topics := slices.Repeat([]string{topic}, 32)
	if err := errors.Join(gathered(t, publisher, h, topics, numbered(0, 32))...); err != nil {
		t.Fatal(err)
	}
	if n := h.transactions.Load(); n != 5 { // two of one, and three of ten
		t.Errorf("%d transactions for 32 messages, want 5", n)
	}
	var calls sync.WaitGroup
	for from := 1000; from < 65_000; from += 1000 {
		calls.Go(func() {
			for _, m := range numbered(from, from+50) {
				if err := publisher.Publish(topic, m); err != nil {
					t.Error(err)
				}
				clear(m.Payload) // it is the caller's again
			}
		})
	}
	calls.Wait()
	got := map[int][]string{}
	for _, id := range added(t, client)[32:] {
		var n int
		if _, err := fmt.Sscan(id, &n); err != nil {
			t.Fatal(err)
		}
		got[n/1000] = append(got[n/1000], id)
	}
	for i := 1; i < 65; i++ {
		if want := uuids(numbered(1000*i, 1000*i+50)); !slices.Equal(got[i], want) {
			t.Errorf("of one goroutine there are, in order, %v", got[i])
		}
	}
	if n := h.messages.Load(); n != 32+64*50 {
		t.Errorf("%d messages were sent, want %d", n, 32+64*50)
	}
	if n := redisbroker.Senders(publisher); n != 0 {
		t.Errorf("%d senders are left", n)
	}
}

// A message that cannot be added fails only its own call.
func TestCallsThatFailTogether(t *testing.T) {
	t.Parallel()
	server := testserver.PrivateRedis(t)
	admin := newClient(t, server.URL())
	if err := errors.Join(
		admin.Set(t.Context(), "no.stream", "text", 0).Err(),
		admin.Do(t.Context(), "acl", "setuser", "publisher", "on", ">secret", "+@all", "~orders", "~no.stream").Err(),
	); err != nil {
		t.Fatal(err)
	}
	options := *admin.Options()
	options.Username, options.Password = "publisher", "secret"
	client := redis.NewClient(&options)
	defer client.Close()
	h := &holding{}
	client.AddHook(h)
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{MaxLen: -1})
	topics := []string{topic, topic, topic, "no.stream", topic, "forbidden", topic, "forbidden", topic}
	for i, err := range gathered(t, publisher, h, topics, numbered(0, len(topics))) {
		switch topics[i] {
		case "no.stream":
			if !redis.HasErrorPrefix(err, "WRONGTYPE") {
				t.Errorf("publishing to what is no stream: %v", err)
			}
		case "forbidden":
			if !redis.HasErrorPrefix(err, "NOPERM") {
				t.Errorf("publishing to a forbidden stream: %v", err)
			}
		default:
			if err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}
	}
	got := added(t, admin)
	slices.Sort(got)
	if want := []string{"0", "1", "2", "4", "6", "8"}; !slices.Equal(got, want) {
		t.Errorf("the stream has %v, want %v", got, want)
	}
}

// A call whose context ends does not wait for others, nor they for it.
func TestCallIsGivenUp(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	h := &holding{}
	client.AddHook(h)
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	topics, msgs := slices.Repeat([]string{topic}, 5), numbered(0, 5)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	left := make(chan error, 1)
	h.Lock()
	var calls sync.WaitGroup
	for i := range 2 {
		calls.Go(func() {
			if err := publisher.Publish(topics[i], msgs[i]); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, time.Minute, func() error {
		if redisbroker.Senders(publisher) < 2 {
			return errors.New("nothing is being sent")
		}
		return nil
	})
	msgs[2].SetContext(ctx)
	go func() { left <- publisher.Publish(topics[2], msgs[2]) }()
	if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call whose time is over: %v", err)
	}
	h.Unlock()
	calls.Wait()
	if err := publisher.Publish(topics[3], msgs[3]); err != nil {
		t.Fatal(err)
	}
	got := added(t, client)
	slices.Sort(got)
	if want := []string{"0", "1", "3"}; !slices.Equal(got, want) {
		t.Errorf("the stream has %v, want %v", got, want)
	}
}

// The bounds of a transaction are those of calls that share one, too: with their metadata.
func TestCallsTogetherAreNotTooLarge(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.RedisURL(t))
	h := &holding{}
	client.AddHook(h)
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{TransactionBytes: 1000, MaxLen: -1})
	msgs := numbered(0, 12)
	for _, m := range msgs {
		m.Metadata.Set("key", strings.Repeat("x", 450))
	}
	if err := errors.Join(gathered(t, publisher, h, slices.Repeat([]string{topic}, len(msgs)), msgs)...); err != nil {
		t.Fatal(err)
	}
	if n := h.transactions.Load(); n != 7 { // two of one, and five of two
		t.Errorf("%d transactions for 12 messages, want 7", n)
	}
}
