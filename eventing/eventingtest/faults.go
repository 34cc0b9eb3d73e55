package eventingtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/waybill-go/waybill/eventing"
)

// ErrCrash is the error of an injected crash.
var ErrCrash = errors.New("injected crash")

// Hit is one passing of a fault point: the nth, from 1.
type Hit struct {
	Point eventing.FaultPoint
	Nth   int
}

func (h Hit) String() string { return fmt.Sprintf("%s, no. %d", h.Point, h.Nth) }

// Faults ends a process at a fault point, and keeps it dead until [Faults.Restart].
// It is safe for concurrent use.
type Faults struct {
	mu    sync.Mutex
	hits  []Hit
	count map[eventing.FaultPoint]int
	armed Hit
	fired bool
	dead  bool
}

// NewFaults returns faults that only record what is passed.
func NewFaults() *Faults { return &Faults{count: map[eventing.FaultPoint]int{}} }

// FailAt has the process crash when it passes the point for the nth time, counted
// from 1 and from the beginning.
func (f *Faults) FailAt(p eventing.FaultPoint, nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.fired = Hit{p, nth}, false
}

// FailNext has the process crash when it passes the point for the next time.
func (f *Faults) FailNext(p eventing.FaultPoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.fired = Hit{p, f.count[p] + 1}, false
}

// Context returns a context in which the faults happen.
func (f *Faults) Context(ctx context.Context) context.Context {
	return eventing.WithFaults(ctx, f.pass)
}

// Dead reports whether the process has crashed: until Restart, it gets past no
// fault point.
func (f *Faults) Dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// DiedAt returns the fault point that was armed, which is where the process died if it has.
func (f *Faults) DiedAt() eventing.FaultPoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.armed.Point
}

// Fired reports whether the armed crash has happened.
func (f *Faults) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// Restart ends the death.
func (f *Faults) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = false
}

// Hits returns what has been passed, in order.
func (f *Faults) Hits() []Hit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.hits)
}

func (f *Faults) pass(p eventing.FaultPoint) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return ErrCrash
	}
	f.count[p]++
	hit := Hit{p, f.count[p]}
	f.hits = append(f.hits, hit)
	if hit == f.armed && !f.fired {
		f.fired, f.dead = true, true
		return ErrCrash
	}
	return nil
}

// CrashEverywhere runs a scenario once as it is, to see which fault points it
// passes, and then once for each time that it passed one, with a crash there; with
// -short, only the first two times of each. The scenario has to restart what
// crashed, carry on, and check at its end that nothing was lost or done twice.
// That the points in must are passed is checked: a store that forgets to ask
// [eventing.Fault] would not be tested there.
func CrashEverywhere(t *testing.T, must []eventing.FaultPoint, scenario func(t *testing.T, f *Faults)) {
	t.Helper()
	crashEverywhere(t, must, 0, scenario)
}

// crashEverywhere crashes perPoint times at most at each fault point in must, and at FaultCompleting; 0: each time
// that any is passed.
func crashEverywhere(t *testing.T, must []eventing.FaultPoint, perPoint int, scenario func(t *testing.T, f *Faults)) {
	t.Helper()
	recorded, skipped := NewFaults(), false
	if ok := t.Run("no crash", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		scenario(t, recorded)
	}); !ok || skipped {
		return
	}
	hits := recorded.Hits()
	for _, p := range must {
		if !slices.ContainsFunc(hits, func(h Hit) bool { return h.Point == p }) {
			t.Errorf("fault point %q was not passed: eventing.Fault has to be asked there", p)
		}
	}
	for _, hit := range spread(hits, perPoint) {
		if perPoint > 0 && hit.Point != eventing.FaultCompleting && !slices.Contains(must, hit.Point) {
			continue
		}
		if testing.Short() && hit.Nth > 2 {
			continue
		}
		t.Run(hit.String(), func(t *testing.T) {
			t.Parallel()
			f := NewFaults()
			f.FailAt(hit.Point, hit.Nth)
			scenario(t, f)
			if !f.Fired() && !t.Failed() {
				t.Errorf("the scenario did not get to %q: it is not deterministic", hit)
			}
		})
	}
}

// spread returns n hits of each fault point, or all if there are no more or n is 0: evenly spread, and
// of each point others, so that the process dies early at the one and late at the other. It
// is always the same choice.
func spread(hits []Hit, n int) []Hit {
	if n <= 0 {
		return hits
	}
	times := map[eventing.FaultPoint]int{}
	for _, h := range hits {
		times[h.Point]++
	}
	rank := map[eventing.FaultPoint]int{} // by their first passing
	var chosen []Hit
	for _, h := range hits {
		if _, known := rank[h.Point]; !known {
			rank[h.Point] = len(rank)
		}
		all := times[h.Point]
		// The hits from 0 are cut into n parts of the same length, of each of which one is chosen.
		from := (h.Nth - 1 + rank[h.Point]) % all
		if all <= n || from*n/all != (from+1)*n/all {
			chosen = append(chosen, h)
		}
	}
	return chosen
}
