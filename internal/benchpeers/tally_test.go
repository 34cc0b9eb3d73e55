package main

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestTally(t *testing.T) {
	t.Parallel()
	xadd := func(err error) redis.Cmder {
		c := redis.NewStringCmd(context.Background(), "xadd", "stream", "*", messageID, "id", "payload", "p")
		c.SetErr(err)
		return c
	}
	full := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	var seen stamps
	c := tally{each: seen.see}
	first := c.expect(3)
	c.confirm(xadd(nil), xadd(errors.New("refused")), redis.NewStatusCmd(context.Background(), "ping"))
	c.confirm(xadd(nil))
	if c.total() != 2 || full(first) {
		t.Fatalf("%d counted of 2, full: %v", c.total(), full(first))
	}
	c.confirm(xadd(nil), xadd(nil)) // across the target
	c.confirm(xadd(nil))
	if c.total() != 5 || !full(first) {
		t.Fatalf("%d counted of 5, full: %v", c.total(), full(first))
	}
	second := c.expect(1)
	if full(second) {
		t.Error("full at once")
	}
	c.confirm(xadd(nil))
	if !full(second) {
		t.Error("not full")
	}
	if _, ok := seen.get("id"); !ok {
		t.Error("the message's ID was not seen")
	}
}
