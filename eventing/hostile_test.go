package eventing_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

func newConsumer(t *testing.T, store *memstore.Store, cfg eventing.ConsumerConfig, handle eventing.HandlerFunc) *eventing.Consumer {
	t.Helper()
	cfg.Name, cfg.Logger = "billing", slog.New(slog.DiscardHandler)
	c, err := eventing.NewConsumer(store, handle, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func envelope(id string) eventing.Envelope {
	e := eventing.Envelope{Payload: []byte(`{}`)}
	e.ID, e.Type, e.OccurredAt, e.SchemaVersion = id, "order.placed", time.Now(), 1
	return e
}

func messageOf(t *testing.T, id string) *message.Message {
	t.Helper()
	m, err := eventing.EnvelopeCodec{}.Marshal(envelope(id))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func deadLetters(t *testing.T, store *memstore.Store) []eventing.DeadLetter {
	t.Helper()
	letters, err := eventing.NewDeadLetters(store).List(t.Context(), eventing.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

// What the library's own metadata must not be able to do is to hold up a lane: a
// store would refuse it for ever.
func TestHostileMetadataIsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, set := range map[string][2]string{
		"a generation beyond 32 bits":    {eventing.MetadataGeneration, "99999999999"},
		"a negative generation":          {eventing.MetadataGeneration, "-1"},
		"a generation that is no number": {eventing.MetadataGeneration, "x"},
		"a row that is no number":        {eventing.MetadataOutboxSeq, "a\x00b"},
		"a row beyond 64 bits":           {eventing.MetadataOutboxSeq, strings.Repeat("9", 5000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			c := newConsumer(t, store, eventing.ConsumerConfig{}, func(context.Context, eventing.Envelope) error {
				t.Error("the handler ran")
				return nil
			})
			m := messageOf(t, "e1")
			m.Metadata.Set(set[0], set[1])
			if err := c.Receive(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if d := deadLetters(t, store); len(d) != 1 || d[0].Stage != eventing.StageDecode {
				t.Errorf("got dead letters %+v, want one of stage decode", d)
			}
		})
	}
}

func TestConsumerNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "billing,eu", "a\nb", "a\xff", strings.Repeat("a", 256)} {
		if err := eventing.CheckConsumerName(name); err == nil {
			t.Errorf("%.20q passes: messages name consumers, separated by commas", name)
		}
	}
	if err := eventing.CheckConsumerName("billing/eu 2"); err != nil {
		t.Error(err)
	}
}

// A panic of the hook must not end the process: redeliveries run in goroutines of
// their own.
func TestAPanicInOnConcludeIsAnError(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	ctx, cancel := context.WithCancel(t.Context())
	c := newConsumer(t, store, eventing.ConsumerConfig{OnConclude: func(context.Context, any, eventing.Conclusion) error {
		cancel() // it would be tried again
		panic("the hook is off")
	}}, func(context.Context, eventing.Envelope) error { return nil })
	if err := c.Receive(ctx, messageOf(t, "e1")); err == nil {
		t.Error("the event counts as concluded")
	}
}

func TestInTxInAHandlerOfTheSameStoreIsRefused(t *testing.T) {
	t.Parallel()
	store, other := memstore.New(), memstore.New()
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	elsewhere := eventing.NewOutbox(other, eventing.OutboxConfig{})
	nothing := func(*memstore.Tx) error { return nil }
	c := newConsumer(t, store, eventing.ConsumerConfig{Transactional: true}, func(ctx context.Context, _ eventing.Envelope) error {
		if err := outbox.InTx(ctx, nothing); err == nil {
			t.Error("a transaction inside of one with a single writer waits for itself")
		}
		return elsewhere.InTx(ctx, nothing)
	})
	if err := c.Receive(t.Context(), messageOf(t, "e1")); err != nil {
		t.Fatal(err)
	}
	if d := deadLetters(t, store); len(d) != 0 {
		t.Errorf("got %+v: another store's outbox is fine", d)
	}
}

func TestReservedIDsAreRefused(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	id, _ := eventing.Undecodable([]byte("?"))
	var invalid *eventing.InvalidEventError
	err := outbox.InTx(t.Context(), func(tx *memstore.Tx) error { return outbox.Append(t.Context(), tx, envelope(id)) })
	if !errors.As(err, &invalid) || invalid.Field != "event_id" {
		t.Errorf("got %v: the ID of undecodable bytes is no event's", err)
	}
}

// routesOf routes every type to one consumer, which is ordered.
type routesOf string

func (r routesOf) Route(string) ([]eventing.Route, bool) {
	return []eventing.Route{{Consumer: string(r), Topic: string(r), Ordered: true}}, true
}

func (r routesOf) Consumer(name string) (eventing.Route, bool) {
	return eventing.Route{Consumer: name, Topic: name, Ordered: true}, name == string(r)
}

type publisherFunc func(topic string, msgs ...*message.Message) error

func (f publisherFunc) Publish(topic string, msgs ...*message.Message) error {
	return f(topic, msgs...)
}
func (publisherFunc) Close() error { return nil }

// The replay of a dead letter whose consumer is gone fails again, and holds up nobody
// else's events of the key.
func TestAReplayForAConsumerThatIsGoneHoldsNothing(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	first, later := envelope("e1"), envelope("e2")
	first.OrderingKey, later.OrderingKey = "K", "K"
	c := newConsumer(t, store, eventing.ConsumerConfig{}, func(context.Context, eventing.Envelope) error {
		return eventing.Permanent(errors.New("no"))
	})
	m, err := eventing.EnvelopeCodec{}.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := eventing.NewDeadLetters(store).Replay(t.Context(), eventing.Target{EventID: "e1", Consumer: "billing"}, "me", ""); err != nil {
		t.Fatal(err)
	}
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	if err := outbox.InTx(t.Context(), func(tx *memstore.Tx) error { return outbox.Append(t.Context(), tx, later) }); err != nil {
		t.Fatal(err)
	}
	var published []string
	d, err := eventing.NewDispatcher(store, publisherFunc(func(_ string, msgs ...*message.Message) error {
		for _, m := range msgs {
			published = append(published, m.UUID)
		}
		return nil
	}), routesOf("ledger"), eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := d.DispatchOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(published) != 1 || published[0] != "e2" {
		t.Errorf("published %v, want e2", published)
	}
	if letters := deadLetters(t, store); len(letters) != 1 || letters[0].Reason != eventing.ReasonNoRoute || letters[0].Status != eventing.StatusPending {
		t.Errorf("got %+v, want the replay as a pending dead letter again", letters)
	}
}

// twoTopics routes every type to two consumers with a topic each.
type twoTopics struct{}

func (twoTopics) Route(string) ([]eventing.Route, bool) {
	return []eventing.Route{{Consumer: "billing", Topic: "up"}, {Consumer: "mail", Topic: "down"}}, true
}

func (twoTopics) Consumer(string) (eventing.Route, bool) { return eventing.Route{}, false }

// While one topic takes nothing, the others do not get the same messages again and
// again.
func TestATopicThatIsDownDoesNotFloodTheOthers(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	if err := outbox.InTx(t.Context(), func(tx *memstore.Tx) error {
		return outbox.Append(t.Context(), tx, envelope("e1"), envelope("e2"))
	}); err != nil {
		t.Fatal(err)
	}
	got, down := map[string]int{}, true
	d, err := eventing.NewDispatcher(store, publisherFunc(func(topic string, msgs ...*message.Message) error {
		if topic == "down" && down {
			return errors.New("this topic is down")
		}
		for _, m := range msgs {
			got[topic+" "+m.UUID]++
		}
		return nil
	}), twoTopics{}, eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for pass := range 10 {
		down = pass < 9
		if _, err := d.DispatchOnce(t.Context()); err != nil && !down {
			t.Fatal(err)
		}
	}
	for _, m := range []string{"up e1", "up e2", "down e1", "down e2"} {
		if got[m] != 1 {
			t.Errorf("%s was published %d times, want once", m, got[m])
		}
	}
	if s, err := store.Stats(t.Context()); err != nil || s.Outbox["sent"] != 2 {
		t.Errorf("got %v, %v, want both sent", s.Outbox, err)
	}
}

// A worker that was taken over from asks for its leases before it runs anything again:
// not once more does its handler run.
func TestALostLeaseDoesNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := memstore.New(), 0
		c := newConsumer(t, store, eventing.ConsumerConfig{
			LeaseScope: "scope", Holder: "paused", LeaseTTL: time.Hour, Policy: eventing.Policy{Ordered: true},
		}, func(ctx context.Context, _ eventing.Envelope) error {
			runs++
			later := time.Now().Add(2 * time.Hour) // by the clock of a successor
			_, err := store.AcquireLeases(ctx, eventing.LeaseRequest{Scope: "scope", Holder: "successor", Now: later, Until: later.Add(time.Hour)})
			return err
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := c.Receive(ctx, messageOf(t, "e1")); err == nil {
			t.Error("the event counts as concluded")
		}
		if runs != 1 {
			t.Errorf("the handler ran %d times, want once", runs)
		}
	})
}
