package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Couriers share ids, and give their events whatever keys they like, those that others' events would have as usual among them.
func TestEventsAreFoundByTheirIDs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		now := time.Now()
		for n, e := range [][3]string{ // source, id, key
			{"a", "1", "a:1"},
			{"b", "1", "b:1"},
			{"b:", "1", "b::1"},
			{"c", "1", "anything"},
			{"c", "2", "d:1"},
			{"d", "2", "d:2"},
			{"e", "2", "c:2"},
			{"e", "3", "e:3"},
			{"", "4", ":4"},
		} {
			received := event(now.Add(time.Duration(n)*time.Second), "trace")
			received.Source, received.EventID, received.IdempotencyKey = e[0], e[1], e[2]
			receive(t, l, received, "body")
		}
		for _, c := range []struct {
			id, source string
			keys       []string
		}{
			{"1", "", []string{"a:1", "b:1", "b::1", "anything"}},
			{"1", "b", []string{"b:1"}},
			{"1", "c", []string{"anything"}},
			{"1", "d", nil},
			{"2", "", []string{"d:1", "d:2", "c:2"}},
			{"2", "c", []string{"d:1"}},
			{"3", "", []string{"e:3"}},
			{"4", "", []string{":4"}},
			{"5", "", nil},
		} {
			events, envelopes, err := l.Events(t.Context(), c.id, c.source)
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, e := range events {
				keys = append(keys, e.IdempotencyKey)
			}
			if !slices.Equal(keys, c.keys) {
				t.Errorf("the events %q of %q are %q, want %q", c.id, c.source, keys, c.keys)
			}
			called, err := l.Envelopes(t.Context(), []string{"0", c.id}, c.source)
			if err != nil {
				t.Fatal(err)
			}
			var same []string
			for _, e := range called[c.id] {
				same = append(same, e.EnvelopeID)
			}
			slices.Sort(same)
			if slices.Sort(envelopes); !slices.Equal(same, envelopes) || len(called) != min(1, len(c.keys)) {
				t.Errorf("the envelopes of %q of %q are %v, want %q", c.id, c.source, called, envelopes)
			}
		}
	})
}

// Of many events and many sources, statements stay short.
func TestEnvelopesOfMany(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *store.Store, l *ledger.Ledger) {
		now := time.Now()
		var ids []string
		for n := range 700 {
			e := event(now, "trace")
			e.Source, e.EventID = fmt.Sprint("courier-", n%40), fmt.Sprint("evt_", n)
			e.IdempotencyKey = e.Source + ":" + e.EventID
			receive(t, l, e, "body")
			ids = append(ids, e.EventID, fmt.Sprint("unknown_", n))
		}
		if envelopes, err := l.Envelopes(t.Context(), ids, ""); err != nil || len(envelopes) != 700 {
			t.Errorf("%d events are known, %v", len(envelopes), err)
		}
		if envelopes, err := l.Envelopes(t.Context(), ids, "courier-7"); err != nil || len(envelopes) != 18 {
			t.Errorf("%d events of one source are known, %v", len(envelopes), err)
		}
	})
}

// However many sources there are, an event is found, and no statement has them all.
func TestEventsOfTooManySources(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		rows := strings.ReplaceAll(manyRows, "'s',", "'s' || n,")
		if !s.Embedded {
			rows = strings.NewReplacer("$1", "$1::timestamptz", "$2", "$2::timestamptz").Replace(rows)
		}
		now := time.Now()
		exec(t, s, rows, s.Time(now), s.Time(now))
		receive(t, l, event(now, "trace"), "body")
		if events, _, err := l.Events(t.Context(), "evt_1", ""); err != nil || len(events) != 1 {
			t.Errorf("found %v, %v", events, err)
		}
		if envelopes, err := l.Envelopes(t.Context(), []string{"e7", "evt_1", "unknown"}, ""); err != nil || len(envelopes) != 2 {
			t.Errorf("found %v, %v", envelopes, err)
		}
	})
}
