//go:build unix

package soak

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// From the outbox to the effect, every part is killed in turn, the servers too, while
// clients append: all that a client's commit returned for has its effect, once, and
// those of a key are in order.
func TestSoakEveryPartCrashes(t *testing.T) {
	beside(t)
	for _, broker := range []string{inProcess, onRedis, onPostgres} {
		t.Run(broker, func(t *testing.T) {
			beside(t)
			everyPart(t, broker)
		})
	}
}

// crasher is a server that can be killed and started again.
type crasher interface {
	Kill() error
	Start(ctx context.Context) error
}

// crash has a server killed and started again.
func crash(t *testing.T, server crasher) {
	t.Helper()
	if err := errors.Join(server.Kill(), server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func everyPart(t *testing.T, broker string) {
	database, redisURL := testserver.PrivatePostgres(t), ""
	servers := []crasher{database}
	if broker == onRedis {
		server := testserver.PrivateRedis(t, "appendfsync always")
		redisURL, servers = server.URL(), append(servers, server)
	}
	a := newArenaOn(t, database.URL(), redisURL)
	a.ledgerTables()
	j, r := newJournal(), testkit.Random(t)

	specs := []spec{{Dispatches: true}, {Dispatches: true}, {Works: true}, {Works: true}}
	if broker == inProcess {
		specs = []spec{{Dispatches: true, Works: true}, {Dispatches: true, Works: true}}
	}
	var procs []*process
	var parts []func()
	for i, s := range specs {
		s.Broker, s.LeaseTTL = broker, time.Second
		procs = append(procs, a.start(s))
		parts = append(parts, func() {
			procs[i].kill()
			procs[i] = a.start(s)
		})
	}
	for _, s := range servers {
		parts = append(parts, func() { crash(t, s) })
	}
	stop := a.write(j, load{writers: 5, every: either(200*time.Millisecond, 50*time.Millisecond), events: 3, keys: 200, rollbacks: 5, retries: 2, outages: true}, r.Uint64())
	kills := 0
	for end := time.Now().Add(either(0, 2*time.Minute)); kills == 0 || time.Now().Before(end); {
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		for _, kill := range parts {
			<-time.After(time.Duration(r.Int64N(int64(time.Second))))
			kill()
			kills++
			a.recovers(j)
		}
	}
	stop()
	a.resolve(j)
	a.handled(j, patient)
	terminate(procs...)
	effects := a.landed()
	for _, wrong := range j.judge(effects) {
		t.Error(wrong)
	}
	t.Logf("%d kills, %d effects", kills, len(effects))
}

// recovers waits until an event that is appended now has its effect.
func (a *arena) recovers(j *journal) {
	a.Helper()
	var event string
	testkit.Eventually(a.T, patient, func() error {
		ids, err := j.append(a.Context(), a.outbox, parcel, []string{"recovery"}, false)
		if err != nil {
			j.doubt(ids)
			return err
		}
		event = ids[0]
		return nil
	})
	a.await(event)
}
