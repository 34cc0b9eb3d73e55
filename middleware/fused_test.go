package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
)

// What Consume fuses (idempotency, retry, dead letter), no order of separate parts
// does: these tests run both through the same crashes.

// dying is a store whose process dies just before the first commit of a success.
type dying struct {
	*memstore.Store
	die context.CancelFunc
}

var errDied = errors.New("the process died")

func (d *dying) Succeed(ctx context.Context, s eventing.Success) error {
	if d.die != nil {
		d.die()
		d.die = nil
		s.Finish = func(context.Context, any) error { return errDied }
	}
	return d.Store.Succeed(ctx, s)
}

// billing is a handler whose effect is a row of the store: in its transaction, if there is one.
func billing(store *memstore.Store) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		if tx, ok := eventing.TxFromContext[*memstore.Tx](m.Context()); ok {
			tx.Append("effects", m.UUID)
			return nil, nil
		}
		return nil, store.InTx(m.Context(), func(tx *memstore.Tx) error {
			tx.Append("effects", m.UUID)
			return nil
		})
	}
}

func TestCrashBetweenEffectAndInbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		middleware func(t *testing.T, store eventing.ConsumerStore) message.HandlerMiddleware
		effects    int
	}{
		"Consume":            {consumeMiddleware, 1},
		"the separate parts": {separateParts, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, die := context.WithCancel(context.Background())
				store := &dying{memstore.New(), die}
				for range 3 { // the first is not acked; the third is a duplicate
					m := envelope(t, "e1")
					m.SetContext(ctx)
					if _, err := c.middleware(t, store)(billing(store.Store))(m); (err != nil) != (ctx.Err() != nil) {
						t.Fatalf("the delivery ends with %v", err)
					}
					ctx = context.Background()
				}
				if got := store.List("effects"); len(got) != c.effects {
					t.Errorf("the effects are %v, want %d", got, c.effects)
				}
			})
		})
	}
}

func consumeMiddleware(t *testing.T, store eventing.ConsumerStore) message.HandlerMiddleware {
	return consumption(t, store).Middleware
}

func consumption(t *testing.T, store eventing.ConsumerStore) *middleware.Consumption {
	c, err := middleware.Consume(eventing.ConsumerConfig{
		Name: "billing", Transactional: true, Policy: eventing.Policy{Retry: orderRetry}, Logger: slog.New(slog.DiscardHandler),
	}, store)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func separateParts(t *testing.T, store eventing.ConsumerStore) message.HandlerMiddleware {
	w := &world{ConsumerStore: store, began: time.Now()}
	return func(h message.HandlerFunc) message.HandlerFunc {
		for i := len(rightIdempotent) - 1; i >= 0; i-- {
			h = w.part(t, rightIdempotent[i])(h)
		}
		return h
	}
}

// A process that dies again and again forgets the attempts that it keeps in memory, so
// a poisonous event never ends; one that keeps them in the store counts them all.
func TestAttemptsThroughCrashes(t *testing.T) {
	t.Parallel()
	const crashes = 8
	life := 1500 * time.Millisecond // long enough for one more attempt, not for all
	attempts := 0
	fails := func(*message.Message) ([]*message.Message, error) {
		attempts++
		return nil, errBusy
	}
	synctest.Test(t, func(t *testing.T) {
		for range crashes {
			ctx, die := context.WithTimeout(context.Background(), life)
			m := envelope(t, "e1")
			m.SetContext(ctx)
			if _, err := separateParts(t, memstore.New())(fails)(m); err == nil {
				t.Fatal("what was not concluded must not be acked")
			}
			die()
		}
		if attempts != 2*crashes {
			t.Errorf("the separate parts made %d attempts, of 3 that the policy allows", attempts)
		}
	})
	attempts = 0
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		for range crashes {
			ctx, die := context.WithTimeout(context.Background(), life)
			c := consumption(t, store)
			m := envelope(t, "e1")
			m.SetContext(ctx)
			if _, err := c.Middleware(fails)(m); err != nil {
				t.Fatal(err)
			}
			if err := c.Run(ctx); err != nil {
				t.Fatal(err)
			}
			die()
		}
		letters, err := eventing.NewDeadLetters(store).List(t.Context(), eventing.DeadLetterFilter{})
		if err != nil || attempts != 3 || len(letters) != 1 || letters[0].AttemptCount != 3 {
			t.Errorf("Consume made %d attempts and has the dead letters %+v: %v", attempts, letters, err)
		}
	})
}
