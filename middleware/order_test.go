package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
)

// The policy of these tests: three attempts a second apart, of two seconds each, and a
// breaker that opens for ten seconds after two failures.
var (
	orderRetry   = eventing.RetryPolicy{MaxAttempts: 3, Base: time.Second, Multiplier: 1}
	orderTimeout = 2 * time.Second
	orderBreaker = eventing.BreakerPolicy{Failures: 2, OpenFor: 10 * time.Second}
)

// The one right order, the outermost first.
var (
	rightOrder      = []string{"dead letter", "retry", "breaker", "timeout", "recover"}
	rightIdempotent = []string{"dead letter", "idempotency", "retry", "breaker", "timeout", "recover"}
)

// fate is what became of one event.
type fate struct {
	calls    int    // of the handler
	effects  int    // handlers that succeeded
	poisoned string // reason code of its messages in the poison topic
	acked    bool   // its last message, within maxDeliveries
}

const maxDeliveries = 10

// scenario is something that may happen to an event, and what should become of it.
type scenario struct {
	name        string
	handle      func(ctx context.Context, call int, since time.Duration) error
	poisonFails int           // publishes to the poison topic that fail
	stopAfter   time.Duration // the process of the first delivery stops then
	lookupDown  time.Duration // the inbox cannot be read so long
	recordDown  time.Duration // nor written
	again       bool          // once it is acked, its message comes a second time
	want        fate
}

var (
	errRejected = eventing.Permanent(errors.New("no such customer"))
	succeeds    = func(context.Context, int, time.Duration) error { return nil }
)

func hangs(ctx context.Context, _ int, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }

func failsTwice(_ context.Context, call int, _ time.Duration) error {
	if call <= 2 {
		return errBusy
	}
	return nil
}

func rejectsOnce(_ context.Context, call int, _ time.Duration) error {
	if call == 1 {
		return errRejected
	}
	return nil
}

var scenarios = []scenario{
	{name: "success", handle: succeeds, want: fate{calls: 1, effects: 1, acked: true}},
	{name: "a failure that heals within the attempts", handle: failsTwice, want: fate{calls: 3, effects: 1, acked: true}},
	{name: "failures without an end", handle: func(context.Context, int, time.Duration) error { return errBusy },
		want: fate{calls: 3, poisoned: "RETRIES_EXHAUSTED", acked: true}},
	{name: "a permanent failure", handle: func(context.Context, int, time.Duration) error { return errRejected },
		want: fate{calls: 1, poisoned: "REJECTED", acked: true}},
	{name: "panics without an end", handle: func(context.Context, int, time.Duration) error { panic("nil map") },
		want: fate{calls: 3, poisoned: "RETRIES_EXHAUSTED", acked: true}},
	{name: "a handler that hangs", handle: hangs, want: fate{calls: 3, poisoned: "DOWNSTREAM_TIMEOUT_EXHAUSTED", acked: true}},
	{name: "a handler that hangs once", handle: func(ctx context.Context, call int, since time.Duration) error {
		if call == 1 {
			return hangs(ctx, call, since)
		}
		return nil
	}, want: fate{calls: 2, effects: 1, acked: true}},
	{name: "a snooze", handle: func(_ context.Context, call int, _ time.Duration) error {
		if call <= 4 {
			return eventing.RetryAfter(5*time.Second, errBusy)
		}
		return nil
	}, want: fate{calls: 5, effects: 1, acked: true}},
	{name: "the poison topic is down for a while", handle: func(context.Context, int, time.Duration) error { return errRejected }, poisonFails: 2,
		want: fate{calls: 3, poisoned: "REJECTED", acked: true}},
	{name: "a shutdown in the middle of a retry's wait", handle: func(_ context.Context, call int, _ time.Duration) error {
		if call == 1 {
			return errBusy
		}
		return nil
	}, stopAfter: time.Second / 2, want: fate{calls: 2, effects: 1, acked: true}},
	{name: "a shutdown in the middle of the last attempt", handle: func(ctx context.Context, call int, _ time.Duration) error {
		switch {
		case call < 3:
			return errBusy
		case call == 3:
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}, stopAfter: 12 * time.Second, want: fate{calls: 4, effects: 1, acked: true}},
	{name: "what the handler calls is down for longer than the retries", handle: func(_ context.Context, _ int, since time.Duration) error {
		if since < 8*time.Second {
			return errBusy
		}
		return nil
	}, want: fate{calls: 3, effects: 1, acked: true}},
	{name: "the same, and the handler panics of it", handle: func(_ context.Context, _ int, since time.Duration) error {
		if since < 8*time.Second {
			panic("no connection")
		}
		return nil
	}, want: fate{calls: 3, effects: 1, acked: true}},
}

// Those that idempotency is about.
var idempotentScenarios = append([]scenario{
	{name: "a duplicate", handle: succeeds, again: true, want: fate{calls: 1, effects: 1, acked: true}},
	{name: "a dead letter is sent again from the poison topic", handle: rejectsOnce, again: true,
		want: fate{calls: 2, effects: 1, poisoned: "REJECTED", acked: true}},
	{name: "the inbox cannot be read for a while", handle: succeeds, lookupDown: 30 * time.Second, want: fate{calls: 1, effects: 1, acked: true}},
	{name: "the inbox cannot be written for a while", handle: succeeds, recordDown: 5 * time.Second, want: fate{calls: 1, effects: 1, acked: true}},
}, scenarios...)

// world is where one scenario takes place: the handler, the poison topic and the inbox.
type world struct {
	eventing.ConsumerStore
	scenario

	began   time.Time
	seen    fate
	reasons []string
}

func (w *world) since() time.Duration { return time.Since(w.began) }

func (w *world) handler(m *message.Message) ([]*message.Message, error) {
	w.seen.calls++
	err := w.handle(m.Context(), w.seen.calls, w.since())
	if err == nil {
		w.seen.effects++
	}
	return nil, err
}

func (w *world) Publish(_ string, messages ...*message.Message) error {
	if w.poisonFails--; w.poisonFails >= 0 {
		return errors.New("the poison topic is down")
	}
	for _, m := range messages {
		w.reasons = append(w.reasons, m.Metadata.Get(middleware.MetadataReasonCode))
	}
	return nil
}

func (w *world) Close() error { return nil }

var errStoreDown = errors.New("the store is down")

func (w *world) Arrive(ctx context.Context, d eventing.Delivery, l *eventing.Lease, now time.Time) (eventing.Decision, eventing.Run, error) {
	if w.since() < w.lookupDown {
		return "", eventing.Run{}, errStoreDown
	}
	return w.ConsumerStore.Arrive(ctx, d, l, now)
}

func (w *world) Succeed(ctx context.Context, s eventing.Success) error {
	if w.since() < w.recordDown {
		return errStoreDown
	}
	return w.ConsumerStore.Succeed(ctx, s)
}

// part makes one of the parts.
func (w *world) part(t *testing.T, name string) message.HandlerMiddleware {
	quiet := slog.New(slog.DiscardHandler)
	mw, err := map[string]func() (message.HandlerMiddleware, error){
		"recover": func() (message.HandlerMiddleware, error) { return middleware.Recover, nil },
		"timeout": func() (message.HandlerMiddleware, error) { return middleware.Timeout(orderTimeout), nil },
		"breaker": func() (message.HandlerMiddleware, error) { return middleware.CircuitBreaker(orderBreaker) },
		"retry": func() (message.HandlerMiddleware, error) {
			return middleware.Retry(middleware.RetryConfig{Policy: orderRetry, Logger: quiet})
		},
		"dead letter": func() (message.HandlerMiddleware, error) {
			return middleware.DeadLetter(middleware.DeadLetterConfig{Publisher: w, Topic: "poison", Logger: quiet})
		},
		"idempotency": func() (message.HandlerMiddleware, error) {
			return middleware.Idempotency(middleware.IdempotencyConfig{Store: w, Consumer: "billing"})
		},
		"composite": func() (message.HandlerMiddleware, error) {
			return middleware.ConsumeStoreless(middleware.StorelessConfig{
				Name: "billing", Publisher: w, PoisonTopic: "poison", Logger: quiet, ShutdownGrace: 1,
				Policy: eventing.Policy{Timeout: orderTimeout, Retry: orderRetry, Breaker: orderBreaker},
			})
		},
	}[name]()
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

// play has a scenario take place with these parts, the outermost first.
func (s scenario) play(t *testing.T, order ...string) fate {
	w := &world{ConsumerStore: memstore.New(), scenario: s, began: time.Now()}
	chain := func() message.HandlerFunc { // of one process
		h := w.handler
		for _, name := range slices.Backward(order) {
			h = w.part(t, name)(h)
		}
		return h
	}
	w.deliver(t, chain)
	if s.again && w.seen.acked {
		w.deliver(t, chain)
	}
	w.seen.poisoned = strings.Join(w.reasons, ", ")
	return w.seen
}

// deliver is a broker: it delivers the message until it is acked.
func (w *world) deliver(t *testing.T, chain func() message.HandlerFunc) {
	h := chain()
	w.seen.acked = false
	for n := range maxDeliveries {
		ctx, cancel := context.WithCancel(context.Background())
		if w.stopAfter > 0 && n == 0 {
			time.AfterFunc(w.stopAfter, cancel)
		}
		m := envelope(t, "e1")
		m.SetContext(ctx)
		_, err := h(m)
		if w.stopAfter > 0 && n == 0 && ctx.Err() != nil {
			h = chain() // another process
		}
		cancel()
		if w.seen.acked = err == nil; w.seen.acked {
			return
		}
		<-time.After(5 * time.Second)
	}
}

func envelope(t *testing.T, id string) *message.Message {
	t.Helper()
	m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
		Header:  eventing.Header{ID: id, Type: "OrderPlaced", OccurredAt: time.Now(), CorrelationID: "c", SchemaVersion: 1},
		Payload: []byte(`{"number":"7"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// lost says what the event has lost, "" if nothing.
func (s scenario) lost(got fate) string {
	want := s.want
	switch {
	case got == want:
		return ""
	case !got.acked:
		return fmt.Sprintf("the event is stuck: %d deliveries without an end", maxDeliveries)
	case got.effects < want.effects && got.poisoned == want.poisoned:
		return "the event is lost: acked without its effect"
	case got.effects < want.effects:
		return fmt.Sprintf("attempts are burnt: %s after %d of %d", got.poisoned, got.calls, want.calls)
	case got.effects > want.effects:
		return fmt.Sprintf("the effect is there %d times", got.effects)
	case got.calls != want.calls:
		return fmt.Sprintf("attempts are burnt: %d instead of %d", got.calls, want.calls)
	}
	return fmt.Sprintf("the dead letter says %q instead of %q", got.poisoned, want.poisoned)
}

func TestOrderOfTheParts(t *testing.T) {
	t.Parallel()
	checkOrders(t, rightOrder, scenarios)
}

func TestOrderWithIdempotency(t *testing.T) {
	t.Parallel()
	checkOrders(t, rightIdempotent, idempotentScenarios)
}

// checkOrders has all scenarios take place in every order, and says what the wrong ones
// lose. Timeout and recover commute, see TestTimeoutAndRecoverCommute: as neighbours they
// are one part.
func checkOrders(t *testing.T, right []string, scenarios []scenario) {
	for order := range permutations(right) {
		synctest.Test(t, func(t *testing.T) {
			var losses []string
			for _, s := range scenarios {
				if lost := s.lost(s.play(t, order...)); lost != "" {
					losses = append(losses, s.name+": "+lost)
				}
			}
			name := strings.Join(order, " → ")
			switch isRight := slices.Equal(canonical(order), right); {
			case isRight && len(losses) > 0:
				t.Errorf("the right order, %s, loses:\n\t%s", name, strings.Join(losses, "\n\t"))
			case !isRight && len(losses) == 0:
				t.Errorf("%s loses nothing either: what tells it from the right order?", name)
			case !isRight:
				t.Logf("%s\n\t%s", name, strings.Join(losses, "\n\t"))
			}
		})
	}
}

// canonical has timeout before recover where they are neighbours.
func canonical(order []string) []string {
	order = slices.Clone(order)
	if i := slices.Index(order, "recover"); i+1 < len(order) && order[i+1] == "timeout" {
		order[i], order[i+1] = order[i+1], order[i]
	}
	return order
}

func permutations(list []string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		var rest func(done, left []string) bool
		rest = func(done, left []string) bool {
			if len(left) == 0 {
				return yield(slices.Clone(done))
			}
			for i := range left {
				if !rest(append(slices.Clone(done), left[i]), slices.Delete(slices.Clone(left), i, i+1)) {
					return false
				}
			}
			return true
		}
		rest(nil, list)
	}
}

// The composite is that order.
func TestOrderOfTheComposite(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if got := s.play(t, "composite"); got != s.want {
					t.Errorf("%s: %+v, want %+v", s.lost(got), got, s.want)
				}
			})
		})
	}
}
