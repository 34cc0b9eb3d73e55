package main

import (
	"context"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// tally counts, in the Redis client, the stream entries that the server has
// confirmed. It sees all contestants alike, and wraps no publisher: a wrapper
// would hide what else a publisher can do.
type tally struct {
	// each, if set, is called with the arguments of every confirmed XADD, by one
	// goroutine at a time.
	each func(args []any)

	mu     sync.Mutex
	count  int
	target int
	full   chan struct{} // closed when count has reached target
}

var _ redis.Hook = (*tally)(nil)

// expect returns a channel that is closed once n more entries are confirmed. It
// takes the place of the last one.
func (t *tally) expect(n int) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.target, t.full = t.count+n, make(chan struct{})
	return t.full
}

// total is how many entries have been confirmed since the arena was opened.
func (t *tally) total() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

func (t *tally) confirm(commands ...redis.Cmder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range commands {
		if c.Name() == "xadd" && c.Err() == nil {
			t.count++
			if t.each != nil {
				t.each(c.Args())
			}
		}
	}
	if t.full != nil && t.count >= t.target {
		close(t.full)
		t.full = nil
	}
}

// wait returns the context's error if that ends first.
func wait(ctx context.Context, full <-chan struct{}) error {
	select {
	case <-full:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// DialHook implements [redis.Hook].
func (t *tally) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements [redis.Hook].
func (t *tally) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		t.confirm(cmd)
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (t *tally) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		t.confirm(cmds...)
		return err
	}
}
