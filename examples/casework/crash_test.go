package main

import (
	"path/filepath"
	"testing"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// Two processes work on a database, of which one after the other is killed at random moments, while people act, and events are sent
// twice. In the end each case has made its transitions once, and in order; those that somebody could not decide on any more have frozen their
// cases, and no others.
func TestCrashWorkflow(t *testing.T) {
	t.Parallel()
	kills := 3
	if testkit.Long() {
		kills = 200
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

// proves checks that the kills, each of a process at work, and the repetitions have hit something: that cases were carried on by others.
func (s *storm) proves() {
	s.Helper()
	carried := s.world.count(`SELECT count(*) FROM case_transitions`) - s.transitions
	s.Logf("%d kills; %d cases, %d acts, %d frozen cases, %d events sent again; %d transitions before the last kill, %d after it",
		s.kills, len(s.cases), s.acts, s.doubts, s.repeated, s.transitions, carried)
	if s.transitions == 0 || carried == 0 || s.repeated == 0 || s.doubts == 0 && !s.certain {
		s.Error("nothing was done before a kill, or after it, or was sent again, or decided twice: this proves nothing")
	}
}

// The same test finds it if the workflow engine's effect is not in the transaction of its inbox row; and finds nothing in a process
// that is merely as slow.
func TestCrashTestFindsFaults(t *testing.T) {
	t.Parallel()
	const kills = 4
	rage := func(t *testing.T, address, program string) (*storm, world, findings) {
		s := newStorm(t, address, program)
		s.certain = true
		s.rage(kills)
		w := startOn(t, s.world.db)
		w.settle()
		f := w.found()
		t.Logf("%d cases: %v", len(s.cases), f.err())
		return s, w, f
	}
	t.Run(outside, func(t *testing.T) {
		t.Parallel()
		if _, _, f := rage(t, testserver.PostgresURL(t), outside); len(f[inTrouble])+len(f[doubled]) == 0 {
			t.Error("nothing was done twice")
		}
	})
	t.Run(slow, func(t *testing.T) {
		t.Parallel()
		s, w, _ := rage(t, filepath.Join(t.TempDir(), "casework.db"), slow)
		w.clean()
		s.proves()
	})
}
