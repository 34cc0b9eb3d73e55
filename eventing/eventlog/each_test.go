package eventlog_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

// many records n events in an order of its own: of four types, about three cases, four at the same time.
func (b base) many(t *testing.T, l *eventlog.Log, n int) (inOrder []string) {
	t.Helper()
	events := make([]eventing.Envelope, n)
	for i := range n {
		e := event(fmt.Sprintf("e%05d", i), fmt.Sprintf("type%d", i%4), noon.Add(time.Duration(i/4)*time.Microsecond))
		e.AggregateID = fmt.Sprint(i % 3)
		events[(i*7919)%n] = e // n and 7919 have no common divisor
	}
	b.record(t, l, events...)
	slices.SortFunc(events, func(a, b eventing.Envelope) int {
		if c := a.OccurredAt.Compare(b.OccurredAt); c != 0 {
			return c
		}
		return strings.Compare(eventlog.UUID(a.ID), eventlog.UUID(b.ID))
	})
	for _, e := range events {
		inOrder = append(inOrder, e.ID)
	}
	return inOrder
}

func TestEachIsInOrderOverPages(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		want := b.many(t, l, 1234) // three pages; the first ends amid events of the same time
		if got := ids(b.entries(t, l, eventlog.Filter{})); !slices.Equal(got, want) {
			t.Errorf("read %d entries, not as recorded in order of time", len(got))
		}
		for _, limit := range []int{1, 499, 500, 501, 1000, 1234, 2000} {
			if got := ids(b.entries(t, l, eventlog.Filter{Limit: limit})); !slices.Equal(got, want[:min(limit, len(want))]) {
				t.Errorf("with a limit of %d there are %d entries", limit, len(got))
			}
		}
	})
}

// All at one time is no endless loop, and no event is left out.
func TestEachOfOneTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		events := make([]eventing.Envelope, 1100)
		for i := range events {
			events[i] = event(fmt.Sprint(i), "T", noon)
		}
		b.record(t, l, events...)
		got := ids(b.entries(t, l, eventlog.Filter{}))
		if slices.Sort(got); len(slices.Compact(got)) != len(events) {
			t.Errorf("read %d different entries of %d", len(got), len(events))
		}
	})
}

func TestEachFilters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		cases := []eventing.Envelope{
			event("a", "created", noon), event("b", "closed", noon.Add(time.Second)), event("c", "paid", noon.Add(time.Second+time.Microsecond)),
			event("d", "created", noon.Add(time.Minute)), event("e", "created", noon.Add(time.Hour)),
		}
		cases[3].AggregateID, cases[4].AggregateType = aUUID, "payment"
		b.record(t, l, cases...)
		for _, c := range []struct {
			f    eventlog.Filter
			want string
		}{
			{eventlog.Filter{}, "a b c d e"},
			{eventlog.Filter{Types: []string{"created"}}, "a d e"},
			{eventlog.Filter{Types: []string{"closed", "paid", "unheard of"}}, "b c"},
			{eventlog.Filter{Types: []string{"unheard of"}}, ""},
			{eventlog.Filter{AggregateType: "case"}, "a b c d"},
			{eventlog.Filter{AggregateID: "7"}, "a b c e"},
			{eventlog.Filter{AggregateType: "case", AggregateID: aUUID}, "d"},
			{eventlog.Filter{AggregateType: "payment", AggregateID: "8"}, ""},
			{eventlog.Filter{Since: noon.Add(time.Second)}, "b c d e"},
			{eventlog.Filter{Until: noon.Add(time.Second)}, "a"},
			{eventlog.Filter{Since: noon.Add(time.Second), Until: noon.Add(time.Hour).In(time.FixedZone("", 3600))}, "b c d"},
			{eventlog.Filter{Since: noon.Add(time.Hour), Until: noon}, ""},
			{eventlog.Filter{Types: []string{"created"}, AggregateType: "case", AggregateID: "7", Since: noon, Until: noon.Add(time.Hour), Limit: 3}, "a"},
			{eventlog.Filter{Types: []string{"created"}, Limit: 2}, "a d"},
		} {
			if got := strings.Join(ids(b.entries(t, l, c.f)), " "); got != c.want {
				t.Errorf("%+v selects %q, want %q", c.f, got, c.want)
			}
		}
	})
}

// The loop has the database to itself, and may be left.
func TestEachHoldsNoConnection(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		b.db.SetMaxOpenConns(1)
		l := b.log(t)
		b.many(t, l, 600)
		n := 0
		for e, err := range l.Each(ctx, b.db, eventlog.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 550 {
				break
			}
			if n%100 == 0 {
				e.ID, e.OccurredAt = "again "+e.ID, noon.Add(-time.Hour)
				b.record(t, l, e.Envelope())
			}
		}
		if got := len(b.entries(t, l, eventlog.Filter{})); got != 605 {
			t.Errorf("there are %d entries, want 605", got)
		}
	})
}

// A page ends early when its entries are large.
func TestEachOfLargePayloads(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		var want []string
		for i := range 9 {
			e := event(fmt.Sprint(i), "T", noon.Add(time.Duration(i)*time.Second))
			e.Payload = []byte(`"` + strings.Repeat("x", 3<<20) + `"`)
			want = append(want, e.ID)
			b.record(t, l, e)
		}
		counted := &counting{Querier: b.db}
		var got []string
		for e, err := range l.Each(ctx, counted, eventlog.Filter{Limit: 8}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want[:8]) || !slices.Equal(counted.limits, []any{8, 3, 2}) {
			t.Errorf("read %v in pages of at most %v entries", got, counted.limits)
		}
	})
}

// counting notes how many entries each query asks for.
type counting struct {
	eventlog.Querier

	limits []any
}

func (c *counting) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	c.limits = append(c.limits, args[len(args)-1])
	return c.Querier.QueryContext(ctx, query, args...)
}

func TestEachFails(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		b.many(t, l, 600)
		ended, end := context.WithCancel(ctx)
		defer end()
		n := 0
		var failed error
		for _, err := range l.Each(ended, b.db, eventlog.Filter{}) {
			if err != nil {
				failed = err
				continue
			}
			n++
			end()
		}
		if n != 500 || !errors.Is(failed, context.Canceled) {
			t.Errorf("read %d entries and %v; want a page, and that the context has ended", n, failed)
		}
		for _, err := range l.Each(ctx, b.db, eventlog.Filter{Limit: -1}) {
			if err == nil || !strings.Contains(err.Error(), "-1") {
				t.Errorf("a negative limit: %v", err)
			}
		}
	})
}

// Rows that others have written, by what the table's defaults leave to them.
func TestEachReadsRowsByHand(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		b.exec(t, `INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload) VALUES ('T', $1, 'case', $1, '{}')`, aUUID)
		b.exec(t, `INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload, metadata, created_at, retry_count, status)
			VALUES ('T', $1, 'case', $1, '{}', '{"actor": "x", "tenant_id": {"not": "ours"}, "schema_version": 3}', '2020-01-01 10:00:00+00', NULL, NULL)`, eventlog.UUID("2"))
		b.exec(t, `INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload, metadata, created_at)
			VALUES ('T', $1, 'case', $1, '{}', NULL, '2020-01-01 11:00:00+00')`, eventlog.UUID("3"))
		b.exec(t, `INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload, metadata, created_at) VALUES ('T', $1, 'case', $1, '{}', NULL, NULL)`, eventlog.UUID("4"))
		entries := b.entries(t, l, eventlog.Filter{})
		if got := ids(entries); !slices.Equal(got, []string{eventlog.UUID("2"), eventlog.UUID("3"), aUUID}) {
			t.Fatalf("read %v", got)
		}
		if e := entries[0]; e.SchemaVersion != 3 || fmt.Sprint(e.Metadata) != "map[actor:x tenant_id:map[not:ours]]" || e.Status != "" {
			t.Errorf("the first is %+v", e)
		}
		if e := entries[2]; e.SchemaVersion != 1 || e.Status != "pending" || !e.ProcessedAt.IsZero() || time.Since(e.OccurredAt) > time.Hour {
			t.Errorf("the last is %+v", e)
		}
	})
}
