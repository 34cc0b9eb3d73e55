package inproc

import (
	"math/rand/v2"
	"testing"
)

func TestQueueKeepsOrderAndNoGarbage(t *testing.T) {
	t.Parallel()
	var q queue
	var pushed, popped uint64
	longest := 0
	for range 100_000 {
		if q.len() == 0 || q.len() < 50 && rand.IntN(2) == 0 {
			pushed++
			q.push(&entry{seq: pushed})
		} else {
			popped++
			if e := q.pop(); e.seq != popped {
				t.Fatalf("popped %d, want %d", e.seq, popped)
			}
		}
		longest = max(longest, cap(q.items))
	}
	if longest > 1000 {
		t.Errorf("grew to %d places for 50 entries at most", longest)
	}
	for i, e := range q.items[:cap(q.items)] {
		if live := i >= q.head && i < len(q.items); live != (e != nil) {
			t.Fatalf("place %d of %d to %d holds %v", i, q.head, len(q.items), e)
		}
	}
}

func TestQueueGivesUpABurst(t *testing.T) {
	t.Parallel()
	var q queue
	for i := range 2 * maxIdle {
		q.push(&entry{seq: uint64(i)})
	}
	for q.len() > 0 {
		q.pop()
	}
	if cap(q.items) > maxIdle {
		t.Errorf("an empty queue keeps %d places", cap(q.items))
	}
}
