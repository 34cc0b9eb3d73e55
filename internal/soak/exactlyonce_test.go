//go:build unix

package soak

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
)

// steps are the fault points between which a process can die on an event's way from the
// outbox to its effect.
var steps = []eventing.FaultPoint{
	eventing.FaultClaimed, eventing.FaultPublished, eventing.FaultSettling,
	eventing.FaultArrived, eventing.FaultParking, eventing.FaultHandled, eventing.FaultConcluding, eventing.FaultConcluded,
	eventing.FaultFailing, eventing.FaultFailed, eventing.FaultClaimedDue,
}

// ofBatches is how many of the steps are those of the dispatcher, with many events at once.
const ofBatches = 3

// Of two processes one or the other dies between every two steps, while all messages come
// twice and some much later again, and some handlers fail: each event has its effect
// once, those of a key in order.
func TestSoakExactlyOnce(t *testing.T) {
	beside(t)
	for _, s := range []spec{{Broker: onRedis, Doubles: true}, {Broker: inProcess}} {
		t.Run(s.Broker, func(t *testing.T) {
			beside(t)
			j, effects := dieBetween(t, s, steps)
			for _, wrong := range j.judge(effects) {
				t.Error(wrong)
			}
		})
	}
}

// The same fails if the effect commits on its own instead of with the inbox row.
func TestSoakExactlyOnceNeedsTheInbox(t *testing.T) {
	beside(t)
	j, effects := dieBetween(t, spec{Broker: onRedis, Doubles: true, Outside: true}, either([]eventing.FaultPoint{eventing.FaultHandled, eventing.FaultConcluding}, steps))
	if twice(effects) == 0 || len(j.judgeEach(effects)) == 0 {
		t.Errorf("without the inbox, what is wrong is only %q", j.judge(effects))
	}
}

// dieBetween returns what was appended and the effects, when processes have died at each
// of the points.
func dieBetween(t *testing.T, s spec, points []eventing.FaultPoint) (*journal, []landed) {
	t.Helper()
	s.Dispatches, s.Works, s.LeaseTTL = true, true, time.Second
	a, r, j := newArena(t, ""), testkit.Random(t), newJournal()
	a.ledgerTables()
	var procs [2]*process
	next := func(i int, stopAt eventing.FaultPoint) {
		s.Holder, s.StopAt = eventing.NewID(), stopAt
		procs[i] = a.start(s)
	}
	var deaths []eventing.FaultPoint
	for range either(1, 5) {
		for _, i := range r.Perm(len(points)) {
			deaths = append(deaths, points[i])
		}
	}
	for i := range procs {
		next(i, deaths[i])
	}
	// Each process comes to every step again and again: a tenth of the events fails at first.
	stop := a.write(j, load{writers: 4, every: 100 * time.Millisecond, events: 3, keys: 60, rollbacks: 5, retries: 10}, r.Uint64())
	requeued := 0
	for n := range deaths {
		i := n % len(procs)
		procs[i].waitFor(patient, stopping)
		procs[i].kill()
		requeued += a.requeueSome(50)
		following := eventing.FaultPoint("")
		if n+len(procs) < len(deaths) {
			following = deaths[n+len(procs)]
		}
		next(i, following)
	}
	testkit.Eventually(t, patient, func() error { // nothing may have been settled at a death
		if requeued == 0 {
			requeued = a.requeueSome(50)
		}
		if requeued == 0 {
			return errors.New("nothing is settled that could be sent again")
		}
		return nil
	})
	stop()
	a.handled(j, patient)
	copies := 0
	testkit.Eventually(t, patient, func() error { // the last events' second copies come after their effects
		if copies = a.readAll(a.ledgerStreams()...).doubled(); s.Doubles && copies < len(j.committed) {
			return fmt.Errorf("only %d of %d events are in the broker twice or more", copies, len(j.committed))
		}
		return nil
	})
	terminate(procs[:]...)
	effects := a.landed()
	t.Logf("%d deaths, %d effects; %d events were requeued, %d are in the broker twice or more", len(deaths), len(effects), requeued, copies)
	return j, effects
}

// requeueSome has some settled events be sent again, and returns how many.
func (a *arena) requeueSome(most int) int {
	a.Helper()
	rows, err := a.pool.Query(a.Context(), `SELECT seq FROM event_outbox WHERE status = 'sent' ORDER BY random() LIMIT $1`, most)
	if err != nil {
		a.Fatal(err)
	}
	seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		a.Fatal(err)
	}
	n, err := a.store.Requeue(a.Context(), seqs)
	if err != nil {
		a.Fatal(err)
	}
	return n
}

// twice is how many events have more than one effect.
func twice(effects []landed) (n int) {
	copies := map[string]int{}
	for _, e := range effects {
		if copies[e.event]++; copies[e.event] == 2 {
			n++
		}
	}
	return n
}

// doubling publishes everything twice, what is in order in order each time.
type doubling struct{ message.Publisher }

func (d doubling) Publish(topic string, messages ...*message.Message) error {
	again := slices.Clone(messages)
	for i, m := range again {
		again[i] = m.Copy()
	}
	if err := errors.Join(d.Publisher.Publish(topic, messages...), d.Publisher.Publish(topic, again...)); err != nil {
		return fmt.Errorf("publish twice: %w", err)
	}
	return nil
}
