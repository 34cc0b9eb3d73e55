package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// notebook is a tracer whose trace contexts say in words what they are the span of. It takes note of spans that end.
type notebook struct {
	mu    sync.Mutex
	ended []string
	links [][]string // of each attempt
}

func (n *notebook) end(span string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		span += ": " + err.Error()
	}
	n.ended = append(n.ended, span)
}

func (n *notebook) Append(ctx context.Context, events int) (context.Context, eventing.EndSpan) {
	parent, _ := eventing.TraceContext(ctx)
	span := strings.TrimSpace(fmt.Sprint(parent, " append ", events))
	return eventing.WithTraceContext(ctx, span, "its state"), func(err error) { n.end(span, err) }
}

func (n *notebook) Dispatch(_ context.Context, messages []eventing.TracedMessage) eventing.EndDispatch {
	spans := make([]string, len(messages))
	for i, m := range messages {
		if m.AppendedAt.IsZero() {
			n.end("a message that was never appended", nil)
		}
		spans[i] = m.Message.Metadata.Get("traceparent") + " send " + m.Message.UUID + " to " + m.Topic
		m.Message.Metadata.Set("traceparent", spans[i])
	}
	return func(unpublished map[*message.Message]error) {
		for i, m := range messages {
			n.end(spans[i], unpublished[m.Message])
		}
	}
}

func (n *notebook) Attempt(ctx context.Context, a eventing.TracedAttempt) (context.Context, eventing.EndSpan) {
	n.mu.Lock()
	n.links = append(n.links, a.Failed)
	n.mu.Unlock()
	if parent, _ := eventing.TraceContext(ctx); parent != a.TraceParent || a.TraceState != "its state" {
		n.end("an attempt of another trace: "+parent, nil)
	}
	span := fmt.Sprint(a.TraceParent, " attempt ", a.Attempt, " at ", a.Envelope.ID)
	return eventing.WithTraceContext(ctx, span, ""), func(err error) { n.end(span, err) }
}

func (n *notebook) expect(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.ended)
	if !slices.Equal(n.ended, want) {
		t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(n.ended, "\n"), strings.Join(want, "\n"))
	}
}

// appendTraced appends events in a request, each of a key of its own.
func appendTraced(t *testing.T, store *memstore.Store, tracer eventing.Tracer, ids ...string) error {
	t.Helper()
	outbox := eventing.NewOutbox[*memstore.Tx](store, eventing.OutboxConfig{Tracer: tracer})
	events := make([]eventing.Appendable, len(ids))
	for i, key := range keysOfOnePartition(len(ids)) {
		e := eventing.New("", "", parcel{i})
		e.ID, e.OrderingKey = ids[i], key
		events[i] = e
	}
	ctx := eventing.WithTraceContext(context.Background(), "request", "its state")
	return outbox.InTx(ctx, func(tx *memstore.Tx) error { return outbox.Append(ctx, tx, events...) })
}

func TestAnAppendThatFailsIsTraced(t *testing.T) {
	t.Parallel()
	tracer := &notebook{}
	err := appendTraced(t, memstore.New(), tracer, "e1", strings.Repeat("x", 300))
	if err == nil {
		t.Fatal("an ID of 300 bytes was taken")
	}
	tracer.expect(t, "request append 2: "+err.Error())
}

// completing is an in-process broker that does not take what is for one topic.
type completing struct {
	*recorder
	refused string
}

func (c completing) PublishWithCompletion(topic string, done func(*message.Message, error), msgs ...*message.Message) error {
	if topic == c.refused {
		return errors.New("it is closed")
	}
	for _, m := range msgs {
		done(m, nil)
	}
	return c.Publish(topic, msgs...)
}

func TestTracedDispatch(t *testing.T) {
	t.Parallel()
	const first, second = "request append 2 send e1 to ", "request append 2 send e2 to "
	refusing := func(ids ...string) *recorder {
		r := newRecorder()
		for _, id := range ids {
			r.refuse[id] = true
		}
		return r
	}
	for name, c := range map[string]struct {
		pub  message.Publisher
		want []string
	}{
		"published":         {refusing(), []string{first + "ledger.05", first + "mail", second + "ledger.05", second + "mail"}},
		"published at once": {&pipeline{recorder: refusing()}, []string{first + "ledger.05", first + "mail", second + "ledger.05", second + "mail"}},
		"one does not pass": {refusing("e1"), []string{first + "ledger.05: too large", first + "mail: too large", second + "ledger.05", second + "mail"}},
		"nothing passes":    {refusing("e1", "e2"), []string{first + "ledger.05: too large", first + "mail: too large", second + "ledger.05: too large", second + "mail: too large"}},
		"handed over":       {completing{recorder: refusing()}, []string{first + "ledger.05", first + "mail", second + "ledger.05", second + "mail"}},
		"a topic not handed over": {completing{recorder: refusing(), refused: "mail"}, []string{
			first + "ledger.05", first + "mail: publish to mail: it is closed", second + "ledger.05", second + "mail: publish to mail: it is closed",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, tracer := memstore.New(), &notebook{}
			if err := appendTraced(t, store, tracer, "e1", "e2"); err != nil {
				t.Fatal(err)
			}
			_, _ = newDispatcher(t, store, c.pub, eventing.DispatcherConfig{Tracer: tracer}).DispatchOnce(t.Context())
			tracer.expect(t, append([]string{"request append 2"}, c.want...)...)
		})
	}
}

func TestTracedAttempts(t *testing.T) {
	t.Parallel()
	store, tracer := memstore.New(), &notebook{}
	busy, now := errors.New("busy"), time.Now()
	fails := []error{busy, eventing.RetryAfter(0, errors.New("later")), eventing.Permanent(busy)}
	c, err := eventing.NewConsumer(store, func(context.Context, eventing.Envelope) (err error) {
		err, fails = fails[0], fails[1:]
		return err
	}, eventing.ConsumerConfig{
		Name: "mail", Transactional: true, Tracer: tracer, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(t.Context(), tracedMessage(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		now = now.Add(time.Hour)
		if n, err := c.RedeliverOnce(t.Context()); n != 1 || err != nil {
			t.Fatalf("%d redelivered, %v", n, err)
		}
	}
	const first = "publish attempt 1 at e1"
	tracer.expect(t, "append attempt 2 at e1: busy", "append attempt 2 at e1: later", first+": busy")
	if want := [][]string{nil, {first}, {first}}; !slices.EqualFunc(tracer.links, want, slices.Equal) {
		t.Errorf("the attempts that had failed before each are %q, want %q", tracer.links, want)
	}
}

// tracedMessage is that of an event of the span "append", which the span "publish" has sent.
func tracedMessage(t *testing.T) *message.Message {
	t.Helper()
	m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
		Header:  eventing.Header{ID: "e1", Type: "parcel", OccurredAt: time.Now(), SchemaVersion: 1, TraceParent: "append", TraceState: "its state"},
		Payload: []byte("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Metadata.Set("traceparent", "publish")
	return m
}

// flaky is a store that cannot conclude the first time.
type flaky struct {
	*memstore.Store
	once sync.Once
}

func (f *flaky) Succeed(ctx context.Context, s eventing.Success) (err error) {
	f.once.Do(func() { err = errors.New("the store is away") })
	if err != nil {
		return err
	}
	return f.Store.Succeed(ctx, s)
}

func TestATracedRunThatIsNotConcluded(t *testing.T) {
	t.Parallel()
	tracer := &notebook{}
	c, err := eventing.NewConsumer(&flaky{Store: memstore.New()}, func(context.Context, eventing.Envelope) error { return nil }, eventing.ConsumerConfig{Name: "mail", Transactional: true, Tracer: tracer, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(t.Context(), tracedMessage(t)); err != nil {
		t.Fatal(err)
	}
	tracer.expect(t, "publish attempt 1 at e1", "publish attempt 1 at e1: no attempt was made: the store is away")
}

func TestATracedRunThatIsStopped(t *testing.T) {
	t.Parallel()
	tracer := &notebook{}
	ctx, stop := context.WithCancel(t.Context())
	c, err := eventing.NewConsumer(memstore.New(), func(ctx context.Context, _ eventing.Envelope) error {
		stop()
		<-ctx.Done()
		return ctx.Err()
	}, eventing.ConsumerConfig{Name: "mail", Transactional: true, Tracer: tracer, Logger: slog.New(slog.DiscardHandler), ShutdownGrace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(ctx, tracedMessage(t)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	tracer.expect(t, "publish attempt 1 at e1: no attempt was made: context canceled")
}
