package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
)

const (
	// A process is killed within this time of being at work.
	killWithin = 400 * time.Millisecond
	// actEvery is the time between two acts of the people.
	actEvery = 10 * time.Millisecond
	// enough events are waiting then: the people are not to be too far ahead of the engines.
	enough = 60
	// repeatEvery is the time between two lots of events that are sent again.
	repeatEvery = 150 * time.Millisecond
	repeatLot   = 10
)

// storm plays cases on a database that two processes work on, of which one is killed again and again, and
// has events sent twice.
type storm struct {
	*testing.T
	address, program string
	log              string
	random, repeats  *rand.Rand
	world            world // without engines
	certain          bool  // nobody decides what another has decided
	cases            []*life
	doubts           int // decisions that cannot be right
	acts, repeated   int
	kills            int
	transitions      int // at the last kill
}

func newStorm(t *testing.T, address, program string) *storm {
	t.Helper()
	db := open(t, address)
	c := newClock(time.Now())
	s, err := newSystem(db, config{now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	r := testkit.Random(t)
	return &storm{
		T: t, address: address, program: program, log: filepath.Join(t.TempDir(), "log"),
		random: r, repeats: rand.New(rand.NewPCG(r.Uint64(), 0)),
		world: world{T: t, system: s, switches: new(switches), clock: c, random: rand.New(rand.NewPCG(r.Uint64(), 1)), lives: new(int)},
	}
}

// rage kills processes, while people act, and events are repeated.
func (s *storm) rage(kills int) {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	var outside sync.WaitGroup
	outside.Go(func() { s.people(ctx) })
	outside.Go(func() { s.repeat(ctx) })
	workers := []*process{s.process(), s.process()}
	for i := range kills {
		within := killWithin
		if s.program != healthy {
			within = 2 * linger
		}
		victim := workers[i%2]
		victim.Await(victim.atWork, patient)
		if i%2 == 1 { // else the cases might get nowhere
			s.progress()
		}
		victim.Kill(time.Duration(s.random.Int64N(int64(within))))
		s.kills++
		s.transitions = s.world.count(`SELECT count(*) FROM case_transitions`)
		workers[i%2] = s.process()
	}
	stop()
	outside.Wait()
	for _, w := range workers {
		w.Kill(0)
	}
}

// progress waits for a transition since the last kill.
func (s *storm) progress() {
	s.Helper()
	testkit.Eventually(s, patient, func() error {
		if s.world.count(`SELECT count(*) FROM case_transitions`) == s.transitions {
			return errors.New("no case has made a transition")
		}
		return nil
	})
}

// people work on several cases at a time, and wait for no answer: that the events of each case are handled in
// order is up to the engine. In the end, each case comes to its end.
func (s *storm) people(ctx context.Context) {
	lasting := context.WithoutCancel(ctx)
	var open [][]planned
	tick := time.NewTicker(actEvery)
	defer tick.Stop()
	for {
		switch waiting, err := count(lasting, s.world.db.read, `SELECT count(*) FROM event_outbox WHERE status = 'pending'`); {
		case err != nil:
			s.Error(err)
			return
		case ctx.Err() != nil && len(open) == 0:
			return
		case ctx.Err() != nil || waiting < enough:
			if len(open) < casesAtATime && ctx.Err() == nil {
				open = append(open, s.newCase())
			}
			i := s.acts * 5 % len(open)
			next := open[i][0]
			if err := s.world.act(lasting, next.life, next.act); err != nil {
				s.Error(err)
				return
			}
			s.acts++
			if open[i] = open[i][1:]; len(open[i]) == 0 {
				open = slices.Delete(open, i, i+1)
			}
		}
		<-tick.C
	}
}

const casesAtATime = 6

// newCase returns the acts of a case that is granted, at last. At one in ten, two officers decide.
func (s *storm) newCase() (acts []planned) {
	l := s.world.newLife()
	s.cases = append(s.cases, l)
	course := []act{apply, upload, assign, wizard, verify, evaluate("PENDING"), evaluate("INELIGIBLE"), override, change(stateUnderReview, stateApproved, "means_test", (*life).handler)}
	if len(s.cases)%10 == 1 && !s.certain {
		s.doubts++
		course = append(course, change(stateUnderReview, stateRejected, "means_test", (*life).supervisor))
	}
	course = append(course, calculate, change(stateApproved, statePaymentPending, "payment_submitted", (*life).supervisor), paid, finish("All is done."))
	for _, a := range course {
		acts = append(acts, planned{l, a})
	}
	return acts
}

var paid = events(func(l *life, now time.Time) []eventing.Appendable {
	return []eventing.Appendable{about(l.caseID, paymentProcessed{CaseID: l.caseID, PaymentID: l.paymentID, Amount: l.amount(), SubemaReference: l.subemaReference(now), ProcessedAt: now})}
})

// repeat has events sent again that have been sent: some at least, however soon ctx ends.
func (s *storm) repeat(ctx context.Context) {
	lasting := context.WithoutCancel(ctx)
	tick := time.NewTicker(repeatEvery)
	defer tick.Stop()
	for ctx.Err() == nil || s.repeated == 0 {
		<-tick.C
		ids, err := texts(lasting, s.world.db.read, `SELECT event_id FROM event_outbox WHERE status = 'sent' ORDER BY seq DESC LIMIT 500`)
		if err == nil && len(ids) > 0 {
			s.repeats.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
			var again eventing.Requeued
			again, err = eventing.Requeue(lasting, s.world.db.events, eventing.RequeueFilter{EventIDs: ids[:min(len(ids), repeatLot)]}, false)
			s.repeated += again.Rows
		}
		if err != nil {
			s.Error(err)
			return
		}
	}
}

// process is the program as a process of its own.
type process struct {
	*testkit.Process
	atWork chan struct{} // closed when it says so
}

// process starts the program. It ends with the test at the latest: its standard input
// is closed then.
func (s *storm) process() *process {
	s.Helper()
	self, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), programEnv+"="+s.program, addressEnv+"="+s.address, "GORACE=halt_on_error=1")
	if _, err = cmd.StdinPipe(); err != nil {
		s.Fatal(err)
	}
	p := &process{atWork: make(chan struct{})}
	p.Process = testkit.StartProcess(s.T, cmd, s.log, func(line string) {
		if line == atWork {
			close(p.atWork)
		}
	})
	return p
}
