package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// moody is a broker that refuses some calls. It takes note where an event of a key is
// published before an earlier one.
type moody struct {
	refusals  []bool // of the first calls
	calls     int
	published map[string]int // the last of each key
	broken    string
}

func (m *moody) Publish(_ string, msgs ...*message.Message) error {
	m.calls++
	if m.calls <= len(m.refusals) && m.refusals[m.calls-1] {
		return errors.New("not now")
	}
	for _, msg := range msgs {
		var n int
		key := msg.Metadata.Get("ordering_key")
		if _, err := fmt.Sscanf(msg.UUID, "e%d", &n); err != nil {
			return err
		}
		if last := m.published[key]; n > last+1 && m.broken == "" {
			m.broken = fmt.Sprintf("call %d publishes event %d of key %s after event %d", m.calls, n, key, last)
		}
		m.published[key] = max(m.published[key], n)
	}
	return nil
}

func (m *moody) Close() error { return nil }

// ordered is a routing table with one ordered consumer.
type ordered struct{}

func (o ordered) Route(string) ([]eventing.Route, bool) {
	r, known := o.Consumer("")
	return []eventing.Route{r}, known
}

func (ordered) Consumer(string) (eventing.Route, bool) {
	return eventing.Route{Consumer: "ledger", Topic: "ledger", Ordered: true}, true
}

// keysOfOnePartition share a topic.
func keysOfOnePartition(n int) []string {
	var keys []string
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("k%d", i); eventing.PartitionOf(key, "") == 5 {
			keys = append(keys, key)
		}
	}
	return keys
}

// publishAll appends an event for each key in the list and dispatches until nothing is
// left. It returns what was published in the wrong order or not at all.
func publishAll(keys []string, refusals []bool, batch int) error {
	broker := &moody{refusals: refusals, published: map[string]int{}}
	store, ctx := memstore.New(), context.Background()
	outbox := eventing.NewOutbox[*memstore.Tx](store, eventing.OutboxConfig{})
	appended := map[string]int{}
	var events []eventing.Appendable
	for _, key := range keys {
		appended[key]++
		e := eventing.New("", "", parcel{appended[key]})
		e.ID, e.OrderingKey = fmt.Sprintf("e%d-%s", appended[key], key), key
		events = append(events, e)
	}
	if err := outbox.InTx(ctx, func(tx *memstore.Tx) error { return outbox.Append(ctx, tx, events...) }); err != nil {
		return err
	}
	d, err := eventing.NewDispatcher(store, broker, ordered{}, eventing.DispatcherConfig{
		BatchSize: batch, Logger: slog.New(slog.DiscardHandler), LeaseTTL: time.Hour,
	})
	if err != nil {
		return err
	}
	for range 300 {
		if n, err := d.DispatchOnce(ctx); n == 0 && err == nil {
			break
		}
	}
	if broker.broken != "" {
		return errors.New(broker.broken)
	}
	died, err := store.DeadLetters(ctx, eventing.DeadLetterFilter{})
	if err != nil {
		return err
	}
	for key, n := range appended {
		if len(died) == 0 && broker.published[key] != n {
			return fmt.Errorf("of key %s only %d of %d events were published, and none died", key, broker.published[key], n)
		}
	}
	return nil
}

// TestRecoveryKeepsTheOrder has the broker come back after each number of calls.
func TestRecoveryKeepsTheOrder(t *testing.T) {
	t.Parallel()
	keys := keysOfOnePartition(16)
	for n := range 100 {
		refusals := make([]bool, n)
		for i := range refusals {
			refusals[i] = true
		}
		if err := publishAll(slices.Repeat(keys, 3), refusals, 1000); err != nil {
			t.Fatalf("a broker that takes nothing for %d calls and then everything: %v", n, err)
		}
	}
}

// TestRefusalsKeepTheOrder has it refuse calls in all kinds of patterns.
func TestRefusalsKeepTheOrder(t *testing.T) {
	t.Parallel()
	all := keysOfOnePartition(12)
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		keys := make([]string, rapid.IntRange(1, 60).Draw(t, "events"))
		for i := range keys {
			keys[i] = all[random.IntN(len(all))]
		}
		refusals := rapid.SliceOfN(rapid.Bool(), 0, 80).Draw(t, "refusals")
		if err := publishAll(keys, refusals, rapid.IntRange(1, 60).Draw(t, "batch")); err != nil {
			t.Fatal(err)
		}
	})
}
