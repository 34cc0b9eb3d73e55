package gateway

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// Kills of a gateway. crashLeaseTTL is short, so that one that starts has its
// predecessor's partitions before it is killed itself.
const (
	crashLeaseTTL = 250 * time.Millisecond
	killWithin    = 1000 * time.Millisecond // of serving
	killAtStart   = 200 * time.Millisecond  // of starting; every fourth kill
	patient       = 30 * time.Second        // with a gateway that does nothing
)

// onEachStore runs a test on a SQLite file and on PostgreSQL, at the same time.
func onEachStore(t *testing.T, test func(t *testing.T, storeURL string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "waybill.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, testserver.PostgresURL(t))
	})
}

func buildGateway(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/gateway").CombinedOutput(); err != nil {
		t.Fatalf("build the gateway: %v\n%s", err, out)
	}
	return binary
}

// A gateway that is killed at random moments, also while it starts, has done each
// event that it accepted exactly once in the end.
func TestCrash(t *testing.T) {
	t.Parallel()
	kills := 24
	switch {
	case testkit.Long():
		kills = 250
	case testing.Short():
		kills = 4
	}
	binary := buildGateway(t)
	onEachStore(t, func(t *testing.T, storeURL string) {
		s := newStorm(t, storeURL, func() *exec.Cmd { return exec.Command(binary, "run") })
		accepted, last := s.rage(kills, s.killAnywhere)
		db := storetest.Open(t, storeURL).Read
		if f := auditEventually(t, db, accepted, patient); f.err() != nil {
			t.Fatalf("%v\nthe gateway: %s", f.err(), last.Said())
		}
		last.Signal(syscall.SIGTERM)
		last.EndsWell() // and has drained
		f, err := audit(t.Context(), db, accepted)
		if err != nil || f.err() != nil {
			t.Errorf("after it stopped: %v, %v", f.err(), err)
		}
		working, carried := impact(t, db, s.killed)
		t.Logf("%d kills, %d of them of a worker at work; %d events, of which %d were received before a kill and processed after it; %d requests unanswered",
			kills, working, len(accepted), carried, s.unanswered)
		if working == 0 || carried == 0 || s.unanswered == 0 {
			t.Error("no kill hit anything: this proves nothing")
		}
	})
}

// The same test finds that events are lost when rows are settled too early, and
// done twice when the inbox row is not in the effect's transaction; and finds
// nothing in a gateway that is merely as slow.
func TestCrashTestFindsFaults(t *testing.T) {
	t.Parallel()
	const kills, impatient = 4, 4 * time.Second
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range []string{slow, settleEarly, inboxOutside} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			onEachStore(t, func(t *testing.T, storeURL string) {
				s := newStorm(t, storeURL, func() *exec.Cmd {
					cmd := exec.Command(self)
					cmd.Env = append(os.Environ(), programEnv+"="+fault, "GORACE=halt_on_error=1")
					return cmd
				})
				accepted, last := s.rage(kills, s.killBusy)
				db := storetest.Open(t, storeURL).Read
				if fault == slow {
					if f := auditEventually(t, db, accepted, patient); f.err() != nil {
						t.Fatalf("a gateway without a fault: %v\nthe gateway: %s", f.err(), last.Said())
					}
					return
				}
				f := auditEventually(t, db, accepted, impatient)
				for again := 0; again < 4 && f.err() == nil; again++ { // on a busy machine few events are at the faulty place
					last.Kill(0)
					var more []string
					more, last = s.rage(kills, s.killBusy)
					accepted = append(accepted, more...)
					f = auditEventually(t, db, accepted, impatient)
				}
				t.Logf("%d events: %v", len(accepted), f.err())
				if fault == settleEarly && (len(f.lost) == 0 || len(f.doubled) > 0) {
					t.Errorf("%d lost and %d doubled, want some lost only", len(f.lost), len(f.doubled))
				}
				if fault == inboxOutside && (len(f.lost) > 0 || len(f.doubled) == 0) {
					t.Errorf("%d lost and %d doubled, want some doubled only", len(f.lost), len(f.doubled))
				}
			})
		})
	}
}

// storm sends events to a gateway on a fixed port and kills it again and again.
type storm struct {
	*testing.T
	storeURL   string
	command    func() *exec.Cmd
	address    string
	secret     string
	log        string
	random     *rand.Rand
	rages      int64
	killed     []time.Time
	unanswered int64
}

func newStorm(t *testing.T, storeURL string, command func() *exec.Cmd) *storm {
	t.Helper()
	return &storm{
		T: t, storeURL: storeURL, command: command, secret: newSecret(), log: filepath.Join(t.TempDir(), "log"),
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.FreePort(t))), random: testkit.Random(t),
	}
}

func (s *storm) start() *process {
	s.Helper()
	cmd := s.command()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "STORE_URL="+s.storeURL, "HTTP_ADDR="+s.address, "HMAC_SECRET="+s.secret, "ADMIN_TOKEN="+s.secret,
		"LEASE_TTL="+crashLeaseTTL.String(), "RETRY_BACKOFF_BASE_MS=20", "LOG_LEVEL=warn")
	return start(s.T, cmd, s.log)
}

// rage returns the keys of the accepted events, and the gateway that was not
// killed.
func (s *storm) rage(kills int, kill func(i int, p *process)) (accepted []string, last *process) {
	s.Helper()
	c := startCouriers(s.T, newSender("http://"+s.address, s.secret, courierCount), s.rages*1_000_000)
	s.rages++
	for i := range kills {
		kill(i, s.start())
		s.killed = append(s.killed, time.Now())
	}
	last = s.start()
	last.Await(last.ready, startWithin)
	accepted = c.stop()
	s.unanswered += c.unanswered.Load()
	return accepted, last
}

// killAnywhere kills a gateway while it serves or, one in four, while it starts.
func (s *storm) killAnywhere(i int, p *process) {
	s.Helper()
	if i%4 == 0 {
		p.Kill(s.within(killAtStart))
		return
	}
	p.Await(p.ready, startWithin)
	p.Kill(s.within(killWithin))
}

// killBusy kills a faulty gateway when it has had events for a while.
func (s *storm) killBusy(_ int, p *process) {
	s.Helper()
	p.Await(p.busy, startWithin)
	p.Kill(window + s.within(4*window))
}

// within returns a random part of a time.
func (s *storm) within(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d)))
}
