package memstore

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// TestQueueIsSorted compares the index with the plainest thing that could do its
// work, over rows that come and go in any order.
func TestQueueIsSorted(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var q queue
	model := map[int64]bool{}
	for range 2000 {
		n := random.Int64N(60)
		if random.IntN(2) == 0 {
			q.add(n, strconv.FormatInt(n, 10))
			model[n] = true
		} else {
			q.remove(n)
			delete(model, n)
		}
		var want, got []int64
		for n := range model {
			want = append(want, n)
		}
		slices.Sort(want)
		for _, e := range q {
			got = append(got, e.n)
			if e.id != strconv.FormatInt(e.n, 10) {
				t.Fatalf("entry %d has the ID %s", e.n, e.id)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}
