package router_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
	"github.com/waybill-go/waybill/router"
)

// flaky registers a consumer whose handler fails as often as it is told, and notes
// when it ran.
func flaky(failures int, with error, policy eventing.Policy, ran *[]time.Time) func(p *process) error {
	return func(p *process) error {
		if err := p.router.AddConsumer(router.Consumer{Name: "billing", Policy: policy}); err != nil {
			return err
		}
		return router.HandleTx(p.router, "billing", func(_ context.Context, tx *memstore.Tx, e eventing.Event[orderPlaced]) error {
			effect(tx, e.Payload.Number)
			if *ran = append(*ran, time.Now()); len(*ran) <= failures {
				return with
			}
			return nil
		})
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran []time.Time
		p := launch(t, options{}, flaky(3, errBusy, eventing.Policy{}, &ran))
		defer p.stop()
		p.append(order("7", "e1"))
		synctest.Wait()
		if s := p.stats(); s.Outbox["sent"] != 1 || s.Deliveries["retrying"] != 1 {
			t.Errorf("what will be retried is the consumer's: its outbox row is settled, and it is in trouble: %+v", s)
		}
		after(time.Minute)
		var waits []time.Duration
		for i := range ran[1:] {
			waits = append(waits, ran[i+1].Sub(ran[i]))
		}
		if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}; !slices.Equal(waits, want) {
			t.Errorf("the default policy waits for %v between the attempts, not %v", want, waits)
		}
		p.did("failed attempts have no effect", "7")
		if s := p.stats(); len(s.Deliveries) != 0 || s.Inbox != 1 || len(s.DeadLetters) != 0 {
			t.Errorf("in the end it is in no trouble: %+v", s)
		}
	})
}

func TestRetriesExhausted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran []time.Time
		policy := eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 3}}
		p := launch(t, options{}, flaky(3, errBusy, policy, &ran))
		defer p.stop()
		p.append(order("7", "e1"))
		after(time.Hour)
		p.did("what has failed has no effect")
		d := p.letter()
		if d.Reason != eventing.ReasonRetriesExhausted || d.AttemptCount != 3 || len(d.History) != 3 || d.History[2].ErrorCode != eventing.ReasonHandlerError {
			t.Errorf("the dead letter has all attempts: %+v", d)
		}
		if s := p.stats(); s.Outbox["failed"] != 1 {
			t.Errorf("and the row says so, though it was sent long ago: %+v", s.Outbox)
		}
		if err := eventing.NewDeadLetters(p.Store).Replay(context.Background(), eventing.Target{EventID: "e1", Consumer: "billing"}, "ana", "mended"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.did("a replay runs at once", "7")
		if d := p.letter(); d.Status != eventing.StatusClosed || d.Resolution != eventing.Resolved {
			t.Errorf("and closes the dead letter: %+v", d)
		}
	})
}

func TestSnoozeBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran []time.Time
		policy := eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 2}}
		p := launch(t, options{}, flaky(5, eventing.RetryAfter(time.Hour, errBusy), policy, &ran))
		defer p.stop()
		p.append(order("7", "e1"))
		after(6 * time.Hour)
		p.did("five snoozes later it is handled", "7")
		if took := ran[len(ran)-1].Sub(ran[0]); took != 5*time.Hour {
			t.Errorf("each snooze lasts as long as it says: %v", took)
		}
	})
}

func TestPanicIsAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, func(p *process) error {
			policy := eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 2}}
			if err := p.router.AddConsumer(router.Consumer{Name: "billing", Policy: policy}); err != nil {
				return err
			}
			return router.HandleTx(p.router, "billing", func(context.Context, *memstore.Tx, eventing.Event[orderPlaced]) error { panic("boom") })
		})
		defer p.stop()
		p.append(order("7", "e1"))
		after(time.Minute)
		if d := p.letter(); d.AttemptCount != 2 || d.History[0].ErrorCode != eventing.ReasonPanic {
			t.Errorf("a panic is an attempt that failed: %+v", d)
		}
	})
}

// The user's middleware is part of each attempt, the first outermost.
func TestMiddlewareRunsAtEachAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		note := func(name string) message.HandlerMiddleware {
			return func(h message.HandlerFunc) message.HandlerFunc {
				return func(m *message.Message) ([]*message.Message, error) {
					calls = append(calls, name+" "+m.UUID)
					return h(m)
				}
			}
		}
		var ran []time.Time
		p := launch(t, options{middleware: []message.HandlerMiddleware{note("outer"), middleware.Recover, note("inner")}},
			flaky(1, errBusy, eventing.Policy{}, &ran))
		defer p.stop()
		p.append(order("7", "e1"))
		after(time.Minute)
		if want := []string{"outer e1", "inner e1", "outer e1", "inner e1"}; !slices.Equal(calls, want) {
			t.Errorf("middleware ran as %v, want %v", calls, want)
		}
		p.did("and the handler's effect is there once", "7")
	})
}

func TestOnConclude(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := true
		p := launch(t, options{}, func(p *process) error {
			if err := p.router.AddConsumer(router.Consumer{Name: "billing", OnConclude: func(_ context.Context, tx any, c eventing.Conclusion) error {
				effect(tx.(*memstore.Tx), fmt.Sprintf("%s %q %d", c.Envelope.ID, c.State, c.Attempts))
				return nil
			}}); err != nil {
				return err
			}
			return router.HandleTx(p.router, "billing", func(context.Context, *memstore.Tx, eventing.Event[orderPlaced]) error {
				if fails {
					fails = false
					return errBusy
				}
				return nil
			})
		})
		defer p.stop()
		p.append(order("7", "e1"))
		after(time.Minute)
		p.did("the hook is part of each conclusion", `e1 "retrying" 1`, `e1 "" 2`)
	})
}

// A handler that is running when the process is told to stop is concluded.
func TestStopWaitsForHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := make(chan struct{})
		p := launch(t, options{}, func(p *process) error {
			return router.Handle(p.router, "mail", func(context.Context, eventing.Event[orderPlaced]) error {
				close(running)
				after(5 * time.Second)
				return nil
			})
		})
		p.append(order("7", "e1"))
		p.wait("the handler", running)
		p.stop()
		if s := p.stats(); s.Inbox != 1 || s.Outbox["sent"] != 1 {
			t.Errorf("it is processed, and its row settled: %+v", s)
		}
	})
}

func TestRunFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := launch(t, options{}, registerBilling)
		defer p.stop()
		synctest.Wait()
		if err := p.router.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("a router runs once: %v", err)
		}
		if err := registerBilling(p); err == nil || !strings.Contains(err.Error(), "register before Run") {
			t.Errorf("it takes no handler while it runs: %v", err)
		}
		r, err := router.New(router.Config{Store: p.Store})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "Subscriber") {
			t.Errorf("it cannot run without a subscriber: %v", err)
		}
		if _, err := router.New(router.Config{}); err == nil || !strings.Contains(err.Error(), "Store") {
			t.Errorf("there is no router without a store: %v", err)
		}
	})
}

func TestRunWithoutConsumers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		launch(t, options{}, func(*process) error { return nil }).stop()
	})
}
