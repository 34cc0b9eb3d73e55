package memstore

import (
	"cmp"
	"slices"
)

// table is what has been committed. A row is replaced, never changed, so that a
// reader may keep the one it has.
type table[K comparable, V any] struct {
	rows  map[K]*V
	index func(before, after *V) // keeps indexes up to date; may be nil
}

// changes are what one transaction makes of a table.
type changes[K comparable, V any] struct {
	table *table[K, V]
	rows  map[K]*V // nil: removed
}

// get returns the row as the transaction sees it, or nil.
func (c *changes[K, V]) get(k K) *V {
	if v, ok := c.rows[k]; ok {
		return v
	}
	return c.table.rows[k]
}

func (c *changes[K, V]) put(k K, v V) { c.set(k, &v) }

func (c *changes[K, V]) remove(k K) { c.set(k, nil) }

func (c *changes[K, V]) set(k K, v *V) {
	if c.rows == nil {
		c.rows = map[K]*V{}
	}
	c.rows[k] = v
}

// apply commits.
func (c *changes[K, V]) apply() {
	for k, after := range c.rows {
		if c.table.index != nil {
			c.table.index(c.table.rows[k], after)
		}
		if after == nil {
			delete(c.table.rows, k)
		} else {
			c.table.rows[k] = after
		}
	}
}

// queue is an index: row IDs in the order of a number that each row has for life.
type queue []entry

type entry struct {
	n  int64
	id string
}

func (q queue) find(n int64) (int, bool) {
	return slices.BinarySearchFunc(q, n, func(e entry, n int64) int { return cmp.Compare(e.n, n) })
}

func (q *queue) add(n int64, id string) {
	if i, found := q.find(n); !found {
		*q = slices.Insert(*q, i, entry{n, id})
	}
}

// remove moves the shorter side: what leaves a queue is mostly near its front.
func (q *queue) remove(n int64) {
	i, found := q.find(n)
	switch {
	case !found:
	case i < len(*q)/2:
		copy((*q)[1:i+1], (*q)[:i])
		(*q)[0] = entry{}
		*q = (*q)[1:]
	default:
		*q = slices.Delete(*q, i, i+1)
	}
}
