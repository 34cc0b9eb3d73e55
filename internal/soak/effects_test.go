//go:build unix

package soak

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/internal/testkit"
)

// ledgerTables makes what ledgers write to.
func (a *arena) ledgerTables() {
	a.Helper()
	if _, err := a.pool.Exec(a.Context(), ledgerTables); err != nil {
		a.Fatal(err)
	}
}

// await waits until an event has its effect.
func (a *arena) await(event string) {
	a.Helper()
	testkit.Eventually(a.T, patient, func() error {
		var n int
		err := a.pool.QueryRow(a.Context(), `SELECT count(*) FROM effects WHERE event_id = $1`, event).Scan(&n)
		if err == nil && n == 0 {
			return fmt.Errorf("event %s is not handled: %s", event, a.state(event))
		}
		return err
	})
}

// state is what the store says of an event and its neighbours.
func (a *arena) state(event string) string {
	var row, leases, troubled string
	err := a.pool.QueryRow(a.Context(), `SELECT
		(SELECT concat(status, ' ', partition, ' ', sent_at) FROM event_outbox WHERE event_id = $1),
		(SELECT string_agg(concat(scope, ' ', partition, ' ', holder, ' ', lease_until), '; ') FROM event_leases
			WHERE partition = (SELECT partition FROM event_outbox WHERE event_id = $1)),
		(SELECT concat(count(*), ' ', min(state), ' ', max(state)) FROM event_deliveries)`, event).Scan(&row, &leases, &troubled)
	return fmt.Sprint("outbox: ", row, "; leases: ", leases, "; deliveries in trouble: ", troubled, err)
}

// handled waits until all that was committed, except what was discarded, has had its
// effect, and nothing is in trouble or pending any more.
func (a *arena) handled(j *journal, within time.Duration) {
	a.Helper()
	testkit.Eventually(a.T, within, func() error {
		j.mu.Lock()
		want := len(j.committed) - len(j.discarded)
		j.mu.Unlock()
		var pending, troubled, effects int
		if err := a.pool.QueryRow(a.Context(), `SELECT (SELECT count(*) FROM event_outbox WHERE status = 'pending'),
			(SELECT count(*) FROM event_deliveries), (SELECT count(DISTINCT event_id) FROM effects)`).Scan(&pending, &troubled, &effects); err != nil {
			return err
		}
		if pending > 0 || troubled > 0 || effects < want {
			return fmt.Errorf("%d events are pending, %d in trouble, %d of %d have had their effects", pending, troubled, effects, want)
		}
		return nil
	})
}

// resolve looks whether transactions of which that was doubtful have been committed.
func (a *arena) resolve(j *journal) {
	a.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	rows, err := a.pool.Query(a.Context(), `SELECT event_id FROM event_outbox WHERE event_id = ANY($1)`, slices.Collect(maps.Keys(j.doubtful)))
	if err != nil {
		a.Fatal(err)
	}
	committed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		a.Fatal(err)
	}
	for _, id := range committed {
		j.committed[id] = time.Now()
	}
	for id := range j.doubtful {
		_, ok := j.committed[id]
		j.rolledBack[id] = !ok
	}
	a.Logf("of %d events whose transactions the database did not answer, %d are committed", len(j.doubtful), len(committed))
}

// landed is an effect.
type landed struct {
	key, event, worker string
}

// landed returns the effects, those of a key in the order of their commits.
func (a *arena) landed() []landed {
	a.Helper()
	rows, err := a.pool.Query(a.Context(), `SELECT key, event_id, worker FROM effects ORDER BY key, place`)
	if err != nil {
		a.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l landed, err error) {
		return l, row.Scan(&l.key, &l.event, &l.worker)
	})
	if err != nil {
		a.Fatal(err)
	}
	return all
}

// judge says what is wrong with the effects: each event that was committed, and was not
// discarded, has to have one, those of a key in the order of their appending.
func (j *journal) judge(effects []landed) (wrong []string) {
	return append(j.judgeEach(effects), j.judgeOrder(effects)...)
}

func (j *journal) judgeEach(effects []landed) (wrong []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	copies, doubled, lost := map[string]int{}, 0, 0
	for _, e := range effects {
		if copies[e.event]++; copies[e.event] == 2 {
			doubled++
		}
		switch {
		case j.discarded[e.event]:
			wrong = append(wrong, fmt.Sprintf("event %s was discarded and has an effect, by worker %s", e.event, e.worker))
		case j.keys[e.event] != e.key || j.rolledBack[e.event]:
			wrong = append(wrong, fmt.Sprintf("event %s of key %q has an effect; rolled back: %t", e.event, e.key, j.rolledBack[e.event]))
		}
	}
	for id := range j.committed {
		if copies[id] == 0 && !j.discarded[id] {
			lost++
		}
	}
	if lost+doubled > 0 {
		wrong = append(wrong, fmt.Sprintf("of %d events, %d have no effect, and %d more than one", len(j.committed), lost, doubled))
	}
	return wrong
}

func (j *journal) judgeOrder(effects []landed) (wrong []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	got := map[string][]string{}
	for _, e := range effects {
		got[e.key] = append(got[e.key], e.event)
	}
	keys, example := 0, ""
	for key, appended := range j.order {
		want := slices.DeleteFunc(slices.Clone(appended), func(id string) bool {
			return j.rolledBack[id] || j.discarded[id] && !slices.Contains(got[key], id) // else it is wrong, too, but perhaps in order
		})
		if !slices.Equal(got[key], want) {
			keys++
			example = key + ": " + firstDifference(got[key], want)
		}
	}
	if keys > 0 {
		wrong = append(wrong, fmt.Sprintf("of %d keys, %d have effects that are not in the order of appending, such as %s", len(j.order), keys, example))
	}
	return wrong
}
