//go:build unix

package soak

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// judge checks what has become of all events: that each has its effect once and in order,
// and that none of another key has ever waited on the poisoned one.
func (p *poisoning) judge() {
	p.Helper()
	others := published{first: map[string]time.Time{}}
	for _, e := range p.judgeEffects() {
		if e.key != poisoned {
			others.first[e.event] = e.at
		}
	}
	troubled, err := p.texts(p.Context(), `SELECT key FROM troubles WHERE key <> $1`, poisoned)
	if err != nil {
		p.Fatal(err)
	}
	if len(troubled) > 0 {
		p.Errorf("%d events of other keys have been parked or retried, such as one of %s", len(troubled), troubled[0])
	}
	parked, err := p.texts(p.Context(), `SELECT event_id FROM troubles WHERE key = $1 AND state = 'parked'`, poisoned)
	if err != nil {
		p.Fatal(err)
	}
	if len(parked) < 3*p.frozen {
		p.Errorf("of the poisoned key, %d events have waited behind %d: this proves little", len(parked), p.frozen)
	}
	ages, waits := p.journal.ages(others, func(time.Time) bool { return true }), p.journal.waits(others, p.deaths)
	p.Logf("%d kills; the key was frozen %d times, %d of its events were parked; of other keys, %d events: from commit to effect median %v, 99 %% %v, at most %v; after the last death in between at most %v",
		len(p.deaths), p.frozen, len(parked), len(ages), quantile(ages, 0.5), quantile(ages, 0.99), quantile(ages, 1), quantile(waits, 1))
	if worst, limit := quantile(waits, 1), either(patient, succession); worst > limit {
		p.Errorf("an event of another key waited for %v, with who had its partition alive; want at most %v: %s", worst, limit, p.explain(others))
	}
}

// explain says what is known of the event that waited the longest.
func (p *poisoning) explain(effects published) string {
	j := p.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	longest, event := time.Duration(-1), ""
	for id, at := range effects.first {
		if wait := at.Sub(j.committed[id]); wait > longest {
			longest, event = wait, id
		}
	}
	partition := eventing.PartitionOf(j.keys[event], event)
	told := fmt.Sprintf("event %s of key %s, partition %d, was committed at %v, and had its effect at %v", event, j.keys[event], partition,
		j.committed[event].Format(clock), effects.first[event].Format(clock))
	for _, d := range p.deaths {
		told += fmt.Sprintf("; a process died at %v, with its partition: %t", d.at.Format(clock), slices.Contains(d.partitions, partition))
	}
	return told
}

const clock = "15:04:05.000"

// succession is how long it takes at most until another works on a partition whose holder
// has died: a lease of a second, and what a busy machine adds; in the short form it may be busy
// with other tests. A retry takes an hour.
const succession = 6 * time.Second
