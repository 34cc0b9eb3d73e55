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

func TestQueueTakesBackInOrder(t *testing.T) {
	t.Parallel()
	var q queue
	for seq := range uint64(10) {
		q.push(&entry{seq: seq})
	}
	var out []*entry
	for range 5 {
		out = append(out, q.pop())
	}
	q.putBack([]*entry{out[4], out[1]})
	q.putBack([]*entry{out[2], out[0]})
	q.remove(out[1])
	q.remove(out[3]) // not there
	for _, want := range []uint64{0, 2, 4, 5, 6, 7, 8, 9} {
		if e := q.pop(); e.seq != want {
			t.Fatalf("popped %d, want %d", e.seq, want)
		}
	}
	if q.len() > 0 {
		t.Errorf("%d are left", q.len())
	}
}
