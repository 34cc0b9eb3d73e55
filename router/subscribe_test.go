package router_test

import (
	"context"
	"fmt"
	"sync"
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

// A broker waits for what it has handed out: what nobody takes any more goes back.
func TestWhatNobodyTakesGoesBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := message.NewMessage("e1", nil)
	in := make(chan *message.Message, 1)
	in <- m
	close(in)
	router.Forward(ctx, in, make(chan *message.Message))
	select {
	case <-m.Nacked():
	default:
		t.Error("the message is neither acked nor nacked")
	}
}

// A consumer handles as many events at a time as its policy says, though the broker's own
// window is 1.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, most := 0, 0
		var mu sync.Mutex
		p := launch(t, options{}, func(p *process) error {
			if err := p.router.AddConsumer(router.Consumer{Name: "billing", Policy: eventing.Policy{Concurrency: 3}}); err != nil {
				return err
			}
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				running += n
				most = max(most, running)
			}
			return router.Handle(p.router, "billing", func(context.Context, eventing.Event[orderPlaced]) error {
				count(1)
				defer count(-1)
				after(time.Second)
				return nil
			})
		})
		defer p.stop()
		for i := range 9 {
			p.append(order(fmt.Sprint(i), fmt.Sprintf("e%d", i)))
		}
		after(time.Minute)
		if s := p.stats(); s.Inbox != 9 || most != 3 {
			t.Errorf("handled %d events, %d at a time; want 9, 3 at a time", s.Inbox, most)
		}
	})
}
