package main

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
)

const (
	// A process is killed within this time of its first event; every fourth, of its
	// start.
	killWithin = 300 * time.Millisecond

	closeEvery = 60 * time.Millisecond // a window, by the process and by the test
	poorEvery  = 10                    // th window is one of the station without a tariff
)

// storm closes windows on a database that a process works on, which it kills again and
// again.
type storm struct {
	*testing.T
	address, program string
	poorToo          bool
	log              string
	random           *rand.Rand
	db               *database
	killed           []time.Time

	mu     sync.Mutex
	closed []string // windows that were said to be committed
}

func newStorm(t *testing.T, address, program string) *storm {
	t.Helper()
	s := &storm{
		T: t, address: address, program: program, poorToo: true, log: filepath.Join(t.TempDir(), "log"),
		random: testkit.Random(t), db: open(t, address),
	}
	world{T: t, db: s.db}.setTariff(tenant, goodStation, 20)
	return s
}

// rage kills one process after the other, while windows are closed also without them.
func (s *storm) rage(kills int, kill func(i int, p *process)) {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	var closing sync.WaitGroup
	closing.Go(func() {
		station := stations{eventing.NewOutbox(s.db.events, eventing.OutboxConfig{})}
		tick := time.NewTicker(closeEvery)
		defer tick.Stop()
		for n := 1; ctx.Err() == nil; n++ {
			w := window{eventing.NewID(), tenant, goodStation, samples(n)}
			if s.poorToo && n%poorEvery == 1 {
				w.station = poorStation
			}
			if err := station.closeWindow(context.WithoutCancel(ctx), w); err != nil {
				s.Error(err)
			}
			s.say(w.id)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	defer closing.Wait()
	defer stop()
	for i := range kills {
		p := s.process()
		kill(i, p)
		s.killed = append(s.killed, time.Now())
	}
}

// aftermath finishes what the last process has left, without any faults.
func (s *storm) aftermath() world {
	s.Helper()
	w := start(s.T, s.address, testConfig())
	w.waitUntilQuiet()
	return w
}

// killAnywhere kills a process at work or, one in four, while it starts.
func (s *storm) killAnywhere(i int, p *process) {
	s.Helper()
	if i%4 == 3 {
		p.Kill(s.upTo(killWithin))
		return
	}
	s.killAtWork(p, killWithin)
}

// killBusy kills a faulty process where it hurts.
func (s *storm) killBusy(_ int, p *process) {
	s.Helper()
	s.killAtWork(p, linger/2)
}

// killAtWork kills a process within a time of its being at work.
func (s *storm) killAtWork(p *process, within time.Duration) {
	s.Helper()
	p.Await(p.atWork, patient)
	p.Kill(s.upTo(within))
}

// upTo returns a random part of a time.
func (s *storm) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d)))
}

// say records that a window is said to be committed.
func (s *storm) say(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, id)
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
		} else {
			s.say(line)
		}
	})
	return p
}
