//go:build unix

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
)

// Workers are killed, stopped for longer than their leases and continued, join and
// leave, while writers append and some handlers fail: the effects of a key are in the
// order of its appends, each is there once, and none of what was discarded.
func TestSoakWorkersOrder(t *testing.T) {
	beside(t)
	for _, broker := range []string{onRedis, onPostgres} {
		t.Run(broker, func(t *testing.T) {
			beside(t)
			j, effects := workersOrder(t, spec{Broker: broker}, func(c *crew, r *rand.Rand) {
				for end := time.Now().Add(either(0, 2*time.Minute)); c.killed == 0 || time.Now().Before(end); {
					c.disturb(r)
				}
			})
			for _, wrong := range j.judge(effects) {
				t.Error(wrong)
			}
		})
	}
}

// The same fails if workers do not check their leases where the effect commits.
func TestSoakWorkersOrderNeedsTheCheck(t *testing.T) {
	beside(t)
	j, effects := workersOrder(t, spec{Unchecked: true}, (*crew).deceive)
	if len(j.judgeEach(effects)) == 0 || len(j.judgeOrder(effects)) == 0 {
		t.Errorf("without the check, what is wrong is only %q", j.judge(effects))
	}
}

func workersOrder(t *testing.T, s spec, disturb func(*crew, *rand.Rand)) (*journal, []landed) {
	s.LeaseTTL = time.Second
	a := newArena(t, "")
	a.ledgerTables()
	r := testkit.Random(t)
	dispatchers := a.dispatchers(2, spec{Broker: s.Broker})
	c := &crew{arena: a, spec: s, journal: newJournal()}
	for range 3 {
		c.join()
	}
	stop := a.write(c.journal, load{writers: 5, every: either(100*time.Millisecond, 25*time.Millisecond), events: 3, keys: 200, rollbacks: 5, retries: 2}, r.Uint64())
	disturb(c, r)
	stop()
	a.handled(c.journal, patient)
	terminate(c.workers...)
	terminate(dispatchers...)
	effects := a.landed()
	t.Logf("%d effects; workers: %d killed, %d stopped, %d left, %d deceived", len(effects), c.killed, c.stopped, c.left, c.deceived)
	return c.journal, effects
}

// crew are the workers that there are.
type crew struct {
	*arena
	spec    spec
	journal *journal
	workers []*process

	killed, stopped, left, deceived int
}

const fewest, most = 2, 4 // workers

func (c *crew) join() {
	c.Helper()
	c.spec.Works, c.spec.Holder = true, eventing.NewID()
	c.workers = append(c.workers, c.start(c.spec))
}

// pick removes a worker from the crew.
func (c *crew) pick(r *rand.Rand) *process {
	i := r.IntN(len(c.workers))
	p := c.workers[i]
	c.workers = slices.Delete(c.workers, i, i+1)
	return p
}

// disturb has everything happen to the crew that may, in a random order.
func (c *crew) disturb(r *rand.Rand) {
	c.Helper()
	for _, what := range r.Perm(4) {
		<-time.After(time.Duration(r.Int64N(int64(time.Second))))
		if n := len(c.workers); n == fewest || n < most && r.IntN(2) == 0 {
			c.join()
		}
		switch what {
		case 0:
			c.kill(r)
		case 1:
			c.leave(r)
		case 2:
			c.pause(r)
		case 3:
			c.deceive(r)
		}
	}
}

func (c *crew) kill(r *rand.Rand) {
	c.Helper()
	c.pick(r).kill()
	c.killed++
}

func (c *crew) leave(r *rand.Rand) {
	c.Helper()
	terminate(c.pick(r))
	c.left++
}

// pause stops a worker until others have all of its leases, and another is perhaps dead.
func (c *crew) pause(r *rand.Rand) {
	c.Helper()
	paused := c.pick(r)
	paused.Signal(syscall.SIGSTOP)
	if len(c.workers) > fewest && r.IntN(2) == 0 {
		c.kill(r)
	}
	c.forsaken(paused)
	paused.Signal(syscall.SIGCONT)
	c.workers = append(c.workers, paused)
	c.stopped++
}

// forsaken waits until a worker has no lease any more that it knows of.
func (c *crew) forsaken(p *process) {
	c.Helper()
	testkit.Eventually(c.T, patient, func() error {
		if n := c.count(`SELECT count(*) FROM event_leases WHERE holder = $1`, p.spec.Holder); n > 0 {
			return fmt.Errorf("nobody has taken over %d partitions", n)
		}
		return nil
	})
}

// deceive has a worker stop in its handler, before the effect of an event. Its successor
// finds that the event is not to have any; the operator discards it, and the key goes
// on. Then the worker goes on, too, as if nothing had happened: neither an inbox row nor
// a delivery is in its way, as one would be if the successor had processed the event,
// or kept it. Its lease is.
func (c *crew) deceive(r *rand.Rand) {
	c.Helper()
	c.deceived++
	key := load{keys: 200}.key(r)
	event := c.appendTo(key, damaged)
	next := c.appendTo(key, parcel)
	paused := c.stopsIn(event)
	c.discard(event)
	c.await(next)
	paused.Signal(syscall.SIGCONT)
	late := paused.waitFor(patient, func(r report) bool { return r.Event == event && !r.Stopping })
	if late.Concluded != c.spec.Unchecked || late.Refused == c.spec.Unchecked {
		c.Errorf("what a worker concluded that had lost its lease: %+v", late)
	}
}

func (c *crew) appendTo(key, eventType string) (id string) {
	c.Helper()
	ids, err := c.journal.append(c.Context(), c.outbox, eventType, []string{key}, false)
	if err != nil {
		c.Fatal(err)
	}
	return ids[0]
}

// stopsIn waits for a worker that has stopped in its handler of an event.
func (c *crew) stopsIn(event string) (p *process) {
	c.Helper()
	testkit.Eventually(c.T, patient, func() error {
		for _, p = range c.workers {
			if slices.ContainsFunc(p.reports(), func(r report) bool { return r.Stopping && r.Event == event }) {
				return nil
			}
			p.Alive()
		}
		return errors.New("no worker has stopped")
	})
	return p
}

// discard gives an event up as soon as it is a dead letter.
func (c *crew) discard(event string) {
	c.Helper()
	letters := eventing.NewDeadLetters(c.store)
	testkit.Eventually(c.T, patient, func() error {
		return letters.Discard(context.WithoutCancel(c.Context()), eventing.Target{EventID: event, Consumer: "ledger"}, "the operator", "it is damaged")
	})
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	c.journal.discarded[event] = true
}
