//go:build unix

package soak

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// A Redis that keeps nothing is killed, or somebody flushes it, while events are in it:
// the workers go on with what comes, the audit names what is lost and nothing else, and
// when that has been requeued all events have had their effects, each once.
func TestSoakLostByTheBroker(t *testing.T) {
	beside(t)
	for name, lose := range map[string]func(t *testing.T, a *arena, server *testserver.RedisServer){
		"killed": func(t *testing.T, _ *arena, server *testserver.RedisServer) {
			crash(t, server)
		},
		"flushed": func(t *testing.T, a *arena, _ *testserver.RedisServer) {
			if err := a.redis.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			beside(t)
			server := testserver.PrivateRedis(t, "appendonly no")
			a := newArena(t, server.URL())
			lost(t, a, func() { lose(t, a, server) })
		})
	}
}

func lost(t *testing.T, a *arena, lose func()) {
	a.ledgerTables()
	j, r := newJournal(), testkit.Random(t)
	began := time.Now()
	procs := a.dispatchers(2, spec{})
	workers := []*process{a.start(spec{Works: true}), a.start(spec{Works: true})}
	stop := a.write(j, load{writers: 2, every: 50 * time.Millisecond, events: 3, keys: 200, retries: 2}, r.Uint64())
	for range either(2, 10) {
		signalAll(workers, syscall.SIGSTOP)
		a.fill(j, parcel, 500, 200)
		<-time.After(time.Duration(r.Int64N(int64(time.Second)))) // not all of it is sent
		lose()
		signalAll(workers, syscall.SIGCONT)
		a.passes(j)
	}
	stop()
	a.passes(j)

	want := a.unhandled(j)
	if len(want) == 0 {
		t.Error("nothing was lost: this proves nothing")
	}
	for _, cfg := range []eventing.AuditConfig{{}, {EventIDs: maps.Keys(j.committed)}} {
		if got := a.audit(cfg); !slices.Equal(got, want) {
			t.Errorf("of %d events that are lost, the audit names %d: %s", len(want), len(got), firstDifference(got, want))
		}
	}
	t.Logf("%d of %d events are lost", len(want), len(j.committed))
	for _, f := range []eventing.RequeueFilter{{EventIDs: want}, {SentFrom: began}} { // the second one sends again what has been processed, too
		done, err := eventing.Requeue(t.Context(), a.store, f, false)
		if err != nil {
			t.Fatal(err)
		}
		if f.EventIDs != nil && done.Rows != len(want) {
			t.Errorf("of %d events that are lost, this was requeued: %+v", len(want), done)
		}
		a.handled(j, patient)
		a.passes(j)
	}
	if got := a.audit(eventing.AuditConfig{}); len(got) > 0 {
		t.Errorf("afterwards, the audit names %v", got)
	}
	terminate(append(procs, workers...)...)
	for _, wrong := range j.judgeEach(a.landed()) {
		t.Error(wrong)
	}
}

func signalAll(workers []*process, s syscall.Signal) {
	for _, p := range workers {
		p.t.Helper()
		p.Signal(s)
	}
}

// passes waits until all that was sent before now has been handled, or is lost: an event
// of each partition, appended now, has its effect, and nothing is in trouble.
func (a *arena) passes(j *journal) {
	a.Helper()
	keys := make([]string, eventing.Partitions)
	for p := range keys {
		keys[p] = keyIn(p, "passes", 0)
	}
	events, err := j.append(a.Context(), a.outbox, parcel, keys, false)
	if err != nil {
		a.Fatal(err)
	}
	testkit.Eventually(a.T, patient, func() error {
		handled := a.count(`SELECT count(DISTINCT event_id) FROM effects WHERE event_id = ANY($1)`, events)
		if troubled := a.count(`SELECT count(*) FROM event_deliveries`); handled < len(events) || troubled > 0 {
			return fmt.Errorf("of %d events, one of each partition, %d are handled; %d are in trouble", len(events), handled, troubled)
		}
		return nil
	})
}

// unhandled returns the committed events that have no effect.
func (a *arena) unhandled(j *journal) []string {
	a.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	left := maps.Clone(j.committed)
	for _, e := range a.landed() {
		delete(left, e.event)
	}
	return slices.Sorted(maps.Keys(left))
}

// audit returns the events that are missing at the ledger.
func (a *arena) audit(cfg eventing.AuditConfig) (missing []string) {
	a.Helper()
	cfg.Outbox, cfg.Stores, cfg.Routes, cfg.Grace = a.store, []eventing.AuditStore{a.store}, routes(a.topics), time.Nanosecond
	report, err := eventing.Audit(a.Context(), cfg, func(f eventing.AuditFinding) error {
		if f.Standing != eventing.StandingMissing || f.Consumer != "ledger" {
			a.Errorf("the audit finds %+v", f)
		}
		missing = append(missing, f.EventID)
		return nil
	})
	if err != nil {
		a.Fatal(err)
	}
	if report.Missing != len(missing) {
		a.Errorf("the audit names %d events and counts %+v", len(missing), report)
	}
	slices.Sort(missing)
	return missing
}
