package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/httpapi"
	"github.com/waybill-go/waybill/service/internal/intake"
)

// stub is a store in memory. It keeps to its contract, and checks that the intake does.
type stub struct {
	// before, if set, is called with each group; its error is Receive's.
	before func(ctx context.Context, keys []string) error

	mu     sync.Mutex
	known  map[string]intake.Receipt
	groups [][]string
	faults []string
}

func (s *stub) Receive(ctx context.Context, entries []*intake.Entry) ([]intake.Receipt, error) {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Event.IdempotencyKey
	}
	s.mu.Lock()
	s.groups = append(s.groups, keys)
	if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		s.faults = append(s.faults, fmt.Sprintf("keys are not sorted and distinct: %q", keys))
	}
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(ctx, keys); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]intake.Receipt{}
	}
	receipts := make([]intake.Receipt, len(entries))
	for i, e := range entries {
		if _, ok := s.known[keys[i]]; !ok {
			s.known[keys[i]] = intake.Receipt{TraceID: e.Event.TraceID, BodyHash: e.BodyHash}
		}
		receipts[i] = s.known[keys[i]]
	}
	return receipts, nil
}

func event(key string) courier.Event {
	return courier.Event{
		EventID: key, EventType: "parcel.scan", Source: "courier-x", IdempotencyKey: key, TraceID: "trace of " + key,
		Payload: json.RawMessage(`{"shipmentId":"shp_1"}`),
	}
}

// payload is that of every event.
var payload = courier.Payload{ShipmentID: "shp_1"}

// answered is what became of a request.
type answered struct {
	trace string
	err   error
}

// accept has an event accepted, and returns where the answer comes.
func accept(ctx context.Context, in *intake.Intake, e courier.Event, hash string) <-chan answered {
	c := make(chan answered, 1)
	go func() {
		trace, err := in.Accept(ctx, e, payload, hash)
		c <- answered{trace, err}
	}()
	return c
}

// held is an intake whose store holds its first group, of one event, until it is let go.
func held(t *testing.T, s *stub, cfg intake.Config) (in *intake.Intake, first <-chan answered, letGo func()) {
	t.Helper()
	gate, next := make(chan struct{}), s.before
	var once sync.Once
	s.before = func(ctx context.Context, keys []string) error {
		once.Do(func() { <-gate })
		if next == nil {
			return nil
		}
		return next(ctx, keys)
	}
	cfg.Store = s
	in = intake.New(cfg)
	first = accept(t.Context(), in, event("first"), "hash")
	synctest.Wait()
	return in, first, func() { close(gate) }
}

func shut(t *testing.T, in *intake.Intake, s *stub) {
	t.Helper()
	if err := in.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, fault := range s.faults {
		t.Error(fault)
	}
}

// What comes while a transaction is under way goes together in the next one, repeats and
// conflicts included; and is answered when that is done, not before.
func TestGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		in, first, letGo := held(t, s, intake.Config{})
		var waiting []<-chan answered
		for i := range 5 {
			waiting = append(waiting, accept(t.Context(), in, event(fmt.Sprint("key ", 4-i)), "hash"))
		}
		synctest.Wait()
		repeat := event("key 2")
		repeat.TraceID = "another trace"
		same, other := accept(t.Context(), in, repeat, "hash"), accept(t.Context(), in, repeat, "another hash")
		synctest.Wait()
		select {
		case a := <-first:
			t.Fatalf("answered before the commit: %+v", a)
		default:
		}
		letGo()
		if a := <-first; a.err != nil || a.trace != "trace of first" {
			t.Errorf("the first: %+v", a)
		}
		for i, c := range waiting {
			if a := <-c; a.err != nil || a.trace != fmt.Sprint("trace of key ", 4-i) {
				t.Errorf("%d: %+v", i, a)
			}
		}
		if a := <-same; a.err != nil || a.trace != "trace of key 2" {
			t.Errorf("a repeat: %+v, want the first one's trace id", a)
		}
		if a := <-other; !errors.Is(a.err, httpapi.ErrConflict) {
			t.Errorf("another body: %+v, want a conflict", a)
		}
		shut(t, in, s)
		if len(s.groups) != 2 || len(s.groups[0]) != 1 || len(s.groups[1]) != 5 {
			t.Errorf("groups %q, want the first alone and five keys together", s.groups)
		}
	})
}

// An event that the store cannot hold fails alone, and so does one that makes it panic.
func TestPoisonedEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{before: func(_ context.Context, keys []string) error {
			if slices.Contains(keys, "key 7") {
				return errors.New("invalid byte sequence")
			}
			if slices.Contains(keys, "key 8") {
				panic("a store that cannot hold key 8")
			}
			return nil
		}}
		in, first, letGo := held(t, s, intake.Config{})
		waiting := map[string]<-chan answered{}
		for i := range 20 {
			key := fmt.Sprint("key ", i)
			waiting[key] = accept(t.Context(), in, event(key), "hash")
		}
		synctest.Wait()
		letGo()
		<-first
		for key, c := range waiting {
			a := <-c
			if bad := key == "key 7" || key == "key 8"; bad != (a.err != nil) {
				t.Errorf("%s: %+v", key, a)
			}
		}
		shut(t, in, s)
		if len(s.groups) > 1+1+4*5 { // two paths down a tree of 20
			t.Errorf("%d transactions for two bad events of 20", len(s.groups))
		}
	})
}

// An error of the moment is everybody's, and is not tried again.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{before: func(context.Context, []string) error { return fmt.Errorf("down: %w", intake.ErrUnavailable) }}
		in, first, letGo := held(t, s, intake.Config{})
		a, b := accept(t.Context(), in, event("a"), "hash"), accept(t.Context(), in, event("b"), "hash")
		synctest.Wait()
		letGo()
		for _, c := range []<-chan answered{first, a, b} {
			if got := <-c; !errors.Is(got.err, intake.ErrUnavailable) {
				t.Errorf("got %+v", got)
			}
		}
		shut(t, in, s)
		if len(s.groups) != 2 {
			t.Errorf("%d transactions, want 2", len(s.groups))
		}
	})
}

// A store that hangs is given up in time, by who waits for it and by who waits in the queue.
// One that ends no transaction when it should holds up nobody longer than he wants to wait.
func TestStoreThatHangs(t *testing.T) {
	t.Parallel()
	for name, obedient := range map[string]bool{"until its context ends": true, "for ever": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				never := make(chan struct{})
				s := &stub{before: func(ctx context.Context, _ []string) error {
					if obedient {
						<-ctx.Done()
						return ctx.Err()
					}
					<-never
					return nil
				}}
				in := intake.New(intake.Config{Store: s, Timeout: 10 * time.Second, MaxWait: 12 * time.Second})
				began := time.Now()
				first := accept(t.Context(), in, event("first"), "hash")
				synctest.Wait()
				second := accept(t.Context(), in, event("second"), "hash")
				for _, c := range []<-chan answered{first, second} {
					if a := <-c; a.err == nil {
						t.Error("accepted")
					}
				}
				if took := time.Since(began); took > 12*time.Second {
					t.Errorf("answered after %v", took)
				}
				close(never)
				shut(t, in, s)
			})
		})
	}
}

// A client that goes away takes nobody's transaction with it.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{before: func(ctx context.Context, _ []string) error { return ctx.Err() }}
		in, first, letGo := held(t, s, intake.Config{})
		ctx, leave := context.WithCancel(t.Context())
		gone, waits := accept(ctx, in, event("gone"), "hash"), accept(t.Context(), in, event("waits"), "hash")
		synctest.Wait()
		leave()
		if a := <-gone; !errors.Is(a.err, context.Canceled) {
			t.Errorf("who went away got %+v", a)
		}
		letGo()
		if a := <-first; a.err != nil {
			t.Errorf("the first: %+v", a)
		}
		if a := <-waits; a.err != nil {
			t.Errorf("who waited: %+v", a)
		}
		shut(t, in, s)
		if !slices.Equal(s.groups[1], []string{"waits"}) {
			t.Errorf("stored %q, want only what somebody waits for", s.groups[1])
		}
	})
}

// What is too much for the queue is refused at once; a group has its bounds.
func TestBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, cfg := range map[string]intake.Config{
			"by number": {MaxWaiting: 6, MaxGroup: 2},
			"by size":   {MaxWaitingBytes: 9_000, MaxGroupBytes: 3_300},
		} {
			s := &stub{}
			in, first, letGo := held(t, s, cfg)
			large := func(i int) courier.Event {
				e := event(fmt.Sprint("key ", i))
				e.Payload = json.RawMessage(`{"shipmentId":"shp_1","text":"` + strings.Repeat("x", 800-len(e.EventID)*5) + `"}`)
				return e
			}
			var waiting []<-chan answered
			for i := range 6 {
				waiting = append(waiting, accept(t.Context(), in, large(i), "hash"))
				synctest.Wait()
			}
			if _, err := in.Accept(t.Context(), large(7), payload, "hash"); !errors.Is(err, httpapi.ErrBusy) {
				t.Errorf("%s: one too many: %v, want that the intake is busy", name, err)
			}
			letGo()
			for _, c := range append(waiting, first) {
				if a := <-c; a.err != nil {
					t.Errorf("%s: %+v", name, a)
				}
			}
			if _, err := in.Accept(t.Context(), large(8), payload, "hash"); err != nil {
				t.Errorf("%s: when the queue is empty again: %v", name, err)
			}
			shut(t, in, s)
			for _, keys := range s.groups {
				if len(keys) > 2 {
					t.Errorf("%s: a group of %d", name, len(keys))
				}
			}
		}
	})
}

// Close waits until all are answered, and refuses who comes later. When its time is over, it
// cancels what is under way.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		in, first, letGo := held(t, s, intake.Config{})
		second := accept(t.Context(), in, event("second"), "hash")
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- in.Close(t.Context()) }()
		synctest.Wait()
		if _, err := in.Accept(t.Context(), event("late"), payload, "hash"); err == nil {
			t.Error("accepted after Close")
		}
		select {
		case err := <-closed:
			t.Errorf("closed while a request waits: %v", err)
		default:
		}
		letGo()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for _, c := range []<-chan answered{first, second} {
			if a := <-c; a.err != nil {
				t.Errorf("%+v", a)
			}
		}

		s = &stub{before: func(ctx context.Context, _ []string) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		in = intake.New(intake.Config{Store: s, Timeout: time.Hour})
		hung := accept(t.Context(), in, event("hung"), "hash")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := in.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if a := <-hung; a.err == nil {
			t.Error("accepted")
		}
	})
}
