//go:build unix

package soak

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// backOff is the longest that a dispatcher waits before it tries again, and a second.
const backOff = 8500 * time.Millisecond

// Redis is gone for a while, and writers go on: nothing is lost, no attempt is
// counted, nothing becomes a dead letter. When it is back, what waits is published soon
// and as fast as ever.
func TestSoakBrokerGone(t *testing.T) { // not beside others: it measures how fast
	outage, backlog := either(4*time.Second, time.Minute), either(12_000, 60_000)
	server := testserver.PrivateRedis(t)
	a := newArena(t, server.URL())
	r := testkit.Random(t)
	j := newJournal()
	procs := a.dispatchers(2, spec{Unslowed: true})
	a.shares(2, 16, 16)
	stop := a.write(j, load{writers: 5, every: 10 * time.Millisecond, events: 1, keys: 200}, r.Uint64())
	<-time.After(time.Second)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	for n := a.pending(); n < backlog-int(500*outage.Seconds()); n = a.pending() {
		a.fill(j, parcel, 1000, 200)
	}
	<-time.After(time.Until(gone.Add(outage)))
	stop()
	waiting := a.pending()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	a.drained(patient)
	a.settledOnce()
	p := a.readAll(a.ledgerStreams()...)
	j.compare(t, p)
	after := a.drainage(p, back)

	terminate(procs...)
	control := newJournal()
	a.fill(control, parcel, waiting, 200)
	began := time.Now()
	procs = a.dispatchers(2, spec{Unslowed: true})
	a.drained(patient)
	terminate(procs...)
	usual := a.drainage(a.readAll(a.ledgerStreams()...), began)
	t.Logf("%d events waited; %d were published twice or more; the first partition began after %v, the last one after %v, the slowest took %v; without an outage, the slowest took %v",
		waiting, p.doubled(), after.first, after.last, after.slowest, usual.slowest)
	t.Logf("that is %.0f events/s, and usually %.0f", float64(waiting)/after.slowest.Seconds(), float64(waiting)/usual.slowest.Seconds())
	if after.last > backOff {
		t.Errorf("a partition began %v after the return, want at most %v", after.last, backOff)
	}
	// In the short form it is a matter of tenths of a second, which others of this machine
	// may well take.
	if after.slowest > either(3*time.Second, 0) && float64(after.slowest) > either(3.0, 2.0)*float64(usual.slowest) {
		t.Errorf("what had waited was published in %v, which usually takes %v", after.slowest, usual.slowest)
	}
}

// drainage is how the partitions were published since a moment.
type drainage struct {
	first, last time.Duration // until the first partition began, and the last one
	slowest     time.Duration // from the beginning of a partition to its end: dispatchers do not begin together
}

func (a *arena) drainage(p published, since time.Time) (d drainage) {
	a.Helper()
	since = since.Truncate(time.Millisecond) // as Redis counts
	for _, stream := range a.ledgerStreams() {
		var began, ended time.Time
		for _, event := range p.order[stream] {
			at := p.first[event]
			if at.Before(since) {
				continue
			}
			if began.IsZero() {
				began = at
			}
			ended = at
		}
		if began.IsZero() {
			a.Errorf("nothing was published to %s", stream)
			continue
		}
		wait := began.Sub(since)
		if d.first == 0 || wait < d.first {
			d.first = wait
		}
		d.last, d.slowest = max(d.last, wait), max(d.slowest, ended.Sub(began))
	}
	return d
}

// Redis accepts connections and says nothing for a while, and then does what it was told
// meanwhile, in whatever order: nothing is lost, no attempt is counted, nothing becomes
// a dead letter, and the first deliveries are in order.
func TestSoakBrokerHangs(t *testing.T) {
	beside(t)
	outage, timeout := either(4*time.Second, time.Minute), either(500*time.Millisecond, 0)
	a := newArena(t, "")
	r := testkit.Random(t)
	j := newJournal()
	proxy := testkit.StartProxy(t, a.redisURL)
	procs := a.dispatchers(2, spec{Redis: proxy.URL(), ReadTimeout: timeout})
	a.shares(2, 16, 16)
	stop := a.write(j, load{writers: 5, every: 25 * time.Millisecond, events: 3, keys: 200}, r.Uint64())
	<-time.After(time.Second)
	for range either(1, 3) {
		thaw := proxy.Freeze()
		<-time.After(outage)
		thaw()
		thawed := time.Now()
		testkit.Eventually(t, patient, func() error {
			if n := a.count(`SELECT count(*) FROM event_outbox WHERE status = 'pending' AND created_at < $1`, thawed); n > 0 {
				return fmt.Errorf("%d events are still pending", n)
			}
			return nil
		})
		t.Logf("%v after it went on, what had waited was settled", time.Since(thawed).Round(time.Millisecond))
	}
	stop()
	a.drained(patient)
	terminate(procs...)
	a.settledOnce()
	p := a.readAll(a.ledgerStreams()...)
	j.compare(t, p)
	all := j.ages(p, func(time.Time) bool { return true })
	t.Logf("%d events, %d of them published twice or more; from commit to broker: median %v, 99 %% %v, at most %v",
		len(all), p.doubled(), quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1))
	if worst := quantile(all, 1); worst > outage+bound(2*backOff) {
		t.Errorf("an event waited for %v with an outage of %v", worst, outage)
	}
}
