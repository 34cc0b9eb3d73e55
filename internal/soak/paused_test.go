//go:build unix

package soak

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
)

// A dispatcher is stopped before it settles, for longer than its lease. When it goes on,
// its settlement settles nothing of what another has taken over, whether that one has
// settled it or has yet to.
func TestSoakPausedDispatcherSettlesNothing(t *testing.T) {
	beside(t)
	for _, stop := range []eventing.FaultPoint{eventing.FaultClaimed, eventing.FaultPublished, beforeSettle} {
		for _, successor := range []eventing.FaultPoint{"settled", eventing.FaultPublished} {
			t.Run(fmt.Sprintf("stopped: %s; successor: %s", stop, successor), func(t *testing.T) {
				beside(t)
				pausedDispatcher(t, stop, successor)
			})
		}
	}
}

func pausedDispatcher(t *testing.T, stop, successorAt eventing.FaultPoint) {
	const rows, keys = 60, 30 // one batch
	waits := successorAt == eventing.FaultPublished
	a := newArena(t, "")
	j := newJournal()
	paused := a.dispatcher(spec{Concurrency: 1, LeaseTTL: time.Second, StopAt: stop, TellSettled: true})
	a.shares(1, 32, 32)
	a.fill(j, parcel, rows, keys)
	paused.waitFor(patient, stopping)

	successor := a.dispatcher(spec{Concurrency: 1, LeaseTTL: 20 * time.Second, StopAt: successorAt, TellSettled: true})
	if waits {
		successor.waitFor(patient, stopping)
		if n := a.pending(); n != rows {
			t.Errorf("%d rows are pending before anybody has settled, want %d", n, rows)
		}
	} else {
		a.drained(patient)
	}
	paused.Signal(syscall.SIGCONT)
	late := paused.waitFor(patient, settlement)
	if late.Settled != 0 || len(late.Rows) != rows {
		t.Errorf("the dispatcher that was paused settled %d of the %d rows that it had published", late.Settled, len(late.Rows))
	}
	if waits {
		if n := a.pending(); n != rows {
			t.Errorf("%d rows are pending before the successor has settled, want %d", n, rows)
		}
		successor.Signal(syscall.SIGCONT)
		a.drained(patient)
	}
	a.settledOnce()

	terminate(successor) // what it has said is all there, and what comes now is the other's
	first, _ := settledBy(paused)
	second, seqs := settledBy(successor)
	if first != 0 || second != rows || len(seqs) != rows {
		t.Errorf("of %d rows, the paused dispatcher settled %d, its successor %d: %v", rows, first, second, seqs)
	}
	p := a.readAll(a.ledgerStreams()...)
	j.compare(t, p)
	if p.doubled() != rows {
		t.Errorf("%d of %d events were published by both", p.doubled(), rows)
	}

	a.shares(1, 32, 32)
	a.fill(j, parcel, rows, keys)
	a.drained(patient)
	terminate(paused)
	if n, _ := settledBy(paused); n != rows {
		t.Errorf("afterwards, it settled %d of %d new rows", n, rows)
	}
	a.settledOnce()
	j.compare(t, a.readAll(a.ledgerStreams()...))
}

func stopping(r report) bool { return r.Stopping }

func settlement(r report) bool { return len(r.Rows) > 0 }

// settledBy returns how many rows a dispatcher's statements have settled, and which ones
// it meant.
func settledBy(p *process) (n int, seqs []int64) {
	for _, r := range p.reports() {
		n += r.Settled
		seqs = append(seqs, r.Rows...)
	}
	slices.Sort(seqs)
	return n, slices.Compact(seqs)
}

// A dispatcher that is stopped with a transaction of its own open, as one is whose host
// has lost its power or its network, does not keep its successor from dispatching for
// longer than its lease.
func TestSoakPausedInTransaction(t *testing.T) {
	beside(t)
	for stop, eventType := range map[eventing.FaultPoint]string{
		eventing.FaultSettling: parcel, eventing.FaultExpediting: incident, eventing.FaultDispatchFailing: unknown, eventing.FaultAdopted: byHand,
	} {
		t.Run(string(stop), func(t *testing.T) {
			beside(t)
			pausedInTransaction(t, stop, eventType)
		})
	}
}

const (
	unknown = "unknown" // has no route
	byHand  = "by hand" // a parcel that is inserted as a row without a partition
)

func pausedInTransaction(t *testing.T, stop eventing.FaultPoint, eventType string) {
	a := newArena(t, "")
	paused := a.dispatcher(spec{Concurrency: 1, LeaseTTL: time.Second, StopAt: stop})
	a.shares(1, 32, 32)
	e := newEvent(eventType, "first")
	if eventType == byHand {
		if _, err := a.pool.Exec(t.Context(), `INSERT INTO event_outbox (id, event_id, event_type, payload) VALUES ($1, $1, $2, '{"payload": {}}')`, e.ID, parcel); err != nil {
			t.Fatal(err)
		}
	} else if err := a.outbox.InTx(t.Context(), func(tx pgx.Tx) error { return a.outbox.Append(t.Context(), tx, e) }); err != nil {
		t.Fatal(err)
	}
	paused.waitFor(patient, stopping)

	successor := a.dispatcher(spec{})
	f := a.follow(a.ledgerStreams()...)
	j := newJournal()
	start := time.Now()
	a.fill(j, parcel, 200, 200)
	for id := range j.committed {
		if _, err := f.await(id, 2*takeover); err != nil {
			t.Fatalf("with another dispatcher stopped (%s): %v: %s", stop, err, successor.Said())
		}
	}
	if took := time.Since(start); took > bound(takeover) {
		t.Errorf("with another dispatcher stopped, it took %v until all events were published, want at most %v", took, bound(takeover))
	}
	a.drained(takeover)
	paused.Signal(syscall.SIGCONT)
	a.shares(2, 16, 16)
	terminate(paused, successor)
	j.compare(t, a.readAll(a.ledgerStreams()...).without(func(id string) bool { return id == e.ID }))
}
