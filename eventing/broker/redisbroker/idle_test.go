//go:build unix

package redisbroker_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testserver"
)

// cpuTime returns what this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Neither a handler that always fails, nor a server that is away, nor a topic that is no
// stream keeps the machine busy. No other test runs meanwhile.
func TestUsesLittleWhenNothingWorks(t *testing.T) {
	server := testserver.PrivateRedis(t)
	client := newClient(t, server.URL())
	publisher := newPublisher(t, client, redisbroker.PublisherConfig{})
	s := newSubscriber(t, client, redisbroker.SubscriberConfig{})
	if err := client.Set(t.Context(), "no stream", "", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Subscribe(t.Context(), "no stream"); err != nil {
		t.Fatal(err)
	}
	received := subscribeTo(t, s)
	if err := publisher.Publish(topic, numbered(0, 500)...); err != nil {
		t.Fatal(err)
	}
	came := 0
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		for m := range received {
			came++
			m.Nack()
		}
	}()
	const most = time.Second // a third of a core
	before := cpuTime(t)
	noBusyLoop(t, client)
	if used := cpuTime(t) - before; used > most {
		t.Errorf("a handler that fails used %v of CPU", used)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	before = cpuTime(t)
	<-time.After(3 * time.Second)
	if used := cpuTime(t) - before; used > most {
		t.Errorf("a server that is away used %v of CPU", used)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-handled
	// 64 messages, after 0, 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 s
	if came < 64 || came > 8*64 {
		t.Errorf("messages came %d times", came)
	}
}
