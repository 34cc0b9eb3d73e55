package inproc_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

func TestNextSubscriptionGetsWhatTheLastLeft(t *testing.T) {
	scenario(t, inproc.Config{RedeliveryDelay: time.Hour}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		first, cancel := subscribe(t, b, 4)
		o.publish("acked", "nacked", "out of turn", "unacked", "unread", "queued")
		consume(t, first, "acked")
		receive(t, first, "nacked").Nack()
		outOfTurn := receive(t, first, "out of turn")
		receive(t, first, "unacked")
		outOfTurn.Ack()
		o.wantReported(nil, "acked", "out of turn")
		cancel()
		wantClosed(t, first) // without the one that was not read
		o.publish("later")
		o.wantReported(nil)

		second, _ := subscribe(t, b, 1)
		consume(t, second, "nacked", "unacked", "unread", "queued", "later")
		o.wantReported(nil, "nacked", "unacked", "unread", "queued", "later")
	})
}

// Whoever cancels a subscription and goes on need not wait for the broker to notice.
func TestCancelledSubscriptionIsGoneAtOnce(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		first, cancelFirst := subscribe(t, b, 1)
		o.publish("a")
		receive(t, first, "a")
		cancelFirst()
		second, cancelSecond := subscribe(t, b, 1)
		if len(second) != 1 {
			t.Error("the message was not handed over by the time that Subscribe returned")
		}
		consume(t, second, "a")
		o.wantReported(nil, "a")

		third, _ := subscribe(t, b, 1)
		cancelSecond()
		o.publish("b")
		consume(t, third, "b")
		o.wantReported(nil, "b") // and not abandoned: the second was not given it
	})
}

func TestAckAfterTheEndCountsUntilSomebodyElseHasTheMessage(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		first, cancel := subscribe(t, b, 3)
		o.publish("a", "b", "c", "d")
		early, unseen, late := receive(t, first, "a"), receive(t, first, "b"), receive(t, first, "c")
		cancel()
		synctest.Wait()
		early.Ack()
		o.wantReported(nil, "a")

		unseen.Ack() // the broker may not have noticed before it hands over
		second, _ := subscribe(t, b, 1)
		late.Ack()
		o.wantReported(nil, "b")
		consume(t, second, "c", "d")
		o.wantReported(nil, "c", "d")
	})
}

func TestAckBeforeTheEndIsNotLost(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		for range 50 { // the watcher and the end race
			first, cancel := subscribe(t, b, 1)
			o.publish("a")
			receive(t, first, "a").Ack()
			cancel()
			second, cancel := subscribe(t, b, 1)
			wantNothing(t, second)
			o.wantReported(nil, "a")
			cancel()
		}
	})
}

func TestAckBeforeTheEndIsNotAbandoned(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		stays, _ := subscribe(t, b, 1)
		for range 50 {
			leaves, cancel := subscribe(t, b, 1)
			o.publish("a")
			consume(t, stays, "a")
			receive(t, leaves, "a").Ack()
			cancel()
			o.publish()
			o.wantReported(nil, "a")
		}
	})
}

func TestMessageThatAnotherSubscriptionHasIsAbandoned(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		stays, _ := subscribe(t, b, 3)
		leaves, cancel := subscribe(t, b, 1)
		o.publish("both", "one", "none")
		consume(t, stays, "both", "one")
		consume(t, leaves, "both")
		o.wantReported(nil, "both")

		cancel()
		o.wantReported(inproc.ErrAbandoned, "one")
		consume(t, stays, "none") // abandoned, but reported only now that the other is through
		o.wantReported(inproc.ErrAbandoned, "none")
		o.publish("after")
		consume(t, stays, "after")
		o.wantReported(nil, "after")
	})
}

func TestMessageThatNobodyElseWasGivenGoesToTheOldest(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		leaves, cancel := subscribe(t, b, 1)
		o.publish("a", "b")
		oldest, _ := subscribe(t, b, 1)
		youngest, _ := subscribe(t, b, 1)
		o.publish("c", "d")
		receive(t, leaves, "a")
		inHand := receive(t, oldest, "c")
		cancel()
		synctest.Wait()
		inHand.Ack()
		consume(t, oldest, "a", "b", "d") // before what it had not been delivered
		consume(t, youngest, "c", "d")
		synctest.Wait()
		for id, want := range map[string]error{"a": nil, "b": nil, "c": inproc.ErrAbandoned, "d": inproc.ErrAbandoned} {
			if got, ok := o.reported[id]; !ok || !errors.Is(got, want) {
				t.Errorf("%s: reported %v with %v, want %v", id, ok, got, want)
			}
		}
	})
}

func TestHeirGetsItsShareAtOnce(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		_, cancel := subscribe(t, b, 1)
		o.publish("a", "b")
		idle, _ := subscribe(t, b, 1)
		cancel()
		consume(t, idle, "a", "b")
		o.wantReported(nil, "a", "b")
	})
}

// Everybody leaves: nobody acked, so nothing is reported and nothing lost.
func TestMessageThatNobodyAckedIsNeverDone(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			if _, err := b.Subscribe(ctx, topic); err != nil {
				t.Fatal(err)
			}
		}
		o.publish("a", "b")
		cancel()
		o.wantReported(nil)

		next, _ := subscribe(t, b, 1)
		consume(t, next, "a", "b")
		o.wantReported(inproc.ErrAbandoned, "a", "b") // one ack for three is not what was asked for
	})
}

// What is published without completion is not dropped either.
func TestPlainPublishIsHandedBack(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		first, cancel := subscribe(t, b, 1)
		o := newOutbox(t, b)
		o.publish("a")
		for m := range o.open {
			if err := b.Publish(topic, m.Copy()); err != nil {
				t.Fatal(err)
			}
		}
		receive(t, first, "a")
		cancel()
		second, _ := subscribe(t, b, 1)
		consume(t, second, "a", "a")
		o.wantReported(nil, "a")
	})
}
