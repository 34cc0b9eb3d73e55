package main

import (
	"context"
	"sync"
)

// fault is what is wrong with something that the system depends on: it returns an error, or
// hangs until ctx ends. key is what it is asked for.
type fault func(ctx context.Context, key string) error

// hang gives no answer.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// switches are where the demonstration and the tests put faults: in "lookup case", "lookup
// citizen", "lookup user", "lookup office", "channel portal", "channel email", "channel sms",
// "channel internal", "watch list" and "audit log".
type switches struct {
	mu     sync.RWMutex
	faults map[string]fault
}

// turn puts a fault somewhere; with nil, it is gone.
func (s *switches) turn(where string, f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults == nil {
		s.faults = map[string]fault{}
	}
	s.faults[where] = f
}

// pass returns what is wrong somewhere; nil: nothing.
func (s *switches) pass(ctx context.Context, where, key string) error {
	s.mu.RLock()
	f := s.faults[where]
	s.mu.RUnlock()
	if f == nil {
		return nil
	}
	return f(ctx, key)
}

// flapping returns a fault that is there for some keys only, for as many calls as a plan says,
// and is gone then.
func flapping(times map[string]int, f fault) fault {
	var mu sync.Mutex
	calls := map[string]int{}
	return func(ctx context.Context, key string) error {
		mu.Lock()
		calls[key]++
		faulty := calls[key] <= times[key]
		mu.Unlock()
		if !faulty {
			return nil
		}
		return f(ctx, key)
	}
}
