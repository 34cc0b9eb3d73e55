//go:build unix

package soak

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
)

// takeover is how long after its commit an event is published at the latest, whoever
// died: the default LeaseTTL and a second.
const takeover = 5 * time.Second

// Dispatchers are killed again and again, and started anew, while writers append: no
// event is lost, none that was rolled back is seen, those of a key are first
// published in the order of their appending, and a dead dispatcher's partitions are
// not left alone for long.
func TestOrderAndCrash(t *testing.T) {
	beside(t)
	a := newArena(t, "")
	r := testkit.Random(t)
	procs, holders := make([]*process, 3), make([]string, 3)
	launch := func(i int) {
		holders[i] = eventing.NewID()
		procs[i] = a.dispatcher(spec{Holder: holders[i]})
	}
	for i := range procs {
		launch(i)
	}
	a.shares(3, 8, 16)
	j := newJournal()
	stop := a.write(j, load{writers: 6, every: 20 * time.Millisecond, events: 3, keys: 200, rollbacks: 10}, r.Uint64())
	var deaths []death
	for end := time.Now().Add(either(12*time.Second, 2*time.Minute)); time.Now().Before(end); {
		<-time.After(time.Second + time.Duration(r.Int64N(int64(2*time.Second))))
		victim := r.IntN(len(procs))
		at := procs[victim].kill()
		deaths = append(deaths, death{at, a.heldBy(holders[victim])})
		launch(victim)
	}
	<-time.After(takeover) // so that the last kills are of dispatchers with work to leave
	stop()
	a.drained(patient)
	a.shares(3, 8, 16)
	terminate(procs...)

	a.settledOnce()
	p := a.readAll(a.ledgerStreams()...)
	j.compare(t, p)
	all := j.ages(p, func(time.Time) bool { return true })
	waits := j.waits(p, deaths)
	t.Logf("%d kills; %d events, %d of them published twice or more; from commit to broker: median %v, 99 %% %v, at most %v; after the last death in between at most %v",
		len(deaths), len(all), p.doubled(), quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1), quantile(waits, 1))
	for i, d := range deaths {
		after := j.ages(p, func(committed time.Time) bool {
			return committed.After(d.at.Add(-time.Second)) && committed.Before(d.at.Add(takeover))
		})
		t.Logf("kill %d, at %v, of who had %d partitions: of %d events around it, the last was published after %v",
			i, d.at.Format("15:04:05.000"), len(d.partitions), len(after), quantile(after, 1))
	}
	if len(deaths) < 3 || p.doubled() == 0 && testkit.Long() {
		t.Error("no kill hit anything: this proves nothing")
	}
	if worst, limit := quantile(waits, 1), takeover+either(2*time.Second, 500*time.Millisecond); worst > limit {
		t.Errorf("an event waited for %v after its dispatcher died, or with a live one; want at most %v", worst, limit)
	}
}

// heldBy returns the partitions that a dispatcher has, or had when it died: nobody takes
// them before their leases run out.
func (a *arena) heldBy(holder string) []int {
	a.Helper()
	rows, err := a.pool.Query(a.Context(), `SELECT partition FROM event_leases WHERE scope = $1 AND holder = $2`, eventing.DispatchScope, holder)
	if err != nil {
		a.Fatal(err)
	}
	held, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		a.Fatal(err)
	}
	return held
}

// Of two dispatchers that die within a lease of each other, the later one, which had
// just come, keeps nobody from the partitions of the earlier one.
func TestCrashOfTwo(t *testing.T) {
	beside(t)
	const lease = 4 * time.Second // the default
	a := newArena(t, "")
	r := testkit.Random(t)
	victim := eventing.NewID()
	procs := append(a.dispatchers(2, spec{}), a.dispatcher(spec{Holder: victim}))
	a.shares(3, 8, 16)
	j := newJournal()
	stop := a.write(j, load{writers: 2, every: 10 * time.Millisecond, events: 1, keys: 200}, r.Uint64())
	procs[2].kill()
	var until time.Time // read at once: when this has passed, others have its partitions
	if err := a.pool.QueryRow(t.Context(), `SELECT max(lease_until) FROM event_leases WHERE holder = $1`, victim).Scan(&until); err != nil {
		t.Fatal(err)
	}
	newcomer := a.dispatcher(spec{})
	<-time.After(time.Until(until) - 300*time.Millisecond)
	newcomer.kill()
	<-time.After(2 * lease)
	stop()
	a.drained(patient)
	terminate(procs[:2]...)
	a.settledOnce()
	p := a.readAll(a.ledgerStreams()...)
	j.compare(t, p)
	all := j.ages(p, func(time.Time) bool { return true })
	t.Logf("%d events; from commit to broker: median %v, 99 %% %v, at most %v", len(all), quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1))
	if worst, limit := quantile(all, 1), takeover+either(time.Second, 500*time.Millisecond); worst > limit {
		t.Errorf("an event waited for %v, want at most %v", worst, limit)
	}
}
