package pgstore_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// trips counts round trips, as far as pgx begins one for each query and each batch. A notification by itself is no part of a
// transaction.
type trips struct{ n atomic.Int32 }

func (c *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(data.SQL, "pg_notify") {
		c.n.Add(1)
	}
	return ctx
}

func (c *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (c *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// What an event costs: its arrival; each of the handler's statements, with the first of which the transaction begins; the conclusion, with
// the commit, or without if something follows it.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	d := take(t)
	counted := &trips{}
	w := work[pgx.Tx]{T: t, plain: d.pool}
	w.db.Store, w.db.InsertIn = pgstore.New(otherPool(t, d, func(c *pgxpool.Config) { c.ConnConfig.Tracer = counted })), insertEffect
	w.lease("consumer/billing")
	for i, c := range []struct {
		key     string
		effects int
		hook    bool
		want    int32
	}{{"", 1, false, 3}, {"k", 1, false, 3}, {"k", 2, false, 4}, {"k", 0, false, 2}, {"k", 1, true, 4}} {
		got := int32(math.MaxInt32)
		for try := range 5 { // the first time, statements are prepared; and a pause of the machine makes one more
			counted.n.Store(0)
			id := fmt.Sprint(i, "/", try)
			run := w.arrive(delivery("billing", id, c.key))
			s := eventing.Success{Run: run, Now: noon, InboxUntil: later, Effect: func(ctx context.Context, tx any) error {
				for range c.effects {
					w.must(w.db.Effect(ctx, tx.(pgx.Tx), "billing", id))
				}
				return nil
			}}
			if c.hook {
				s.Finish = func(context.Context, any) error { return nil }
			}
			w.must(w.db.Succeed(t.Context(), s))
			got = min(got, counted.n.Load())
		}
		if got != c.want {
			t.Errorf("key %q, %d statements of the handler, hook %t: %d round trips, want %d", c.key, c.effects, c.hook, got, c.want)
		}
	}
}
