package inproc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

func TestWindowBoundsWhatIsUnacked(t *testing.T) {
	scenario(t, inproc.Config{Window: 3}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		o.publish("a", "b", "c", "d", "e")
		messages, err := b.Subscribe(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		receive(t, messages, "a")
		second := receive(t, messages, "b")
		receive(t, messages, "c")
		wantNothing(t, messages)
		second.Ack() // an ack out of turn makes room too
		receive(t, messages, "d")
		wantNothing(t, messages)
		o.wantReported(nil, "b")
	})
}

func TestWindowHasBounds(t *testing.T) {
	scenario(t, inproc.Config{Window: -1}, func(t *testing.T, b *inproc.Broker) {
		for _, window := range []int{-1, 0, 1<<16 + 1} {
			if _, err := b.SubscribeWindow(t.Context(), topic, window); err == nil {
				t.Errorf("a window of %d was accepted", window)
			}
		}
		if _, err := b.Subscribe(t.Context(), topic); err == nil {
			t.Error("a configured window of -1 was accepted")
		}
	})
}

func TestNackWithWindowOneKeepsOrderAndBacksOff(t *testing.T) {
	cfg := inproc.Config{RedeliveryDelay: 100 * time.Millisecond, RedeliveryMax: 500 * time.Millisecond}
	scenario(t, cfg, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		messages, _ := subscribe(t, b, 1)
		o.publish("a", "b")
		for _, message := range []string{"a", "b"} { // each starts anew
			m := receive(t, messages, message)
			for _, delay := range []time.Duration{100, 200, 400, 500, 500} {
				start := time.Now()
				m.Metadata.Set("id", "changed by a consumer")
				m.Nack()
				wantNothing(t, messages)
				again := <-messages
				if waited := time.Since(start); waited != delay*time.Millisecond {
					t.Fatalf("%s delivered again after %v, want %v ms", message, waited, int(delay))
				}
				if again == m || again.UUID != message || again.Metadata.Get("id") != message {
					t.Fatalf("delivered %s %v, want a fresh copy of %s", again.UUID, again.Metadata, message)
				}
				m = again
			}
			m.Ack()
		}
		o.wantReported(nil, "a", "b")
	})
}

func TestNackWithWindowLetsOthersPass(t *testing.T) {
	scenario(t, inproc.Config{RedeliveryDelay: time.Minute, RedeliveryMax: time.Second}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		messages, _ := subscribe(t, b, 2)
		o.publish("a", "b", "c", "d")
		receive(t, messages, "a").Nack()
		consume(t, messages, "b", "c", "d")
		wantNothing(t, messages)
		o.wantReported(nil, "b", "c", "d")

		start := time.Now()
		(<-messages).Ack()
		if waited := time.Since(start); waited != time.Minute { // RedeliveryMax is raised to RedeliveryDelay
			t.Fatalf("delivered again after %v, want a minute", waited)
		}
		o.wantReported(nil, "a")
	})
}

func TestDefaultDelays(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		messages, _ := subscribe(t, b, 1)
		newOutbox(t, b).publish("a")
		var longest time.Duration
		for i := range 12 {
			(<-messages).Nack()
			start := time.Now()
			again := <-messages
			longest = time.Since(start)
			if i == 0 && longest != 100*time.Millisecond {
				t.Fatalf("first delay %v, want 100ms", longest)
			}
			again.Nack()
		}
		if longest != 30*time.Second {
			t.Fatalf("longest delay %v, want 30s", longest)
		}
	})
}

func TestMessageContext(t *testing.T) {
	type key struct{}
	scenario(t, inproc.Config{RedeliveryDelay: time.Second}, func(t *testing.T, b *inproc.Broker) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		messages, err := b.SubscribeWindow(ctx, topic, 3)
		if err != nil {
			t.Fatal(err)
		}
		newOutbox(t, b).publish("acked", "nacked", "neither")
		acked, nacked, neither := receive(t, messages, "acked"), receive(t, messages, "nacked"), receive(t, messages, "neither")
		for _, m := range []*message.Message{acked, nacked, neither} {
			if m.Context().Value(key{}) != "value" || m.Context().Err() != nil {
				t.Fatalf("%s: the context is not a live one of the subscription", m.UUID)
			}
		}
		acked.Ack()
		nacked.Nack()
		synctest.Wait()
		if acked.Context().Err() == nil || nacked.Context().Err() == nil || neither.Context().Err() != nil {
			t.Fatal("contexts are to be cancelled by ack and nack, and only by those")
		}
		cancel()
		if neither.Context().Err() == nil {
			t.Fatal("the context outlives the subscription")
		}
	})
}
