//go:build unix

package soak

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
)

// While a backlog drains, critical events reach their unordered consumer within 100 ms,
// and their ordered one in the order of their keys, each of them once. Two dispatchers
// on one machine have half of it each, and twice the time.
func TestSoakCritical(t *testing.T) { // not beside others: it measures times under load of its own
	tries := either([]int{50}, []int{1000, 200})
	for i, n := range tries {
		t.Run(fmt.Sprintf("%d dispatchers", i+1), func(t *testing.T) { critical(t, i+1, n) })
	}
}

func critical(t *testing.T, dispatchers, tries int) {
	backlog := either(30_000, 200_000)
	a := newArena(t, "")
	r := testkit.Random(t)
	j := newJournal()
	f := a.follow(a.topics + "pager")
	procs := a.dispatchers(dispatchers, spec{Unslowed: true})
	a.shares(dispatchers, 32/dispatchers, 32/dispatchers)
	var took []time.Duration
	alarms := newJournal()
	rounds, busy := 0, time.Duration(0)
	for ; len(took) < tries; rounds++ {
		a.fill(j, held, backlog, 200)
		if _, err := a.pool.Exec(t.Context(), `UPDATE event_outbox SET due_at = NULL WHERE due_at IS NOT NULL`); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for len(took) < tries && a.waiting(j) > backlog/10 {
			var ids []string
			var err error
			if len(took)%2 == 0 {
				ids, err = alarms.append(t.Context(), a.outbox, alarm, []string{""}, false)
			} else {
				ids, err = j.append(t.Context(), a.outbox, incident, []string{load{keys: 200}.key(r)}, false)
			}
			committed := time.Now()
			if err != nil {
				t.Fatal(err)
			}
			at, err := f.await(ids[0], patient)
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, max(0, at.Sub(committed)))
		}
		a.drained(patient)
		busy += time.Since(began)
	}
	terminate(procs...)
	a.settledOnce()

	slices.Sort(took)
	t.Logf("critical events took %v in the median, 90 %% %v, 99 %% %v, at most %v, beside %d backlogs of %d events, which drained at %.0f events/s",
		quantile(took, 0.5), quantile(took, 0.9), quantile(took, 0.99), quantile(took, 1), rounds, backlog, float64(rounds*backlog)/busy.Seconds())
	for _, q := range either([]float64{0.5, 0.9}, []float64{0.5, 0.9, 0.99}) {
		if got, limit := quantile(took, q), time.Duration(dispatchers)*bound(100*time.Millisecond); got > limit {
			t.Errorf("%.0f %% of critical events took up to %v, want %v", 100*q, got, limit)
		}
	}

	ledger := a.readAll(a.ledgerStreams()...)
	j.compare(t, ledger)
	pager, archive := a.readAll(a.topics+"pager"), a.readAll(a.topics+"archive")
	if ledger.doubled()+pager.doubled()+archive.doubled() > 0 {
		t.Errorf("of %d, %d and %d events at the ledger, the pager and the archive, %d, %d and %d have copies",
			len(ledger.copies), len(pager.copies), len(archive.copies), ledger.doubled(), pager.doubled(), archive.doubled())
	}
	if len(pager.copies) != tries || len(archive.copies) != rounds*backlog || len(ledger.copies) != rounds*backlog+tries/2 {
		t.Errorf("the pager has %d events, the archive %d, the ledger %d; want %d, %d, %d", len(pager.copies), len(archive.copies), len(ledger.copies),
			tries, rounds*backlog, rounds*backlog+tries/2)
	}
}

// waiting is about how many events of the backlog are pending.
func (a *arena) waiting(j *journal) int {
	a.Helper()
	j.mu.Lock()
	appended := len(j.committed)
	j.mu.Unlock()
	n, err := a.redis.XLen(a.Context(), a.topics+"archive").Result()
	if err != nil {
		a.Fatal(err)
	}
	return appended - int(n)
}
