package eventing_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// TestAnUnfitEventWaitsForThoseBeforeIt has one of them not go out for a moment: it
// would be held up by the dead letter, and overtaken by its replay.
func TestAnUnfitEventWaitsForThoseBeforeIt(t *testing.T) {
	t.Parallel()
	store, broker, ctx := memstore.New(), newRecorder(), context.Background()
	key := keysOfOnePartition(1)[0]
	first, second := key+"/0000", key+"/0001"
	refused := map[string]bool{second: true}
	fill(t, store, 2, key)
	broker.refuse[first] = true
	d, err := eventing.NewDispatcher(store, broker, pickyLedger{codec: picky{refused: refused}},
		eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	dispatch := func() []eventing.DeadLetter {
		_, _ = d.DispatchOnce(ctx) // the broker's errors
		letters, err := store.DeadLetters(ctx, eventing.DeadLetterFilter{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return letters
	}
	if n := len(dispatch()); n != 0 {
		t.Errorf("while an event before it is not out, it is no dead letter; there are %d", n)
	}
	clear(broker.refuse)
	letters := dispatch()
	if len(letters) != 1 {
		t.Fatalf("then it is; there are %d", len(letters))
	}
	clear(refused)
	if err := eventing.NewDeadLetters(store).Replay(ctx, letters[0].Target(), "ana", ""); err != nil {
		t.Fatal(err)
	}
	dispatch()
	if !slices.Equal(broker.ids, []string{first, second}) {
		t.Errorf("published %v", broker.ids)
	}
}

// inHand is a broker in the process whose consumers conclude when they are told to.
type inHand struct {
	*recorder
	conclude []func()
}

func (b *inHand) PublishWithCompletion(topic string, done func(*message.Message, error), msgs ...*message.Message) error {
	for _, m := range msgs {
		b.conclude = append(b.conclude, func() { done(m, nil) })
	}
	return b.Publish(topic, msgs...)
}

// TestAnUnfitEventWaitsForThoseInFlight: should the process die with them, they would be
// pending again, and behind its dead letter.
func TestAnUnfitEventWaitsForThoseInFlight(t *testing.T) {
	t.Parallel()
	store, broker, ctx := memstore.New(), &inHand{recorder: newRecorder()}, context.Background()
	key := keysOfOnePartition(1)[0]
	fill(t, store, 3, key)
	d, err := eventing.NewDispatcher(store, broker, pickyLedger{codec: picky{refused: map[string]bool{key + "/0001": true}}},
		eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	letters := func(passes int) int {
		for range passes {
			if _, err := d.DispatchOnce(ctx); err != nil {
				t.Fatal(err)
			}
		}
		list, err := store.DeadLetters(ctx, eventing.DeadLetterFilter{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := letters(3); n != 0 || len(broker.conclude) != 1 {
		t.Fatalf("while the first event is in flight, there are %d dead letters, and %d events in flight", n, len(broker.conclude))
	}
	broker.conclude[0]()
	if n := letters(2); n != 1 {
		t.Errorf("when it has been settled, there are %d dead letters", n)
	}
	if !slices.Equal(broker.ids, []string{key + "/0000"}) {
		t.Errorf("published %v", broker.ids)
	}
}

// frozen is a store whose dispatcher stops once, for longer than its leases live, with an
// unfit event in its hands.
type frozen struct {
	*watched
	unfit string
	cut   atomic.Bool // it does not get at the leases
	once  atomic.Bool
}

func (s *frozen) Claim(ctx context.Context, r eventing.ClaimRequest) (eventing.Claimed, error) {
	<-time.After(5 * time.Millisecond) // a look costs something
	c, err := s.watched.Claim(ctx, r)
	if slices.ContainsFunc(c.Rows, func(r eventing.OutboxRow) bool { return r.EventID == s.unfit }) && !s.once.Swap(true) {
		s.cut.Store(true)
		<-time.After(5 * time.Second)
		time.AfterFunc(time.Millisecond, func() { s.cut.Store(false) })
	}
	return c, err
}

func (s *frozen) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (eventing.LeaseTable, error) {
	if s.cut.Load() {
		return eventing.LeaseTable{}, errors.New("frozen")
	}
	return s.watched.AcquireLeases(ctx, r)
}

// TestADeadLetterThatWasNotWrittenIsNotPassedOver: its key's later events stay behind it.
func TestADeadLetterThatWasNotWrittenIsNotPassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := keysOfOnePartition(2)
		unfit := keys[0] + "/0000"
		store, broker := &frozen{watched: &watched{Store: memstore.New()}, unfit: unfit}, newRecorder()
		d, err := eventing.NewDispatcher(store, broker, pickyLedger{codec: picky{refused: map[string]bool{unfit: true}}},
			eventing.DispatcherConfig{BatchSize: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, store.Store, 5, keys[1])
		fill(t, store.Store, 3, keys[0])
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
		for _, id := range broker.ids {
			if strings.HasPrefix(id, keys[0]+"/") {
				t.Errorf("%s was published, though %s is before it in its key", id, unfit)
			}
		}
		if n := pending(t, store.Store); n != 2 {
			t.Errorf("two events wait for the dead letter, not %d", n)
		}
	})
}
