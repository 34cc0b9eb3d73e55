package inproc_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/internal/testkit"
)

// throng is several consumers of one topic whose subscriptions come, fail and go.
type throng struct {
	t         *testing.T
	b         *inproc.Broker
	all       int
	consumers []string // "ledger" leases the topic
	acked     []map[string]*atomic.Bool
	done      atomic.Int64
	received  atomic.Int64
	ended     chan struct{} // closed when all is done
}

func newThrong(t *testing.T, b *inproc.Broker, all int, consumers ...string) *throng {
	th := &throng{t: t, b: b, all: all, consumers: consumers, ended: make(chan struct{})}
	for range all {
		m := map[string]*atomic.Bool{}
		for _, c := range consumers {
			m[c] = new(atomic.Bool)
		}
		th.acked = append(th.acked, m)
	}
	for _, c := range consumers { // who is to get everything has to be known
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := th.subscribe(ctx, c, 1); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	return th
}

func (th *throng) subscribe(ctx context.Context, consumer string, window int) (<-chan *message.Message, error) {
	if consumer == "ledger" {
		return th.b.SubscribePartition(ctx, topic, consumer)
	}
	return th.b.SubscribeConsumer(ctx, topic, consumer, window)
}

// visit is one subscription. It leaves some of its messages behind, acks some after
// it has left, and holds some for a while.
func (th *throng) visit(consumer string, r *rand.Rand) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	messages, err := th.subscribe(ctx, consumer, 1+r.IntN(8))
	if err != nil {
		return false // closed
	}
	stay := 1 + r.IntN(100)
	var held []*message.Message
	idle := time.AfterFunc(10*time.Millisecond, cancel) // all that is left may be in our hands
	defer idle.Stop()
	for m := range messages {
		idle.Reset(10 * time.Millisecond)
		th.received.Add(1)
		n, _ := strconv.Atoi(m.UUID) // of our own making
		if consumer == "ledger" && n > 0 && !th.acked[n-1][consumer].Load() {
			th.t.Errorf("message %d is delivered before the one ahead of it is acked", n)
		}
		if stay--; stay == 0 {
			cancel()
		}
		switch r.IntN(12) {
		case 0:
			m.Nack()
		case 1:
			held = append(held, m)
		default:
			th.ack(consumer, n, m)
		}
	}
	for _, m := range held {
		if n, _ := strconv.Atoi(m.UUID); r.IntN(2) == 0 {
			th.ack(consumer, n, m)
		}
	}
	return true
}

func (th *throng) ack(consumer string, n int, m *message.Message) {
	th.acked[n][consumer].Store(true)
	m.Ack()
}

func (th *throng) report(m *message.Message, err error) {
	n, _ := strconv.Atoi(m.UUID)
	if err != nil {
		th.t.Errorf("message %d was reported with: %v", n, err)
		return
	}
	for c, acked := range th.acked[n] {
		if !acked.Load() {
			th.t.Errorf("message %d is reported as done, and %s has not acked it", n, c)
		}
	}
	if th.done.Add(1) == int64(th.all) {
		close(th.ended)
	}
}

// Named consumers lose nothing, whatever becomes of their subscriptions; what is reported as done
// all have acked; who leases the topic gets it in order.
func TestConsumersThatComeAndGoLoseNothing(t *testing.T) {
	t.Parallel()
	const all = 5000
	b := inproc.New(inproc.Config{RedeliveryDelay: 50 * time.Microsecond, RedeliveryMax: time.Millisecond})
	th := newThrong(t, b, all, "billing", "mail", "ledger")
	r := testkit.Random(t)
	var running sync.WaitGroup
	for i, consumer := range []string{"billing", "billing", "billing", "mail", "ledger", "ledger"} { // the last two take over from each other
		random := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		running.Go(func() {
			for th.visit(consumer, random) {
			}
		})
	}
	running.Go(func() {
		for n := 0; n < all; n += 10 {
			var msgs []*message.Message
			for _, id := range names(n, n+10) {
				msgs = append(msgs, message.NewMessage(id, nil))
			}
			if err := b.PublishWithCompletion(topic, th.report, msgs...); err != nil {
				t.Error(err)
			}
		}
	})
	select {
	case <-th.ended:
	case <-time.After(time.Minute):
		t.Errorf("only %d of %d messages are done", th.done.Load(), all)
	}
	_ = b.Close() // always nil
	running.Wait()
	if th.done.Load() != all {
		t.Errorf("%d reports for %d messages", th.done.Load(), all)
	}
	if th.received.Load() == int64(all*len(th.consumers)) {
		t.Error("nothing was delivered twice: this proves nothing")
	}
}
