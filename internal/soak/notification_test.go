//go:build unix

package soak

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/testkit"
)

// A notification that is lost, on its own or with the connection that listens, costs
// one poll at most; and a dispatcher whose connection was cut listens again.
func TestSoakLostNotification(t *testing.T) {
	beside(t)
	const poll = time.Second // the default
	a := newArena(t, "")
	r := testkit.Random(t)
	a.dispatcher(spec{})
	f := a.follow(a.topics + "archive")
	first := a.listens(0)
	a.wakes(f)

	silent := pgstore.New(a.pool)
	silent.Announce = nil
	quiet := eventing.NewOutbox(silent, eventing.OutboxConfig{})
	var lost []time.Duration
	for range either(3, 30) {
		<-time.After(time.Duration(r.Int64N(int64(poll))))
		lost = append(lost, a.latency(f, quiet))
	}
	a.within("a notification was lost", lost, bound(poll+200*time.Millisecond))

	var cut []time.Duration
	for range either(1, 5) {
		if a.count(`SELECT pg_terminate_backend($1)::int`, first) != 1 {
			t.Fatal("the connection that listens could not be terminated")
		}
		cut = append(cut, a.latency(f, a.outbox), a.latency(f, a.outbox))
		first = a.listens(first)
		a.wakes(f)
	}
	a.within("the connection was cut", cut, bound(poll+200*time.Millisecond))
}

// wakes waits until events are published at once, and checks that most are.
func (a *arena) wakes(f *follower) {
	a.Helper()
	limit := bound(50 * time.Millisecond)
	testkit.Eventually(a.T, patient, func() error {
		if took := a.latency(f, a.outbox); took > limit {
			return fmt.Errorf("an event took %v", took)
		}
		return nil
	})
	var all []time.Duration
	for range 20 {
		all = append(all, a.latency(f, a.outbox))
	}
	slices.Sort(all)
	a.Logf("with notifications, events took %v in the median, at most %v", quantile(all, 0.5), quantile(all, 1))
	if quantile(all, 0.5) > limit {
		a.Errorf("most events took longer than %v: %v", limit, all)
	}
}

// latency appends an event and returns how long after its commit it was published.
func (a *arena) latency(f *follower, outbox *eventing.Outbox[pgx.Tx]) time.Duration {
	a.Helper()
	e := newEvent(reading, "")
	if err := outbox.InTx(a.Context(), func(tx pgx.Tx) error { return outbox.Append(a.Context(), tx, e) }); err != nil {
		a.Fatal(err)
	}
	committed := time.Now()
	at, err := f.await(e.ID, patient)
	if err != nil {
		a.Fatal(err)
	}
	return max(0, at.Sub(committed))
}

func (a *arena) within(when string, took []time.Duration, limit time.Duration) {
	a.Helper()
	slices.Sort(took)
	a.Logf("when %s, events took %v in the median, at most %v", when, quantile(took, 0.5), quantile(took, 1))
	if worst := quantile(took, 1); worst > limit {
		a.Errorf("when %s, an event took %v, want at most %v", when, worst, limit)
	}
}

// listens waits for a connection that listens, other than one, and returns its pid.
func (a *arena) listens(other int) (pid int) {
	a.Helper()
	testkit.Eventually(a.T, patient, func() error {
		err := a.pool.QueryRow(a.Context(), `SELECT pid FROM pg_stat_activity
			WHERE datname = current_database() AND query = 'LISTEN waybill_outbox' AND state = 'idle' AND pid <> $1`, other).Scan(&pid)
		if errors.Is(err, pgx.ErrNoRows) {
			return errors.New("no dispatcher listens")
		}
		return err
	})
	return pid
}
