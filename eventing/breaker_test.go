package eventing_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

var errDown = errors.New("downstream is down")

func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var states []eventing.BreakerState
		b := eventing.NewBreaker(eventing.BreakerPolicy{Failures: 2, OpenFor: time.Minute}, nil, func(s eventing.BreakerState) { states = append(states, s) })
		attempt := func(outcomes ...error) {
			t.Helper()
			for _, err := range outcomes {
				leave, enterErr := b.Enter(t.Context())
				if enterErr != nil {
					t.Fatal(enterErr)
				}
				leave(err)
				leave(errDown) // only the first counts
			}
		}
		began := time.Now()
		attempt(errDown, nil, errDown, eventing.Permanent(errDown), errDown, eventing.RetryAfter(time.Second, errDown), eventing.ErrNoAttempt)
		if len(states) > 0 {
			t.Errorf("a success in between, or an event that is at fault, keeps it closed: %v", states)
		}
		attempt(errDown) // the second in a row
		if waited := time.Since(began); waited != 0 {
			t.Errorf("while it is closed nobody waits, not %v", waited)
		}
		attempt(errDown)
		if waited := time.Since(began); waited != time.Minute {
			t.Errorf("while it is open everybody waits: %v", waited)
		}
		attempt(eventing.ErrNoAttempt, nil)
		if waited := time.Since(began); waited != 2*time.Minute {
			t.Errorf("an attempt that fails opens it again: %v", waited)
		}
		attempt(nil, nil, errDown)
		want := []eventing.BreakerState{eventing.BreakerOpen, eventing.BreakerHalfOpen, eventing.BreakerOpen, eventing.BreakerHalfOpen, eventing.BreakerClosed}
		if !slices.Equal(states, want) {
			t.Errorf("it went %v, want %v", states, want)
		}
	})
}

// One attempt decides, however many wait.
func TestBreakerProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := eventing.NewBreaker(eventing.BreakerPolicy{Failures: 1, OpenFor: time.Minute}, nil, nil)
		leave, _ := b.Enter(t.Context())
		leave(errDown)
		entered := make(chan func(error), 10)
		for range 10 {
			go func() {
				leave, err := b.Enter(t.Context())
				if err != nil {
					t.Error(err)
				}
				entered <- leave
			}()
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if len(entered) != 1 {
			t.Fatalf("%d attempts are made at a broken thing, want 1", len(entered))
		}
		(<-entered)(nil)
		synctest.Wait()
		if len(entered) != 9 {
			t.Errorf("the others go on at once: %d of 9", len(entered))
		}
		for range 9 {
			(<-entered)(nil)
		}
		ctx, cancel := context.WithCancel(t.Context())
		leave, _ = b.Enter(ctx)
		leave(errDown)
		cancel()
		if _, err := b.Enter(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("who waits gives up with its context: %v", err)
		}
	})
}

// What a breaker shows is true also when nobody needs it.
func TestBreakerExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var state atomic.Value
		b := eventing.NewBreaker(eventing.BreakerPolicy{Failures: 1, OpenFor: time.Minute}, nil, func(s eventing.BreakerState) { state.Store(s) })
		leave, err := b.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave(errDown)
		<-time.After(time.Minute - 1)
		synctest.Wait()
		if got := state.Load(); got != eventing.BreakerOpen {
			t.Errorf("before its time it is %v", got)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if got := state.Load(); got != eventing.BreakerHalfOpen {
			t.Errorf("after its time it is %v", got)
		}
		if leave = b.TryEnter(); leave == nil {
			t.Fatal("the attempt that decides is not let in")
		}
		if second := b.TryEnter(); second != nil {
			t.Error("two attempts decide")
		}
		leave(nil)
		if got := state.Load(); got != eventing.BreakerClosed {
			t.Errorf("it is %v in the end", got)
		}
	})
}

// While the breaker is open nothing is tried and no attempt burnt, from the broker or
// from the store; then everything is handled.
func TestConsumerBehindABreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		var up atomic.Bool
		var state atomic.Value
		s := start(t, func(s *system, _ *eventing.DispatcherConfig, c *eventing.ConsumerConfig) {
			c.Policy.Concurrency = 1
			c.Policy.Retry = eventing.RetryPolicy{MaxAttempts: 5, Base: time.Second}
			c.Policy.Breaker = eventing.BreakerPolicy{Failures: 3, OpenFor: time.Minute}
			c.Observer = &eventing.Observer{Breaker: func(_ string, s eventing.BreakerState) { state.Store(s) }}
			s.fails = func(eventing.Envelope) error {
				tries.Add(1)
				if up.Load() {
					return nil
				}
				return errDown
			}
		})
		defer s.stop()
		for _, id := range []string{"e1", "e2", "e3", "e4", "e5"} {
			s.append(id)
		}
		<-time.After(50 * time.Second)
		if n := tries.Load(); n != 3 {
			t.Errorf("%d attempts are made before it opens, want 3", n)
		}
		<-time.After(30 * time.Second)
		if n := tries.Load(); n != 4 {
			t.Errorf("%d attempts after it was open once, want one more", n)
		}
		up.Store(true)
		<-time.After(time.Minute)
		var got []string
		for range 5 {
			got = append(got, <-s.handled)
		}
		slices.Sort(got)
		if want := []string{"e1", "e2", "e3", "e4", "e5"}; !slices.Equal(got, want) || tries.Load() != 4+5 {
			t.Errorf("then each is handled with one attempt: %v in %d attempts", got, tries.Load()-4)
		}
		if last := state.Load(); last != eventing.BreakerClosed {
			t.Errorf("the breaker is %v", last)
		}
	})
}

// A breaker that is open holds up no shutdown.
func TestBreakerAndShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *system, _ *eventing.DispatcherConfig, c *eventing.ConsumerConfig) {
			c.Policy.Breaker = eventing.BreakerPolicy{Failures: 1, OpenFor: time.Hour}
			s.fails = func(eventing.Envelope) error { return errDown }
		})
		s.append("e1")
		<-time.After(time.Second)
		s.append("e2")
		<-time.After(time.Second)
		began := time.Now()
		s.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("stopping took %v", took)
		}
		if stats, err := s.store.Stats(context.Background()); err != nil || stats.Outbox["pending"] != 1 {
			t.Errorf("what waits stays in the outbox: %v, %v", stats.Outbox, err)
		}
	})
}
