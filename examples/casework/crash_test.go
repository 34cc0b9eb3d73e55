package main

import (
	"slices"
	"testing"

	"github.com/waybill-go/waybill/internal/testkit"
)

// Two processes work on a database, of which one after the other is killed at random moments, while people act, and events are sent
// twice. In the end each case has made its transitions once, and in order; those that somebody could not decide on any more have frozen their
// cases, and no others.
func TestCrashWorkflow(t *testing.T) {
	t.Parallel()
	kills := 8
	switch {
	case testkit.Long():
		kills = 200
	case testing.Short():
		kills = 3
	}
	onEachStore(t, func(t *testing.T, address string) {
		s := newStorm(t, address, healthy)
		s.rage(kills)
		w := startOn(t, s.world.db)
		w.settle()

		o := newOperator(w.system, w.clock)
		frozen, err := o.frozen(t.Context())
		if err != nil || len(frozen) != s.doubts {
			t.Errorf("%d cases are frozen, %v, want %d", len(frozen), err, s.doubts)
		}
		for _, d := range frozen {
			if did, err := o.release(t.Context(), d); err != nil || did != discarded {
				t.Errorf("a frozen case was %s, %v, want %s", did, err, discarded)
			}
		}
		w.settle()
		w.clean()
		const want = "intake validation eligibility_check rejected under_review approved payment_pending payment_processed closed"
		for _, l := range s.cases {
			if got := w.path(l); got != want {
				t.Errorf("case %s went by way of\n%s, want\n%s", l.reference, got, want)
			}
		}
		s.proves()
	})
}

// proves checks that the kills and the repetitions have hit something.
func (s *storm) proves() {
	s.Helper()
	periods := len(slices.Compact(slices.Clone(s.working)))
	s.Logf("%d kills, after %d of which there were more transitions; %d cases, %d acts, %d frozen cases, %d events sent again",
		len(s.working), periods, len(s.cases), s.acts, s.doubts, s.repeated)
	if periods < len(s.working)/2 || s.repeated == 0 || s.doubts == 0 && !s.certain {
		s.Error("not much was killed at work, decided twice or sent again: this proves nothing")
	}
}

// The same test finds it if the workflow engine's effect is not in the transaction of its inbox row; and finds nothing in a process
// that is merely as slow.
func TestCrashTestFindsFaults(t *testing.T) {
	t.Parallel()
	const kills = 4
	for _, program := range []string{slow, outside} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			onEachStore(t, func(t *testing.T, address string) {
				s := newStorm(t, address, program)
				s.certain = true
				s.rage(kills)
				w := startOn(t, s.world.db)
				w.settle()
				f := w.found()
				t.Logf("%d cases: %v", len(s.cases), f.err())
				switch {
				case program == outside && len(f[inTrouble])+len(f[doubled]) == 0:
					t.Error("nothing was done twice")
				case program == slow:
					w.clean()
					s.proves()
				}
			})
		})
	}
}
