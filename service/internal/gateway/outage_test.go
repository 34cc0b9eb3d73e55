package gateway

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// server is what a gateway depends on, and may lose.
type server interface {
	URL() string
	Start(ctx context.Context) error
	Stop() error
	Kill() error
}

// outage is one way in which something fails while events come in, and comes back.
type outage struct {
	name string
	// refuses: while it lasts, events are not accepted.
	refuses bool
	during  func(x *outages)
}

// outages is a gateway of processes of its own, under load, with servers of its own.
type outages struct {
	*split
	store, broker server
	random        func(time.Duration) time.Duration
	rate, kills   int
	lasts         time.Duration // how long something is gone
	settles       time.Duration // of load between two
}

func (x *outages) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// kills kills a part, at random moments, and starts it again.
func kills(part string) func(x *outages) {
	return func(x *outages) {
		for range x.kills {
			x.running[part].Kill(x.random(killWithin))
			x.start(part)
			x.running[part].Await(x.running[part].ready, startWithin)
		}
	}
}

// gone stops a server in order, and starts it again after a while.
func gone(of func(x *outages) server) func(x *outages) {
	return func(x *outages) {
		x.must(of(x).Stop())
		<-time.After(x.lasts) // it is the outage
		x.must(of(x).Start(x.Context()))
	}
}

// crashes kills a server and starts it again at once.
func crashes(of func(x *outages) server) func(x *outages) {
	return func(x *outages) {
		x.must(of(x).Kill())
		x.must(of(x).Start(x.Context()))
	}
}

func theStore(x *outages) server  { return x.store }
func theBroker(x *outages) server { return x.broker }

var allOutages = []outage{
	{"the API is killed", false, kills("api")},
	{"the dispatcher is killed", false, kills("dispatch")},
	{"the worker is killed", false, kills("worker")},
	{"the broker crashes", false, crashes(theBroker)},
	{"the store crashes", false, crashes(theStore)},
	{"the broker is gone", false, gone(theBroker)},
	{"the store is gone", true, gone(theStore)},
}

// Whatever fails while a thousand events a second come in: each that a courier was told to be
// accepted is applied or dead-lettered in the end, exactly once, and the audit agrees, which does find an event
// that is missing.
func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	binary := buildGateway(t)
	t.Run("postgres and redis", func(t *testing.T) {
		t.Parallel()
		store, broker := testserver.PrivatePostgres(t), durableRedis(t)
		newOutages(t, newSplit(t, binary, store.URL(), broker.URL()), store, broker).endure()
	})
	t.Run("mongodb and redis", func(t *testing.T) {
		t.Parallel()
		store, broker := testserver.PrivateFerret(t), durableRedis(t)
		x := newOutages(t, newSplit(t, binary, store.URL()+"waybill", broker.URL()), store, broker)
		x.rate = max(40, x.rate/20) // the server that stands in for MongoDB takes no more
		x.endure()
	})
}

func newOutages(t *testing.T, s *split, store, broker server) *outages {
	t.Helper()
	random := testkit.Random(t)
	x := &outages{
		split: s, store: store, broker: broker, rate: 200, kills: 1, lasts: 2 * time.Second, settles: time.Second,
		random: func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) },
	}
	if testkit.Long() {
		x.rate, x.kills, x.lasts, x.settles = 1000, 3, time.Minute, 5*time.Second
	}
	return x
}

// endure has all outages one after the other.
func (x *outages) endure() {
	t := x.T
	l := startLoad(t, "http://"+x.address, x.secret, x.rate)
	began := time.Now()
	for _, o := range allOutages {
		before, refused, unanswered := l.count.Load(), l.unavailable.Load(), l.unanswered.Load()
		o.during(x)
		during := l.count.Load() - before
		refused, unanswered = l.unavailable.Load()-refused, l.unanswered.Load()-unanswered
		t.Logf("%s: %d events accepted, %d answers 503, %d requests unanswered", o.name, during, refused, unanswered)
		if o.refuses && refused == 0 {
			t.Errorf("%s: no event was refused", o.name)
		}
		l.goesOn(t, x.settles)
	}
	l.stop()
	t.Logf("%d events in %v, %d of them waited for a free courier", len(l.accepted), time.Since(began).Round(time.Second), l.late.Load())
	v := openView(t, x.storeURL)
	accountedEventually(t, v, l.accepted)
	x.audits(v, l.accepted)
	for _, part := range splitParts {
		x.running[part].Signal(syscall.SIGTERM)
		x.running[part].EndsWell()
	}
}

// audits checks that the audit finds nothing missing, and then what is.
func (x *outages) audits(v view, accepted map[string]bool) {
	t := x.T
	t.Helper()
	if found, code := x.audit(); code != 0 {
		t.Errorf("the audit ends with %d: %s", code, found)
	}
	for key, poisonous := range accepted {
		if poisonous {
			continue
		}
		envelope, err := v.forget(t.Context(), key)
		x.must(err)
		if found, code := x.audit(); code != 3 || !strings.Contains(found, envelope) || !strings.Contains(found, `"missing":1,"unknown":0`) {
			t.Errorf("without %s, envelope %s, the audit ends with %d and says %s", key, envelope, code, found)
		}
		return
	}
}

// audit returns the findings and the exit code of gateway audit.
func (x *outages) audit() (found string, code int) {
	cmd := exec.CommandContext(x.Context(), x.binary, "audit", "--json", "--grace", "1ms")
	cmd.Env = append(os.Environ(), "STORE_URL="+x.storeURL)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its exit code says it
	return out.String(), cmd.ProcessState.ExitCode()
}
