//go:build unix

package soak

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
)

// One of a hundred keys is poisoned while processes are killed. No event of another key
// waits on it: none is ever parked or retried, all that are appended before the key is
// released have had their effects by then, and none has waited for longer than it takes
// over from who died. The key's later events wait, and then run in order: after the
// damaged one if it is replayed, without it if it is discarded.
func TestSoakPoisonedKey(t *testing.T) {
	beside(t)
	onEachPair(t, poisonedKey)
}

const (
	poisonedOf = 100 // keys, from 0
	poisoned   = "key-13"
	// neighbour has the poisoned key's partition.
	neighbour = "key-35"
)

func poisonedKey(t *testing.T, kind, broker string) {
	if eventing.PartitionOf(poisoned, "") != eventing.PartitionOf(neighbour, "") {
		t.Fatal("the keys are not of one partition")
	}
	p, r := newPoisoning(t, kind, broker), testkit.Random(t)
	for i := range p.procs {
		p.start(i)
	}
	stop := load{writers: 2, every: either(200*time.Millisecond, 100*time.Millisecond), events: 3, keys: poisonedOf, rollbacks: 5}.
		write(t, r.Uint64(), p.journal, func(eventType string, keys []string, rollback bool) ([]string, error) {
			return appendNoted(t.Context(), p.journal, p.outbox, eventType, keys, rollback)
		})
	for end, round := time.Now().Add(either(0, 30*time.Second)), 0; round < 2 || time.Now().Before(end); round++ {
		p.freezeAndThaw(r, round%2 == 0)
	}
	stop()
	p.rests()
	terminate(p.procs[:]...)
	p.judge()
}

// poisoning is a depot and its processes, one key of which is poisoned again and again.
type poisoning struct {
	*depot
	log    string
	procs  [2]*process
	deaths []death
	frozen int // times
}

func newPoisoning(t *testing.T, kind, broker string) *poisoning {
	t.Helper()
	p := &poisoning{depot: newDepot(t, kind, broker), log: filepath.Join(t.TempDir(), "log")}
	p.spec.Poisonable, p.spec.LeaseTTL = true, time.Second
	for _, statement := range poisonableTables[kind] {
		p.exec(t, statement)
	}
	return p
}

func (p *poisoning) start(i int) {
	p.Helper()
	p.spec.Holder = eventing.NewID()
	p.procs[i] = start(p.T, p.spec, p.log)
}

// kill kills a process after a while, writes down what it had, and starts another.
func (p *poisoning) kill(r *rand.Rand) {
	p.Helper()
	<-time.After(time.Duration(r.Int64N(int64(500 * time.Millisecond))))
	i := r.IntN(len(p.procs))
	at := p.procs[i].kill()
	texts, err := p.texts(p.Context(), `SELECT DISTINCT partition FROM event_leases WHERE holder = $1`, p.procs[i].spec.Holder) // in any scope
	if err != nil {
		p.Fatal(err)
	}
	var held []int
	for _, text := range texts {
		partition, err := strconv.Atoi(text)
		if err != nil {
			p.Fatal(err)
		}
		held = append(held, partition)
	}
	p.deaths = append(p.deaths, death{at, held})
	p.start(i)
}

// freezeAndThaw has the poisoned key freeze, and go on with the damaged event or without.
func (p *poisoning) freezeAndThaw(r *rand.Rand, replay bool) {
	p.Helper()
	p.append(poisoned, parcel)
	event := p.append(poisoned, damaged)
	p.frozen++
	for range 3 {
		p.append(poisoned, parcel)
	}
	p.becomes(event, eventing.StateRetrying)
	p.othersFlow(r, event, eventing.StateRetrying)
	p.exec(p.T, `UPDATE event_deliveries SET due_at = '2000-01-01T00:00:00.000000Z' WHERE state = 'retrying'`) // an hour has passed
	p.becomes(event, eventing.StateDead)
	p.othersFlow(r, event, eventing.StateDead)
	if last := p.lastEffect(poisoned); last != p.journal.before(event) {
		p.Errorf("while event %s is dead, the last effect of its key is that of %s, not of the event before it", event, last)
	}
	if replay {
		p.exec(p.T, `INSERT INTO repaired (event_id) VALUES ($1)`, event)
		p.replay(event, "it is repaired")
	} else {
		p.discard(event)
	}
	p.kill(r)
	p.handled(p.append(poisoned, parcel))
}

// lastEffect returns the event that had a key's last effect.
func (p *poisoning) lastEffect(key string) (event string) {
	p.Helper()
	for _, e := range p.effects() {
		if e.key == key {
			event = e.event
		}
	}
	return event
}

// discard gives a dead event up.
func (p *poisoning) discard(event string) {
	p.Helper()
	if err := p.letters.Discard(p.Context(), eventing.Target{EventID: event, Consumer: "ledger"}, "the operator", "it cannot be repaired"); err != nil {
		p.Fatal(err)
	}
	p.journal.mu.Lock()
	defer p.journal.mu.Unlock()
	p.journal.discarded[event] = true
}

// before returns the event before another of the same key.
func (j *journal) before(event string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	order := j.order[j.keys[event]]
	return order[slices.Index(order, event)-1]
}

// becomes waits until an event's delivery is in a state.
func (p *poisoning) becomes(event string, state eventing.State) {
	p.Helper()
	testkit.Eventually(p.T, patient, func() error {
		states, err := p.texts(p.Context(), `SELECT state FROM event_deliveries WHERE event_id = $1`, event)
		if err == nil && !slices.Equal(states, []string{string(state)}) {
			return fmt.Errorf("event %s is in the states %q, want %s", event, states, state)
		}
		return err
	})
}

// othersFlow kills processes and checks that all events of other keys have their effects
// while the damaged one is as it is, and later ones of its key wait.
func (p *poisoning) othersFlow(r *rand.Rand, event string, state eventing.State) {
	p.Helper()
	for range either(1, 3) {
		p.append(neighbour, parcel)
		p.kill(r)
		p.append(neighbour, parcel)
		p.handled(p.journal.of(func(key string) bool { return key != poisoned })...)
	}
	p.becomes(event, state)
}

// of returns the committed events of some keys.
func (j *journal) of(some func(key string) bool) (ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id := range j.committed {
		if some(j.keys[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

// handled waits until events have had their effects.
func (p *poisoning) handled(events ...string) {
	p.Helper()
	testkit.Eventually(p.T, patient, func() error {
		effects, err := p.texts(p.Context(), `SELECT event_id FROM effects`)
		if err != nil {
			return err
		}
		have := make(map[string]bool, len(effects))
		for _, id := range effects {
			have[id] = true
		}
		if i := slices.IndexFunc(events, func(id string) bool { return !have[id] }); i >= 0 {
			return fmt.Errorf("event %s of key %s has no effect", events[i], p.journal.keyOf(events[i]))
		}
		return nil
	})
}

func (j *journal) keyOf(event string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.keys[event]
}

// rests waits until all that was committed and not discarded has had its effect, and
// nothing is in trouble or pending.
func (p *poisoning) rests() {
	p.Helper()
	p.handled(slices.DeleteFunc(p.journal.of(func(string) bool { return true }), func(id string) bool { return p.journal.discarded[id] })...)
	testkit.Eventually(p.T, patient, func() error {
		left, err := p.left()
		if err == nil && left > 0 {
			return fmt.Errorf("%d events are pending or in trouble", left)
		}
		return err
	})
}
