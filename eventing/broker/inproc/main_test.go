package inproc_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const topic = "orders"

// scenario runs f in a bubble with a clock of its own. The broker is closed
// at the end, at which point nothing of it may be left running.
func scenario(t *testing.T, cfg inproc.Config, f func(t *testing.T, b *inproc.Broker)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inproc.New(cfg)
		t.Cleanup(func() { _ = b.Close() })
		f(t, b)
	})
}

// outbox is a publisher that remembers what was reported.
type outbox struct {
	t      *testing.T
	broker *inproc.Broker
	then   func(id string, err error) // called after each report

	mu       sync.Mutex
	taken    int
	open     map[*message.Message]bool
	reported map[string]error
	order    []string
}

func newOutbox(t *testing.T, b *inproc.Broker) *outbox {
	return &outbox{t: t, broker: b, open: map[*message.Message]bool{}, reported: map[string]error{}}
}

// publish sends a message for each id, in one call.
func (o *outbox) publish(ids ...string) {
	o.t.Helper()
	if err := o.tryPublish(ids...); err != nil {
		o.t.Fatalf("publish %v: %v", ids, err)
	}
}

func (o *outbox) tryPublish(ids ...string) error {
	var msgs []*message.Message
	o.mu.Lock()
	for _, id := range ids {
		m := message.NewMessage(id, []byte("payload of "+id))
		m.Metadata.Set("id", id)
		o.open[m] = true
		msgs = append(msgs, m)
	}
	o.mu.Unlock()
	err := o.broker.PublishWithCompletion(topic, o.done, msgs...)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.taken += len(ids)
		return nil
	}
	for _, m := range msgs {
		delete(o.open, m)
	}
	return err
}

func (o *outbox) done(m *message.Message, err error) {
	o.mu.Lock()
	if !o.open[m] {
		o.t.Errorf("done called for %s, which is not open: a second time, or with another pointer", m.UUID)
	}
	delete(o.open, m)
	o.reported[m.UUID] = err
	o.order = append(o.order, m.UUID)
	o.mu.Unlock()
	if o.then != nil {
		o.then(m.UUID, err)
	}
}

// wantReported checks, once nothing moves any more, what has been reported so
// far: these, in this order, all with err.
func (o *outbox) wantReported(err error, ids ...string) {
	o.t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.order, ids) {
		o.t.Fatalf("reported: %v, want %v", o.order, ids)
	}
	for _, id := range ids {
		if !errors.Is(o.reported[id], err) {
			o.t.Fatalf("%s was reported with %v, want %v", id, o.reported[id], err)
		}
	}
	o.order = nil
}

func subscribe(t *testing.T, b *inproc.Broker, window int) (<-chan *message.Message, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	messages, err := b.SubscribeWindow(ctx, topic, window)
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	return messages, cancel
}

// receive returns the message that is there now, which must be the one with the id.
func receive(t *testing.T, messages <-chan *message.Message, id string) *message.Message {
	t.Helper()
	synctest.Wait()
	select {
	case m, open := <-messages:
		if !open {
			t.Fatalf("the channel is closed, want %s", id)
		}
		if m.UUID != id || string(m.Payload) != "payload of "+id || m.Metadata.Get("id") != id {
			t.Fatalf("received %s %q %v, want %s", m.UUID, m.Payload, m.Metadata, id)
		}
		return m
	default:
		t.Fatalf("nothing to receive, want %s", id)
		return nil
	}
}

func consume(t *testing.T, messages <-chan *message.Message, ids ...string) {
	t.Helper()
	for _, id := range ids {
		receive(t, messages, id).Ack()
	}
}

func wantNothing(t *testing.T, messages <-chan *message.Message) {
	t.Helper()
	synctest.Wait()
	select {
	case m, open := <-messages:
		t.Fatalf("received %v (channel open: %v), want nothing", m, open)
	default:
	}
}

func wantClosed(t *testing.T, messages <-chan *message.Message) {
	t.Helper()
	synctest.Wait()
	select {
	case m, open := <-messages:
		if open {
			t.Fatalf("received %s, want a closed channel", m.UUID)
		}
	default:
		t.Fatal("the channel is open, want it closed")
	}
}

func names(from, to int) []string {
	var ids []string
	for i := from; i < to; i++ {
		ids = append(ids, strconv.Itoa(i))
	}
	return ids
}
