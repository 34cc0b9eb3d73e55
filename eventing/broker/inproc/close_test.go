package inproc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

func TestCloseReportsWhatIsNotAcked(t *testing.T) {
	scenario(t, inproc.Config{RedeliveryDelay: time.Hour}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		first, _ := subscribe(t, b, 3)
		second, _ := subscribe(t, b, 1)
		o.publish("acked by both", "acked by one", "nacked", "queued")
		m := receive(t, first, "acked by both")
		receive(t, first, "acked by one").Ack()
		receive(t, first, "nacked").Nack()
		receive(t, second, "acked by both").Ack()
		synctest.Wait()
		m.Ack()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]error{
			"acked by both": nil, // also if the broker had not noticed yet
			"acked by one":  inproc.ErrClosed, "nacked": inproc.ErrClosed, "queued": inproc.ErrClosed,
		} {
			if got, ok := o.reported[id]; !ok || !errors.Is(got, want) { // at the return of Close, no later
				t.Errorf("%s: reported %v with %v, want %v", id, ok, got, want)
			}
		}
		for m, open := <-second; open; m, open = <-second {
			t.Errorf("%s can still be received", m.UUID)
		}
		wantClosed(t, first)
	})
}

func TestCloseReportsWhatIsRetained(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		messages, cancel := subscribe(t, b, 2)
		o.publish("left, acked late", "left", "never delivered")
		late := receive(t, messages, "left, acked late")
		cancel()
		o.publish("retained")
		synctest.Wait()
		late.Ack()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err, ok := o.reported["left, acked late"]; !ok || err != nil {
			t.Errorf("an ack before Close was lost: reported %v with %v", ok, err)
		}
		for _, id := range []string{"left", "never delivered", "retained"} {
			if !errors.Is(o.reported[id], inproc.ErrClosed) {
				t.Errorf("%s: reported with %v, want ErrClosed", id, o.reported[id])
			}
		}
	})
}

// Close finds acks that no watcher has seen, of live subscriptions and of ended
// ones. It is called before most watchers have run at all.
func TestCloseLosesNoAck(t *testing.T) {
	for name, end := range map[string]bool{"subscribed": false, "ended": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
				o := newOutbox(t, b)
				ids := names(0, 1000)
				o.publish(ids...)
				messages, cancel := subscribe(t, b, len(ids))
				var received []*message.Message
				for range ids {
					received = append(received, <-messages)
				}
				if end {
					cancel()
					o.publish() // on return the subscription has ended
				}
				for _, m := range received {
					m.Ack()
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					if err, ok := o.reported[id]; !ok || err != nil {
						t.Fatalf("%s: reported %v with %v, want nil", id, ok, err)
					}
				}
			})
		})
	}
}

func TestClosedBrokerRefuses(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		newOutbox(t, b).publish("makes the topic")
		for range 2 {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		done := func(m *message.Message, err error) { t.Errorf("done(%v, %v) for a refused message", m, err) }
		for _, name := range []string{topic, "an unknown topic"} {
			if err := b.PublishWithCompletion(name, done, message.NewMessage("a", nil)); !errors.Is(err, inproc.ErrClosed) {
				t.Errorf("publish to %s: %v, want ErrClosed", name, err)
			}
			if _, err := b.Subscribe(t.Context(), name); !errors.Is(err, inproc.ErrClosed) {
				t.Errorf("subscribe to %s: %v, want ErrClosed", name, err)
			}
		}
	})
}

// Publishers, consumers that come, fail and go, and a close, all at once: every
// message that was taken is reported exactly once, and as done only if acked.
// What was abandoned is published again, as a dispatcher would, so that all of it gets done.
func TestEveryMessageIsReportedOnce(t *testing.T) {
	t.Parallel()
	for _, window := range []int{1, 8} {
		b := inproc.New(inproc.Config{Window: window, RedeliveryDelay: 50 * time.Microsecond, RedeliveryMax: time.Millisecond})
		o := newOutbox(t, b)
		var acked sync.Map
		var done atomic.Int64
		enough := make(chan struct{})
		inFlight := make(chan struct{}, 50)
		o.then = func(id string, err error) {
			if errors.Is(err, inproc.ErrAbandoned) && o.tryPublish(id) == nil {
				return
			}
			<-inFlight
			if err != nil {
				return
			}
			if _, ok := acked.Load(id); !ok {
				t.Errorf("window %d: %s is done, but nobody acked it", window, id)
			}
			if done.Add(1) == 4000 {
				close(enough)
			}
		}
		var running sync.WaitGroup
		for range 3 {
			running.Go(func() {
				for comeAndGo(b, &acked) {
				}
			})
		}
		for p := range 2 {
			running.Go(func() {
				for _, id := range names(p*10000, p*10000+2500) {
					inFlight <- struct{}{}
					if o.tryPublish(id) != nil { // closed
						<-inFlight
						return
					}
				}
			})
		}
		select {
		case <-enough:
		case <-time.After(30 * time.Second):
			t.Errorf("window %d: only %d messages are done", window, done.Load())
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		running.Wait()
		if len(o.open) > 0 || len(o.order) != o.taken {
			t.Fatalf("window %d: reported %d times, %d messages never; want %d and 0", window, len(o.order), len(o.open), o.taken)
		}
	}
}

// comeAndGo handles some messages of a subscription. It returns false when
// the broker is closed.
func comeAndGo(b *inproc.Broker, acked *sync.Map) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	messages, err := b.Subscribe(ctx, topic)
	if err != nil {
		return false
	}
	stay := 1 + rand.IntN(200)
	for m := range messages {
		if stay--; stay == 0 {
			cancel()
		}
		if rand.IntN(10) == 0 {
			m.Nack()
			continue
		}
		acked.Store(m.UUID, true)
		m.Ack()
	}
	return true
}
