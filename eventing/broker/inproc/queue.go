package inproc

import (
	"cmp"
	"slices"
)

// maxIdle is how many places an empty queue keeps allocated.
const maxIdle = 1024

// queue is an unbounded first-in first-out list in order of seq.
type queue struct {
	items []*entry
	head  int // of items; those before it are nil
}

func (q *queue) len() int       { return len(q.items) - q.head }
func (q *queue) rest() []*entry { return q.items[q.head:] }

func (q *queue) push(e *entry) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 { // make room instead of growing
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, e)
}

// pop returns the first entry; there must be one.
func (q *queue) pop() *entry {
	e := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > maxIdle { // a burst's memory is not kept
			q.items = nil
		}
	}
	return e
}

// putBack puts entries in their places.
func (q *queue) putBack(entries []*entry) {
	if len(entries) == 0 {
		return
	}
	q.items, q.head = slices.Concat(entries, q.rest()), 0
	slices.SortFunc(q.items, bySeq)
}

// remove takes an entry out, if it is there.
func (q *queue) remove(e *entry) {
	if i, found := slices.BinarySearchFunc(q.rest(), e, bySeq); found {
		q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	}
}

func bySeq(a, b *entry) int { return cmp.Compare(a.seq, b.seq) }
