package eventingtest

import (
	"reflect"
	"testing"

	"github.com/waybill-go/waybill/eventing"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	const a, b, c = eventing.FaultAppended, eventing.FaultClaimed, eventing.FaultSettling
	hits := []Hit{{a, 1}, {b, 1}, {a, 2}, {b, 2}, {c, 1}, {a, 3}, {b, 3}, {a, 4}, {b, 4}, {a, 5}}
	for n, want := range map[int][]Hit{
		0: hits,
		1: {{c, 1}, {b, 3}, {a, 5}},
		2: {{b, 1}, {c, 1}, {a, 3}, {b, 3}, {a, 5}},
		5: hits,
	} {
		if got := spread(hits, n); !reflect.DeepEqual(got, want) {
			t.Errorf("spread(%d) = %v, want %v", n, got, want)
		}
	}
}
