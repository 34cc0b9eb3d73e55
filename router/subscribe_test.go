package router_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
)

// forgetful is a broker that ends the first two subscriptions at once and refuses the
// third.
type forgetful struct {
	subscribed atomic.Int32
	msgs       chan *message.Message
}

func (f *forgetful) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	switch f.subscribed.Add(1) {
	case 1, 2:
		ended := make(chan *message.Message)
		close(ended)
		return ended, nil
	case 3:
		return nil, context.DeadlineExceeded
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		select {
		case m := <-f.msgs:
			out <- m
		case <-ctx.Done():
			return
		}
		<-ctx.Done()
	}()
	return out, nil
}

func (*forgetful) Close() error { return nil }

// A subscription that the broker ends does not end the consumer.
func TestSubscribesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := &forgetful{msgs: make(chan *message.Message, 1)}
		handled := make(chan string, 1)
		r, err := router.New(router.Config{Store: memstore.New(), Subscriber: broker})
		if err != nil {
			t.Fatal(err)
		}
		if err := router.Handle(r, "billing", func(_ context.Context, e eventing.Event[orderPlaced]) error {
			handled <- e.ID
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		e := eventing.Envelope{Payload: []byte(`{}`)}
		e.ID, e.Type, e.SchemaVersion, e.OccurredAt = "e1", eventing.TypeOf[orderPlaced](), 1, time.Now()
		m, err := eventing.EnvelopeCodec{}.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		broker.msgs <- m
		if got := <-handled; got != "e1" {
			t.Errorf("handled %s", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
