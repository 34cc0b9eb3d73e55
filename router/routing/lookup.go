package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// LookupFunc finds a piece of context by its key: a value that encodes to the JSON of the lookup's schema. It
// must depend on the key only, by which it is kept, heed ctx, which ends with the lookup's timeout, and be safe for concurrent use. It runs before the consumer's
// transaction begins. That there is nothing under the key is an error, too.
type LookupFunc func(ctx context.Context, key string) (any, error)

// The defaults of lookups.
const (
	DefaultLookupTimeout = time.Second
	DefaultCacheEntries  = 10_000
)

// source is where an evaluation gets the values of a lookup.
type source interface {
	find(ctx context.Context, l *lookup, key string) (value any, err error)
}

// functions are a running router's lookups, with what they have found.
type functions struct {
	now    func() time.Time
	logger *slog.Logger
	funcs  map[string]LookupFunc
	caches map[*lookup]*cache
}

func newFunctions(t *Table, funcs map[string]LookupFunc, now func() time.Time, logger *slog.Logger) *functions {
	f := &functions{now: now, logger: logger, funcs: funcs, caches: map[*lookup]*cache{}}
	for _, l := range t.lookups {
		if !l.src.Cache.IsZero() {
			f.caches[l] = newCache(l.src)
		}
	}
	return f
}

func (f *functions) find(ctx context.Context, l *lookup, key string) (value any, err error) {
	c := f.caches[l]
	if value, ok := c.get(key, f.now()); ok {
		return value, nil
	}
	timeout := DefaultLookupTimeout
	if !l.src.Timeout.IsZero() {
		timeout = l.src.Timeout.Duration()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	var raw any
	err = safely(func() (err error) { // a panic is a failure like others
		raw, err = f.funcs[l.src.Text](ctx, key)
		return err
	})
	if panicked := (*eventing.PanicError)(nil); errors.As(err, &panicked) {
		f.logger.Error("routing: a lookup panicked", "lookup", l.src.Text, "panic", panicked.Value, "stack", string(panicked.Stack))
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.DeadlineExceeded)) {
		err = context.Cause(ctx) // an answer that comes too late is none
	}
	if err != nil {
		return nil, err
	}
	if value, err = l.normalise(raw); err != nil {
		return nil, err
	}
	c.put(key, value, f.now())
	return value, nil
}

// normalise makes of a Go value what conditions see.
func (l *lookup) normalise(raw any) (any, error) {
	var value any
	var err error
	if l.schema != nil {
		value, err = l.schema.Normalise(raw)
	} else {
		var text []byte
		if text, err = json.Marshal(raw); err == nil {
			value, err = condition.DecodeAny(text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the result: %w", err)
	}
	return value, nil
}

func (l *lookup) decode(text []byte) (any, error) {
	if l.schema == nil {
		return condition.DecodeAny(text)
	}
	return l.schema.Decode(text)
}

// cache keeps what was found for a while. A nil one keeps nothing.
type cache struct {
	keep time.Duration
	most int

	mu      sync.RWMutex
	entries map[string]cached
}

type cached struct {
	value any
	until time.Time
}

func newCache(src *routefile.Lookup) *cache {
	c := &cache{keep: src.Cache.Duration(), most: src.CacheEntries, entries: map[string]cached{}}
	if c.most == 0 {
		c.most = DefaultCacheEntries
	}
	return c
}

func (c *cache) get(key string, now time.Time) (any, bool) {
	if c == nil {
		return nil, false
	}
	c.mu.RLock()
	e, ok := c.entries[key]
	c.mu.RUnlock()
	return e.value, ok && now.Before(e.until)
}

// put makes room by what has expired or, if nothing has, by whatever comes first: which is any, as maps go.
func (c *cache) put(key string, value any, now time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.entries[key]; !known && len(c.entries) >= c.most {
		looked := 0
		for k, e := range c.entries {
			if looked++; !now.Before(e.until) || looked == evictionLook {
				delete(c.entries, k)
				break
			}
		}
	}
	c.entries[key] = cached{value, now.Add(c.keep)}
}

// evictionLook is how many entries are looked at for one that has expired.
const evictionLook = 8

// policy is what to do if the lookup fails.
func (l *lookup) policy() routefile.OnError {
	if l.src.OnError == routefile.Undeclared {
		return routefile.Retry
	}
	return l.src.OnError
}

// lookupError is the failure of a lookup whose policy is to retry.
type lookupError struct {
	name string
	err  error
}

func (e *lookupError) Error() string { return fmt.Sprintf("lookup %s: %v", e.name, e.err) }
func (e *lookupError) Unwrap() error { return e.err }

// errNoKey: no attempt finds one.
var errNoKey = errors.New("the event has no key for it")

func noKey(name string) error {
	return eventing.PermanentWithReason(ReasonRuleFailed, &lookupError{name, errNoKey})
}
