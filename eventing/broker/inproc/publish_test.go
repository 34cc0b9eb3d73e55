package inproc_test

import (
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

func TestPublishWithoutSubscriptionIsRetained(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		ids := names(0, 5000)
		o.publish(ids[:1000]...)
		for _, id := range ids[1000:] {
			o.publish(id)
		}
		o.wantReported(nil) // nobody has seen them

		first, _ := subscribe(t, b, 1)
		second, _ := subscribe(t, b, 1)
		consume(t, first, ids...)
		o.wantReported(nil, ids...)
		wantNothing(t, second) // what was retained went to the first
	})
}

func TestDoneOnceEverySubscriptionHasAcked(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		first, _ := subscribe(t, b, 1)
		second, _ := subscribe(t, b, 2)
		o.publish("a", "b")
		third, _ := subscribe(t, b, 1)

		consume(t, first, "a", "b")
		o.wantReported(nil)
		early, late := receive(t, second, "a"), receive(t, second, "b")
		late.Ack()
		o.wantReported(nil, "b")
		early.Ack()
		o.wantReported(nil, "a")
		wantNothing(t, third) // it came later
	})
}

func TestSubscriptionsDoNotShareCopies(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		first, _ := subscribe(t, b, 1)
		second, _ := subscribe(t, b, 1)
		o.publish("a")
		m := receive(t, first, "a")
		m.Metadata.Set("id", "changed by a consumer")
		m.Nack()
		consume(t, second, "a")
	})
}

func TestSlowSubscriptionHoldsUpNobody(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		o := newOutbox(t, b)
		slow, _ := subscribe(t, b, 1)
		fast, _ := subscribe(t, b, 1)
		ids := names(0, 100)
		o.publish(ids...)
		stuck := receive(t, slow, "0")
		consume(t, fast, ids...)
		o.wantReported(nil)
		stuck.Ack()
		o.wantReported(nil, "0")
	})
}

// done is called without a lock held, so it may publish.
func TestDoneMayPublish(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		messages, _ := subscribe(t, b, 1)
		o := newOutbox(t, b)
		err := b.PublishWithCompletion(topic, func(*message.Message, error) { o.publish("next") },
			&message.Message{UUID: "first"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		(<-messages).Ack()
		consume(t, messages, "next")
		o.wantReported(nil, "next")
	})
}

func TestPublishRefusesNilMessage(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		messages, _ := subscribe(t, b, 2)
		done := func(m *message.Message, err error) { t.Errorf("done(%v, %v)", m, err) }
		if err := b.PublishWithCompletion(topic, done, message.NewMessage("a", nil), nil); err == nil {
			t.Fatal("a nil message was taken")
		}
		wantNothing(t, messages) // it took none
	})
}

func TestTopicsAreSeparate(t *testing.T) {
	scenario(t, inproc.Config{}, func(t *testing.T, b *inproc.Broker) {
		other, err := b.Subscribe(t.Context(), "another topic")
		if err != nil {
			t.Fatal(err)
		}
		newOutbox(t, b).publish("a")
		wantNothing(t, other)
		messages, _ := subscribe(t, b, 1)
		consume(t, messages, "a")
	})
}
