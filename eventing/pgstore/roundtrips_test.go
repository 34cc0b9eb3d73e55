package pgstore_test

import (
	"context"
	"fmt"
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

// What an event costs: its arrival; the handler's statement, with which the transaction begins; the conclusion; the commit.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	d := take(t)
	counted := &trips{}
	w := work[pgx.Tx]{T: t, plain: d.pool}
	w.db.Store, w.db.InsertIn = pgstore.New(otherPool(t, d, func(c *pgxpool.Config) { c.ConnConfig.Tracer = counted })), insertEffect
	w.lease("consumer/billing")
	for _, c := range []struct {
		key     string
		effects int
	}{{"", 1}, {"k", 1}, {"k", 2}} {
		run := w.arrive(delivery("billing", fmt.Sprint("warm", c), c.key))
		w.must(w.db.Succeed(t.Context(), eventing.Success{Run: run, Now: noon, InboxUntil: later, Effect: effects(w, c.effects)}))
		counted.n.Store(0)
		run = w.arrive(delivery("billing", fmt.Sprint("counted", c), c.key))
		w.must(w.db.Succeed(t.Context(), eventing.Success{Run: run, Now: noon, InboxUntil: later, Effect: effects(w, c.effects)}))
		if got, want := counted.n.Load(), int32(3+c.effects); got != want {
			t.Errorf("key %q, %d statements of the handler: %d round trips, want %d", c.key, c.effects, got, want)
		}
	}
}

func effects(w work[pgx.Tx], n int) func(context.Context, any) error {
	return func(ctx context.Context, tx any) error {
		for range n {
			if err := w.db.Effect(ctx, tx.(pgx.Tx), "billing", "e"); err != nil {
				return err
			}
		}
		return nil
	}
}
