package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
		if last := m.published[key]; n > last+1 {
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

// TestNothingIsPublishedPastAnEventOfItsKey has the broker refuse calls in all kinds
// of patterns.
func TestNothingIsPublishedPastAnEventOfItsKey(t *testing.T) {
	t.Parallel()
	var keys []string // of one partition, so that they share a topic
	for c := rune('a'); len(keys) < 12; c++ {
		if eventing.PartitionOf(string(c), "") == 5 {
			keys = append(keys, string(c))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		broker := &moody{
			refusals:  rapid.SliceOfN(rapid.Bool(), 0, 60).Draw(t, "refusals"),
			published: map[string]int{},
		}
		if n := rapid.IntRange(0, 40).Draw(t, "refuses at first"); n > 0 {
			broker.refusals = append(allTrue(n), broker.refusals...)
		}
		store := memstore.New()
		outbox := eventing.NewOutbox[*memstore.Tx](store, eventing.OutboxConfig{})
		ctx := context.Background()
		next := map[string]int{}
		var events []eventing.Appendable
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			next[key]++
			e := eventing.New("", "", parcel{next[key]})
			e.ID, e.OrderingKey = fmt.Sprintf("e%d-%s", next[key], key), key
			events = append(events, e)
		}
		if err := outbox.InTx(ctx, func(tx *memstore.Tx) error { return outbox.Append(ctx, tx, events...) }); err != nil {
			t.Fatal(err)
		}
		d, err := eventing.NewDispatcher(store, broker, ordered{}, eventing.DispatcherConfig{
			BatchSize: rapid.IntRange(1, 50).Draw(t, "batch"), Logger: slog.New(slog.DiscardHandler), LeaseTTL: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			if n, err := d.DispatchOnce(ctx); n == 0 && err == nil {
				break
			}
		}
		if broker.broken != "" {
			t.Fatal(broker.broken)
		}
		died, err := store.DeadLetters(ctx, eventing.DeadLetterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for key, n := range next {
			if len(died) == 0 && broker.published[key] != n {
				t.Fatalf("of key %s only %d of %d events were published, and none died", key, broker.published[key], n)
			}
		}
	})
}

func allTrue(n int) []bool {
	b := make([]bool, n)
	for i := range b {
		b[i] = true
	}
	return b
}
