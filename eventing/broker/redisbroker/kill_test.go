package redisbroker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

const hoarded = 1000

// hoard takes messages, says which, and acks none.
func hoard(redisURL string) error {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true
	s, err := redisbroker.NewSubscriber(redis.NewClient(options), redisbroker.SubscriberConfig{
		Group: group, Window: hoarded, Batch: hoarded, ClaimAfter: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	received, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		return err
	}
	var inHand []*message.Message
	for m := range received {
		inHand = append(inHand, m)
		fmt.Println(m.UUID)
	}
	return fmt.Errorf("the subscription ended with %d messages", len(inHand))
}

// A process is killed with 1,000 messages in hand. Another takes each of them once, soon
// after ClaimAfter, and gets what is published meanwhile without delay.
func TestKilledWithMessagesInHand(t *testing.T) {
	t.Parallel()
	redisURL := testserver.RedisURL(t)
	client := newClient(t, redisURL)
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	if err := publisher.Publish(topic, numbered(0, hoarded)...); err != nil {
		t.Fatal(err)
	}
	program := asProgram(t, hoardEnv, redisURL)
	cmd := exec.Command(program[1])
	cmd.Env = append(os.Environ(), program[0])
	all := make(chan struct{})
	var said []string
	process := testkit.StartProcess(t, cmd, filepath.Join(t.TempDir(), "log"), func(line string) {
		if said = append(said, line); len(said) == hoarded {
			close(all)
		}
	})
	process.Await(all, time.Minute)
	wantSame(t, "the process has all in hand", said, uuids(numbered(0, hoarded)))

	const claimAfter = 5 * time.Second
	received := subscribeTo(t, newSubscriber(t, client, redisbroker.SubscriberConfig{ClaimAfter: claimAfter}))
	select {
	case m := <-received:
		t.Fatalf("message %s is taken from who lives", m.UUID)
	case <-time.After(claimAfter + time.Second):
	}
	process.Kill(0)
	killed := time.Now()
	var live, taken []string
	for i := 0; len(taken) < hoarded; i++ {
		if err := publisher.Publish(topic, message.NewMessage(fmt.Sprint("live ", i), nil)); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); len(live) <= i; {
			if id := receive(t, received).UUID; id == fmt.Sprint("live ", i) {
				live = append(live, id)
			} else {
				taken = append(taken, id)
			}
			if took := time.Since(began); took > 4*time.Second && len(taken) == 0 {
				t.Fatalf("a message waited for %v while nothing else was to do", took)
			}
		}
		<-time.After(10 * time.Millisecond)
	}
	if took := time.Since(killed); took > 3*claimAfter {
		t.Errorf("what the dead had came after %v", took)
	}
	wantSame(t, "each message comes once", taken, uuids(numbered(0, hoarded)))
	allAcked(t, client)
}
