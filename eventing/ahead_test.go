package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// moods draws what goes wrong, and how long things take.
type moods struct {
	failing int // one call of the broker in so many
	mu      sync.Mutex
	r       *rand.Rand
}

func (m *moods) oneIn(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.r.IntN(n) == 0
}

func (m *moods) wait() {
	m.mu.Lock()
	d := time.Duration(m.r.IntN(10)) * time.Millisecond
	m.mu.Unlock()
	<-time.After(d)
}

// fickle is a store that takes its time, and fails now and then.
type fickle struct {
	*watched
	moods  *moods
	broker *fickleBroker
	ahead  int // claims that were made while something was published
}

// errFickle is of the moment: three in a row are no message's fault.
var errFickle = fmt.Errorf("the connection is gone: %w", io.ErrUnexpectedEOF)

func (s *fickle) Claim(ctx context.Context, r eventing.ClaimRequest) (eventing.Claimed, error) {
	if s.moods.oneIn(2) {
		s.moods.wait()
	}
	if s.broker.calls.Load() > 0 {
		s.ahead++ // there is one claim at a time
	}
	c, err := s.watched.Claim(ctx, r)
	s.moods.wait()
	if s.moods.oneIn(50) {
		err = errFickle
	}
	return c, err
}

func (s *fickle) Settle(ctx context.Context, r eventing.SettleRequest) (int, error) {
	s.moods.wait()
	if s.moods.oneIn(50) {
		return 0, errFickle
	}
	n, err := s.watched.Settle(ctx, r)
	if s.moods.oneIn(50) {
		err = errFickle
	}
	return n, err
}

// fickleBroker takes its time, and fails now and then.
type fickleBroker struct {
	*recorder
	moods *moods
	calls atomic.Int64 // that are under way
}

func (b *fickleBroker) Publish(topic string, msgs ...*message.Message) error {
	b.calls.Add(1)
	defer b.calls.Add(-1)
	b.moods.wait()
	if b.moods.oneIn(b.moods.failing) {
		return errFickle
	}
	return b.recorder.Publish(topic, msgs...)
}

// picky is the codec of a consumer that some events cannot be written for.
type picky struct {
	eventing.EnvelopeCodec
	refused map[string]bool
}

func (p picky) Marshal(e eventing.Envelope) (*message.Message, error) {
	if p.refused[e.ID] {
		return nil, errors.New("no such field")
	}
	return p.EnvelopeCodec.Marshal(e)
}

type pickyLedger struct {
	ordered
	codec picky
}

func (l pickyLedger) Route(eventType string) ([]eventing.Route, bool) {
	routes, known := l.ordered.Route(eventType)
	routes[0].Codec = l.codec
	return routes, known
}

// TestWhatIsClaimedAheadKeepsTheOrder has everything go wrong now and then, and for some
// keys an event that cannot be published: nothing that comes after it may be.
func TestWhatIsClaimedAheadKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const each = 100
	ahead := 0
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			m := &moods{failing: 50, r: rand.New(rand.NewPCG(seed, 1))}
			allGood := seed%2 > 0 // else looks begin at the first row once a key is held
			if allGood {
				m.failing = 4
			}
			broker := &fickleBroker{recorder: newRecorder(), moods: m}
			store := &fickle{watched: &watched{Store: memstore.New()}, moods: m, broker: broker}
			want, refused := map[string]int{}, map[string]bool{}
			for k, key := range keysOfOnePartition(12) {
				want[key] = each
				if k%3 > 0 && !allGood {
					want[key] = 1 + m.r.IntN(each-1)
					[]map[string]bool{refused, broker.refuse}[k%3-1][fmt.Sprintf("%s/%04d", key, want[key])] = true
				}
			}
			fill(t, store.Store, each, slices.Sorted(maps.Keys(want))...)
			d, err := eventing.NewDispatcher(store, broker, pickyLedger{codec: picky{refused: refused}},
				eventing.DispatcherConfig{BatchSize: 200, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			if err := d.Run(ctx); err != nil {
				t.Fatal(err)
			}
			got, again := map[string]int{}, map[string]bool{}
			for _, id := range broker.ids {
				key, _, _ := strings.Cut(id, "/")
				if again[id] {
					continue
				}
				again[id] = true
				if id != fmt.Sprintf("%s/%04d", key, got[key]) {
					t.Fatalf("seed %d: the first publications of a key are in its order; after %d of them came %s", seed, got[key], id)
				}
				got[key]++
			}
			if !maps.Equal(got, want) {
				t.Errorf("seed %d: everything is published but what follows what cannot be: %v, not %v", seed, got, want)
			}
			ahead += store.ahead
		})
	}
	if ahead == 0 {
		t.Error("nothing was claimed ahead: this proves nothing")
	}
}
