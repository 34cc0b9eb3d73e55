package inproc_test

import (
	"bytes"
	"context"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

func subscribeAs(t *testing.T, b *inproc.Broker, consumer string, window int) (<-chan *message.Message, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	messages, err := b.SubscribeConsumer(ctx, topic, consumer, window)
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	return messages, cancel
}

func TestConsumersShareATopic(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		billing, _ := subscribeAs(t, b, "billing", 2)
		mail, _ := subscribeAs(t, b, "mail", 1)
		nameless, _ := subscribe(t, b, 1)
		o.publish("a", "b")
		consume(t, billing, "a", "b")
		consume(t, mail, "a", "b")
		consume(t, nameless, "a")
		o.wantReported(nil, "a")
		consume(t, nameless, "b")
		o.wantReported(nil, "b")
	})
}

func TestSubscriptionsOfAConsumerShareItsMessages(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		wide, _ := subscribeAs(t, b, "billing", 4)
		narrow, _ := subscribeAs(t, b, "billing", 1)
		o.publish("a", "b", "c", "d", "e", "f")
		b1 := receive(t, narrow, "b") // to each in turn
		consume(t, wide, "a", "c", "d", "e", "f")
		wantNothing(t, wide)
		o.wantReported(nil, "a", "c", "d", "e", "f")
		b1.Ack()
		o.wantReported(nil, "b")
		wantNothing(t, narrow)
	})
}

// What a consumer leaves waits for it, whoever else is there.
func TestConsumerComesBack(t *testing.T) {
	scenario(t, inproc.Config{RedeliveryDelay: time.Hour}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		mail, _ := subscribeAs(t, b, "mail", 10)
		billing, cancel := subscribeAs(t, b, "billing", 4)
		o.publish("acked", "nacked", "out of turn", "unacked", "unread", "queued")
		consume(t, mail, "acked", "nacked", "out of turn", "unacked", "unread", "queued")
		consume(t, billing, "acked")
		receive(t, billing, "nacked").Nack()
		outOfTurn := receive(t, billing, "out of turn")
		receive(t, billing, "unacked")
		outOfTurn.Ack()
		o.wantReported(nil, "acked", "out of turn")
		cancel()
		wantClosed(t, billing)
		newcomer, _ := subscribeAs(t, b, "newcomer", 1)
		o.publish("while away")
		consume(t, mail, "while away")
		consume(t, newcomer, "while away")
		o.wantReported(nil)

		billing, _ = subscribeAs(t, b, "billing", 1)
		left := []string{"nacked", "unacked", "unread", "queued", "while away"}
		consume(t, billing, left...)
		o.wantReported(nil, left...)
	})
}

func TestLeavingSubscriptionHandsOverToTheOthers(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		leaves, cancel := subscribeAs(t, b, "billing", 3)
		stays, _ := subscribeAs(t, b, "billing", 2)
		o.publish("a", "b", "c", "d", "e", "f")
		receive(t, leaves, "a")
		c, late := receive(t, leaves, "c"), receive(t, leaves, "e")
		consume(t, stays, "b")
		receive(t, stays, "d").Ack()
		inHand := receive(t, stays, "f")
		o.wantReported(nil, "b", "d")
		c.Ack() // the broker may not have noticed before the subscription ends
		cancel()
		next := receive(t, stays, "a")
		o.wantReported(nil, "c")
		late.Ack() // nobody else has it yet
		o.wantReported(nil, "e")
		next.Ack()
		wantNothing(t, stays)
		inHand.Ack()
		o.wantReported(nil, "a", "f")
	})
}

func TestLateAckDoesNotCountOnceSomebodyElseHasTheMessage(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		first, cancel := subscribeAs(t, b, "billing", 1)
		o.publish("a", "b")
		late := receive(t, first, "a")
		cancel()
		second, cancel := subscribeAs(t, b, "billing", 1)
		again := receive(t, second, "a")
		late.Ack()
		o.wantReported(nil)
		wantNothing(t, second) // "b" would overtake it
		cancel()
		again.Ack()
		o.wantReported(nil, "a")
		third, _ := subscribeAs(t, b, "billing", 1)
		consume(t, third, "b")
		o.wantReported(nil, "b")
	})
}

// Nobody waits for acks that would not count: a consumer that comes and goes with
// its messages in hand gathers nothing.
func TestHandedOverDeliveriesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inproc.New(inproc.Config{})
		t.Cleanup(func() { _ = b.Close() })
		ids := names(0, 20)
		newOutbox(t, b).publish(ids...)
		before := inBubble(t)
		for range 100 {
			messages, cancel := subscribeAs(t, b, "billing", len(ids))
			for _, id := range ids {
				receive(t, messages, id)
			}
			cancel()
			synctest.Wait()
		}
		if n := inBubble(t) - before; n > 2*len(ids) {
			t.Errorf("%d goroutines for %d messages", n, len(ids))
		}
	})
}

// inBubble counts the goroutines of the caller's synctest bubble, which traces name.
func inBubble(t *testing.T) int {
	t.Helper()
	trace := make([]byte, 16<<20) // of all goroutines, the other tests' too
	own := regexp.MustCompile(`synctest bubble \d+\]`).Find(trace[:runtime.Stack(trace, false)])
	if own == nil {
		t.Fatal("the trace names no bubble")
	}
	return bytes.Count(trace[:runtime.Stack(trace, true)], own)
}

// A nameless subscription that nobody else was given the messages of, leaves them to the
// topic's other consumers, and those that others have, it abandons.
func TestNamelessLeavesToNamed(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		nameless, cancel := subscribe(t, b, 1)
		o.publish("alone")
		billing, cancelBilling := subscribeAs(t, b, "billing", 1)
		o.publish("both")
		late := receive(t, nameless, "alone")
		inHand := receive(t, billing, "both")
		cancelBilling() // it stays the heir
		cancel()
		synctest.Wait()
		late.Ack() // too late
		o.wantReported(nil)
		billing, _ = subscribeAs(t, b, "billing", 1)
		consume(t, billing, "alone")
		o.wantReported(nil, "alone")
		receive(t, billing, "both").Ack()
		o.wantReported(inproc.ErrAbandoned, "both")
		inHand.Ack()
		o.publish("after")
		consume(t, billing, "after")
		o.wantReported(nil, "after")
	})
}

// The watcher of a delivery, if it has yet to run, finds the ack and the end of its
// subscription together.
func TestAckThatComesTooLateIsNotCountedTwice(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		for range 50 {
			nameless, cancel := subscribe(t, b, 1)
			o.publish("a")
			stays, leave := subscribe(t, b, 1)
			late := <-nameless
			cancel()
			o.publish() // on return the subscription has ended
			late.Ack()
			o.wantReported(nil)
			consume(t, stays, "a")
			o.wantReported(nil, "a")
			leave()
			o.publish()
		}
	})
}

// The first that comes gets what the topic has kept; the second has what is published from then on.
func TestFirstConsumerGetsWhatIsRetained(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		o.publish("a")
		nameless, cancel := subscribe(t, b, 1)
		late := receive(t, nameless, "a")
		cancel()
		o.publish("b")
		o.wantReported(nil)
		billing, cancel := subscribeAs(t, b, "billing", 1)
		receive(t, billing, "a")
		cancel()
		mail, _ := subscribeAs(t, b, "mail", 1)
		o.publish("c")
		consume(t, mail, "c")
		late.Ack() // somebody else has had it since
		o.wantReported(nil)
		wantClosed(t, billing)
		billing, _ = subscribeAs(t, b, "billing", 1)
		consume(t, billing, "a", "b", "c")
		o.wantReported(nil, "a", "b", "c")
	})
}

func TestConsumerNeedsAName(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		if _, err := b.SubscribeConsumer(t.Context(), topic, "", 1); err == nil {
			t.Error("a consumer without a name was accepted")
		}
		if _, err := b.SubscribePartition(t.Context(), topic, ""); err == nil {
			t.Error("a partition's consumer without a name was accepted")
		}
		if _, err := b.SubscribeConsumer(t.Context(), topic, "billing", 0); err == nil {
			t.Error("a window of 0 was accepted")
		}
	})
}

func subscribePartition(t *testing.T, b *inproc.Broker) (<-chan *message.Message, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	messages, err := b.SubscribePartition(ctx, topic, "ledger")
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	return messages, cancel
}

// Whatever the broker's window is.
func TestPartitionComesOneAtATime(t *testing.T) {
	scenario(t, inproc.Config{Window: 8, RedeliveryDelay: time.Second}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		o.publish("a", "b", "c")
		messages, cancel := subscribePartition(t, b)
		a := receive(t, messages, "a")
		wantNothing(t, messages)
		a.Nack()
		wantNothing(t, messages)
		(<-messages).Ack()
		receive(t, messages, "b")
		cancel()
		messages, _ = subscribePartition(t, b)
		consume(t, messages, "b", "c")
		o.wantReported(nil, "a", "b", "c")
	})
}

// The former holder of the lease does not know that it has lost it.
func TestPartitionIsTakenOver(t *testing.T) {
	scenario(t, inproc.Config{RedeliveryDelay: time.Second}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		other, _ := subscribeAs(t, b, "billing", 9)
		former, _ := subscribePartition(t, b)
		o.publish("a", "b", "c", "d")
		late := receive(t, former, "a")
		current, _ := subscribePartition(t, b)
		wantClosed(t, former)
		if late.Context().Err() == nil {
			t.Error("the former holder's context goes on")
		}
		a := receive(t, current, "a")
		late.Ack()
		wantNothing(t, current) // one at a time
		a.Ack()
		receive(t, current, "b").Nack()
		last, _ := subscribePartition(t, b)
		wantClosed(t, current)
		consume(t, last, "b", "c", "d")
		consume(t, other, "a", "b", "c", "d") // others are not disturbed
		synctest.Wait()
		if slices.Sort(o.order); !slices.Equal(o.order, []string{"a", "b", "c", "d"}) {
			t.Errorf("reported %v", o.order)
		}
	})
}
